"""The best method in hindsight: everything that could be advised, searched fully and judged by test data."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.adviser.candidates import BASELINE, Contestant, common
from holdfast.adviser.course import Course
from holdfast.adviser.facts import facts
from holdfast.adviser.from_file import asked
from holdfast.adviser.problem import TO_TARGET, Problem, problem
from holdfast.adviser.race import by_contestant, mean_reached
from holdfast.adviser.work import ALONE, Entry, Score, reached
from holdfast.config.file import ExperimentFile
from holdfast.engine.setup import checked
from holdfast.errors import HoldfastError
from holdfast.jobs import machine
from holdfast.jobs.local import LocalExecutor

# Step sizes, as factors to the file's own.
RATES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_FEDPVR = [{"mask": "classifier"}]
# Every method that the adviser knows, with values of its own.
GRID: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "fedavg": [{}],
    "fedprox": [{"mu": v} for v in (0.01, 0.1, 1.0)],
    "fedavgm": [{"momentum": v} for v in (0.5, 0.7, 0.9)],
    "fedadam": [{"learning_rate": v} for v in (0.001, 0.003, 0.01, 0.03, 0.1)],
    "scaffold": [{}],
    "feddyn": [{"alpha": v} for v in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)],
    "feddc": [{"alpha": v} for v in (0.001, 0.01, 0.03, 0.1, 0.3)],
    "fedpvr": _FEDPVR,
}
AT_SERVER: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "fedavg_plus": [{"gamma": v} for v in (0.1, 0.3, 1.0)],
    "scaffold_plus": [{"gamma": v} for v in (0.1, 0.3, 1.0)],
    "feddyn_plus": [{"alpha": a, "gamma": g} for a in (0.01, 0.1, 1.0) for g in (0.1, 0.3, 1.0)],
    "feddc_plus": [{"alpha": a, "gamma": g} for a in (0.01, 0.1) for g in (0.3, 1.0)],
}
# Where clients are judged by models of their own.
PERSONAL: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "flix": [{"alpha": v} for v in (0.2, 0.35, 0.5, 0.65, 0.8)]
}
# All of it with the first seed, the best values of each method with all of these, and what is left, one of
# each method, is measured by others, which chose nothing.
CHOOSING, MEASURING = (10, 11, 12), (20, 21, 22, 23, 24)
_KEPT = 3


def posed(file: ExperimentFile, goal: str | None) -> Problem:
    """The problem as the world would judge it: trained on all examples, tested on the test set."""
    found = asked(file)
    return problem(
        found.trained.model,
        found.trained.clients,
        found.local,
        held_out=found.trained.tests,
        cohort=found.trained.cohort,
        server=found.server,
        rounds=found.rounds,
        goal=goal,
        target=found.target,
        megabytes=None,
        params=found.params,
    )


@contextlib.contextmanager
def course(problem: Problem, folder: Path | None, name: str) -> Iterator[Course]:
    """Where runs happen, on all cores."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        executor = stack.enter_context(LocalExecutor(1))
        jobs = min(machine.cores(), machine.room_for_processes(as_this_one=True))

        def say(stage: str, done: int, of: int) -> None:
            if done % 10 == 0 or done == of:
                print(f"\r{name}: {stage} {done} of {of} runs   ", end="", flush=True)

        found = Course(problem, folder, executor, jobs, say)
        stack.enter_context(found.open())
        yield found
        print()


def contestants(problem: Problem) -> list[Contestant]:
    """The full grid, but for what is refused here."""
    shared = common(facts(problem, look=False))
    base = problem.local.learning_rate
    assert isinstance(base, int | float)
    wanted = dict(GRID)
    if problem.server is not None:
        wanted |= AT_SERVER
    if problem.goal not in TO_TARGET:
        wanted |= PERSONAL | {ALONE: [{}]}
    found: list[Contestant] = []
    for name, tables in wanted.items():
        one = _contestant(name, tables[0], None, shared)
        try:
            checked(problem.experiment(one.algorithm(), problem.local, 0))
        except HoldfastError as error:
            print(f"  {name} is left out: {error}")
            continue
        found += [
            _contestant(name, table, float(f"{base * factor:.4g}"), shared)
            for table in tables
            for factor in RATES
        ]
    return found


def _contestant(
    name: str, table: Mapping[str, Any], rate: float | None, shared: Mapping[str, Any]
) -> Contestant:
    from holdfast.adviser.candidates import Candidate

    return Candidate(name, "", (table,)).contestants([rate], shared)[0]


def hindsight(problem: Problem, course: Course) -> dict[str, tuple[Contestant, list[Score]]]:
    """The best values of every method, and what they come to with seeds that chose nothing."""
    rounds = problem.rounds
    grid = contestants(problem)
    first = course.run("grid", [Entry(c, CHOOSING[0], rounds) for c in grid])
    kept = _best(problem, by_contestant(first), _KEPT)
    again = course.run("again", [Entry(c, s, rounds) for c in kept for s in CHOOSING])
    means = by_contestant(again)
    best = _best(problem, means, 1)
    if problem.goal not in TO_TARGET:
        # The best two once more, after local steps of clients' own.
        order = sorted(best, key=lambda c: mean_reached(problem, means[c]))
        shared = [c for c in order if c.name not in (ALONE, "flix")][:2]
        adapted = [dataclasses.replace(c, adapt=True) for c in shared]
        best = [*best, *adapted]
    measured = course.run("measure", [Entry(c, s, rounds) for c in best for s in MEASURING])
    scores = by_contestant(measured)
    return {c.method: (c, scores[c]) for c in best}


def _best(
    problem: Problem, found: Mapping[Contestant, list[Score]], count: int
) -> list[Contestant]:
    """The best few of every method."""
    kept: dict[str, list[Contestant]] = {}
    for contestant in sorted(found, key=lambda c: mean_reached(problem, found[c])):
        own = kept.setdefault(contestant.method, [])
        if len(own) < count:
            own.append(contestant)
    return [c for several in kept.values() for c in several]


def value(problem: Problem, scores: Sequence[Score]) -> float:
    """What a goal counts, the mean over seeds; infinite where a target was not reached with some seed."""
    each = np.array([reached(problem, s) for s in scores])
    if problem.goal in TO_TARGET:
        return float(np.where(each < 1e8, each, np.inf).mean())
    return float(each.mean()) * (-1.0 if problem.greater else 1.0)


__all__ = ["BASELINE", "MEASURING", "course", "hindsight", "posed", "value"]
