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
from holdfast.adviser.order import by_contestant
from holdfast.adviser.problem import TO_TARGET, Problem, problem
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
# Draws of test rows and partition where one has too few rows, which is where the standard error exceeds this.
DRAWS = 5
_UNCERTAIN = 0.005


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


def is_uncertain(problem: Problem, quality: float) -> bool:
    """Whether test rows are so few that the standard error of a quality exceeds half a point."""
    if problem.goal in TO_TARGET or not problem.greater:
        return False
    rows = len(np.unique(problem.held_out.order))
    if problem.goal == "worst_tenth":
        rows = max(1, rows // 10)
    return bool(np.sqrt(quality * (1 - quality) / rows) > _UNCERTAIN)


def redrawn(file: ExperimentFile, draw: int) -> ExperimentFile:
    """The file with other test rows and another partition; the first is the file itself."""
    if draw == 0:
        return file
    data, partition = file.values["data"], file.values["partition"]
    data = {"name": data} if isinstance(data, str) else data
    values = {**file.values, "data": {**data, "seed": draw}}
    if partition != "natural":
        values["partition"] = {**partition, "seed": draw}
    return dataclasses.replace(file, values=values)


@contextlib.contextmanager
def courses(problems: Sequence[Problem], folder: Path | None, name: str) -> Iterator[list[Course]]:
    """Where runs of each happen, on all cores."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        executor = stack.enter_context(LocalExecutor(1))
        jobs = min(machine.cores(), machine.room_for_processes(as_this_one=True))

        def say(stage: str, done: int, of: int) -> None:
            if done % 10 == 0 or done == of:
                print(f"\r{name}: {stage} {done} of {of} runs   ", end="", flush=True)

        found = []
        for number, problem in enumerate(problems):
            own = folder / f"draw-{number}" if number else folder
            own.mkdir(parents=True, exist_ok=True)
            found.append(Course(problem, own, executor, jobs, say))
            stack.enter_context(found[-1].open())
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
        order = sorted(best, key=lambda c: _reached(problem, means[c]))
        shared = [c for c in order if c.name not in (ALONE, "flix")][:2]
        adapted = [dataclasses.replace(c, adapt=True) for c in shared]
        best = [*best, *adapted]
    measured = course.run("measure", [Entry(c, s, rounds) for c in best for s in MEASURING])
    scores = by_contestant(measured)
    return {c.method: (c, scores[c]) for c in best}


def around(problem: Problem, labels: Sequence[str]) -> list[Contestant]:
    """The best of every method on the first draw, and the step sizes beside its own."""
    grid = contestants(problem)
    known = {c.label: c for c in grid}
    known |= {c.label: c for c in (dataclasses.replace(c, adapt=True) for c in grid)}
    found = []
    for label in labels:
        best = known[label]
        alike = [
            c
            for c in known.values()
            if (c.name, c.arguments, c.adapt) == (best.name, best.arguments, best.adapt)
        ]
        rates = sorted({float(c.learning_rate or 0) for c in alike})
        at = rates.index(float(best.learning_rate or 0))
        near = rates[max(0, at - 1) : at + 2]
        found += [c for c in alike if c.learning_rate in near]
    return found


def over_draws(
    problems: Sequence[Problem], courses: Sequence[Course], labels: Sequence[str]
) -> dict[str, tuple[Contestant, list[Score]]]:
    """The best step size of every method by all draws' tests, and what it comes to with a seed on each that
    chose nothing."""
    tried = around(problems[0], labels)
    found = by_contestant(
        measured_over_draws(problems, courses, tried, [CHOOSING[0]] * len(problems))
    )
    best = _best(problems[0], found, 1)
    scores = by_contestant(measured_over_draws(problems, courses, best, MEASURING))
    return {c.method: (c, scores[c]) for c in best}


def measured_over_draws(
    problems: Sequence[Problem],
    courses: Sequence[Course],
    who: Sequence[Contestant],
    seeds: Sequence[int],
) -> dict[Entry, Score]:
    """A run of each on every draw, with a seed of its own; entries are told apart by the draw."""
    found = {}
    for draw, (at, course, seed) in enumerate(zip(problems, courses, seeds, strict=True)):
        entries = [Entry(c, seed, at.rounds) for c in who]
        runs = course.run(f"draw {draw}", entries)
        found.update({dataclasses.replace(e, seed=draw): score for e, score in runs.items()})
    return found


def _best(
    problem: Problem, found: Mapping[Contestant, list[Score]], count: int
) -> list[Contestant]:
    """The best few of every method."""
    kept: dict[str, list[Contestant]] = {}
    for contestant in sorted(found, key=lambda c: _reached(problem, found[c])):
        own = kept.setdefault(contestant.method, [])
        if len(own) < count:
            own.append(contestant)
    return [c for several in kept.values() for c in several]


def _reached(problem: Problem, scores: Sequence[Score]) -> float:
    return float(np.mean([reached(problem, s) for s in scores]))


def value(problem: Problem, scores: Sequence[Score]) -> float:
    """What a goal counts, the mean over seeds; infinite where a target was not reached with some seed."""
    each = np.array([reached(problem, s) for s in scores])
    if problem.goal in TO_TARGET:
        return float(np.where(each < 1e8, each, np.inf).mean())
    return float(each.mean()) * (-1.0 if problem.greater else 1.0)


__all__ = [
    "BASELINE",
    "DRAWS",
    "MEASURING",
    "courses",
    "hindsight",
    "is_uncertain",
    "measured_over_draws",
    "over_draws",
    "posed",
    "redrawn",
    "value",
]
