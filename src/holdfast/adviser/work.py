"""One run of a race, in whatever process, and what comes of it in plain values."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.adviser.candidates import Contestant
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.cohorts import Everyone
from holdfast.core.local import Local
from holdfast.engine.simulate import Run, simulate
from holdfast.errors import RoundFailedError
from holdfast.evaluate.evaluators import Personal
from holdfast.jobs.parcel import opened, packed
from holdfast.jobs.worker import one_run, use_settings
from holdfast.record.checkpoint import Checkpoint

# The two ends of the scale, between which methods that federate are.
ALONE, POOLED = "local_only", "centralised"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run: who, with which seed, how far, and with how many times the given clients in a round.

    The seed also says which examples are held out.
    """

    contestant: Contestant
    seed: int
    rounds: int
    participation: float = 1.0


@dataclasses.dataclass(frozen=True)
class Score:
    """What a run came to on held-out examples.

    Args:
        quality: the metric over all held-out examples, each predicted by the model its client would use.
        clients: the same of every client that has some.
        held: how many each of them has.
        curve: of the server's model after every round.
        bytes: that travelled in every round.
        seconds: of every round, without compiling.
        failed: why it ended early; empty if it did not.
        losses: of every client that has held-out examples.
    """

    quality: float
    clients: tuple[float, ...] = ()
    held: tuple[int, ...] = ()
    curve: tuple[float, ...] = ()
    bytes: tuple[int, ...] = ()
    seconds: tuple[float, ...] = ()
    failed: str = ""
    losses: tuple[float, ...] = ()

    def worst_tenth(self, greater: bool) -> float:
        """Mean of the worst tenth of clients."""
        return worst_tenth(self.clients, greater) if self.clients else self.quality

    @property
    def per_round(self) -> float:
        """Seconds of a round, the median."""
        return float(np.median(self.seconds)) if self.seconds else 0.0

    def spent(self, rounds: float) -> tuple[float, float]:
        """Megabytes and seconds of so many rounds."""
        whole, part = int(rounds), rounds - int(rounds)
        parts = [
            sum(each[:whole]) + part * sum(each[whole : whole + 1])
            for each in (self.bytes, self.seconds)
        ]
        return parts[0] / 1e6, parts[1]

    def rounds_to(self, target: float, greater: bool) -> float:
        """The first round at which the server's model is there; infinite if none is."""
        values = np.asarray(self.curve)
        there = np.flatnonzero(values >= target if greater else values <= target)
        return float(there[0] + 1) if len(there) else float("inf")

    def crossed(self, target: float, greater: bool) -> float:
        """The same between two rounds: runs that arrive in one round are told apart by how they did."""
        values, found = np.asarray(self.curve), self.rounds_to(target, greater)
        if not np.isfinite(found):
            return found
        first = int(found) - 1
        if first == 0 or not np.isfinite(values[first - 1]):
            return float(first + 1)
        before, after = values[first - 1], values[first]
        return float(first + (target - before) / (after - before))


def worst_tenth(values: Any, greater: bool) -> float:
    """Mean of the worst tenth of these."""
    ordered = np.sort(values)[:: 1 if greater else -1]
    return float(ordered[: -(-len(ordered) // 10)].mean())


@dataclasses.dataclass(frozen=True)
class Work:
    """What all runs of a race share, and where they are saved."""

    problem: Problem
    folder: Path
    settings: dict[str, Any]


def do(name: str, contents: Any, entry: Entry) -> bytes:
    """One run, from its last save if there is one: a `Score`, packed."""
    with one_run:
        work: Work = opened(name, contents)
        use_settings(work.settings)
        return packed(score(work, entry))


def score(work: Work, entry: Entry) -> Score:
    """Carry a run out and judge it."""
    problem, who = _as_run(work.problem.drawn(entry.seed), entry), entry.contestant
    # Who adapts after training trains like who does not, and goes on from the same saves.
    trained = dataclasses.replace(who, adapt=False).algorithm()
    local = who.local(problem.local)
    given = problem.experiment(trained, local, entry.seed)
    crowd = "" if entry.participation == 1.0 else f"-times-{entry.participation:g}"
    store = Checkpoint(
        work.folder / f"{who.folder}{crowd}" / f"seed-{entry.seed}", every=10**9, keep=1
    )
    began = time.perf_counter()
    try:
        run = simulate(given, rounds=entry.rounds, checkpoint=store, progress=False)
    except RoundFailedError as error:
        worst = 0.0 if problem.greater else float("inf")
        return Score(worst, failed=str(error), seconds=(time.perf_counter() - began,))
    if run.state.round > entry.rounds:
        # A save of a longer run is no answer to what a shorter one comes to.
        run = simulate(given, rounds=entry.rounds, progress=False)
    return judged(problem, run, local if who.adapt else None)


def _as_run(problem: Problem, entry: Entry) -> Problem:
    if entry.contestant.name in (ALONE, POOLED):
        # Nothing travels, so that nobody need wait for a turn.
        return dataclasses.replace(problem, cohort=Everyone())
    if entry.participation != 1.0:
        found = problem.with_participation(entry.participation)
        assert found is not None
        return found
    return problem


def judged(problem: Problem, run: Run, adapt: Local | None = None) -> Score:
    """A run by what its clients would use, after these local steps of their own if any, on examples it was
    not trained on."""
    history, metric = run.history, f"validation_{problem.metric}"
    each = Personal(problem.held_out, adapt=adapt).each(run.view)
    held = [int(problem.held_out.sizes[i]) for i in each]
    worst = 0.0 if problem.greater else float("inf")
    # A client whose model predicts no number has none that could be used.
    measured = [found[problem.metric] for found in each.values()]
    values = [worst if v is None or not np.isfinite(v) else float(v) for v in measured]
    quality = float(np.average(values, weights=held))
    losses = [found["loss"] for found in each.values()]
    records = list(history)
    return Score(
        quality,
        tuple(values),
        tuple(held),
        tuple(float(record[metric]) for record in records),
        tuple(int(record["bytes_down"] + record["bytes_up"]) for record in records),
        tuple(float(record["seconds"]) for record in records),
        losses=tuple(float("inf") if v is None or not np.isfinite(v) else float(v) for v in losses),
    )


def reached(problem: Problem, score: Score) -> float:
    """What a run is ranked by, the smaller the better."""
    if score.failed:
        return float("inf")
    sign = -1.0 if problem.greater else 1.0
    if problem.goal in TO_TARGET:
        assert problem.target is not None
        rounds = score.rounds_to(problem.target, problem.greater)
        if not np.isfinite(rounds):
            # Behind all that got there, in the order of how near they came.
            best = max(score.curve) if problem.greater else min(score.curve)
            return 1e9 + sign * best
        megabytes, seconds = score.spent(rounds)
        return {"rounds": rounds, "megabytes": megabytes, "seconds": seconds}[problem.goal]
    value = score.quality if problem.goal == "quality" else score.worst_tenth(problem.greater)
    return sign * value if np.isfinite(value) else float("inf")
