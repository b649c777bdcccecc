"""Successive halving: many methods and hyper-parameters for few rounds, the better ones for more.

What a stage decides is written down, so that advice that was stopped goes on with the same runs: how many
there is time for depends on the machine.
"""

import contextlib
import dataclasses
import json
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.adviser.candidates import (
    AROUND,
    BASELINE,
    SCOUTED,
    Candidate,
    Contestant,
    common,
    rates,
)
from holdfast.adviser.facts import Facts
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.adviser.work import ALONE, POOLED, Entry, Score, Work, do, reached
from holdfast.errors import HoldfastError
from holdfast.jobs import machine
from holdfast.jobs.local import LocalExecutor
from holdfast.jobs.parcel import open_here, opened, packed
from holdfast.jobs.queue import Job, outcomes
from holdfast.jobs.worker import settings as settings_of_jax
from holdfast.record.files import write_whole

# What of all rounds a stage has, and what of the time that is left when it begins.
_STAGES = {
    "scout": (1 / 8, 1.0),
    "first": (1 / 8, 0.3),
    "second": (3 / 8, 0.4),
    "final": (1.0, 0.75),
}
# Who is in the last stage, at most, and with how many seeds.
_FINALISTS, _SEEDS = 4, 3
# Local steps of its own that a client takes for nothing but a better model of its own.
_TUNED = 2  # of the finalists
# How often more or fewer clients take part, to see what would change.
CROWDS = (0.3, 3.0)

Say = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class Race:
    """All runs there were, and which stage asked for them.

    Args:
        scores: by run.
        stages: names, rounds and contestants of each, in order.
        finalists: who ran to the end.
        seeds: that they ran with.
        rate: FedAvg's best step size, around which others were tried; None where it was not searched.
        seconds: that all of it took, in this and earlier calls.
        short: in words, what there was no time for.
    """

    scores: dict[Entry, Score]
    stages: tuple[tuple[str, int, tuple[Contestant, ...]], ...]
    finalists: tuple[Contestant, ...]
    seeds: tuple[int, ...]
    rate: float | None
    seconds: float
    short: tuple[str, ...] = ()

    def last(self, contestant: Contestant) -> tuple[int, list[Score]]:
        """The longest runs of a contestant: how many rounds, and the score with each seed."""
        own = {
            e: s
            for e, s in self.scores.items()
            if e.contestant == contestant and e.participation == 1.0
        }
        rounds = max(e.rounds for e in own)
        return rounds, [
            s for e, s in sorted(own.items(), key=lambda p: p[0].seed) if e.rounds == rounds
        ]


class Course:
    """Where runs happen: on all cores, with what is known already read from the folder."""

    def __init__(
        self, problem: Problem, folder: Path, executor: LocalExecutor, jobs: int, say: Say
    ) -> None:
        self.problem, self.folder, self.executor, self.say = problem, folder, executor, say
        self.jobs = jobs
        self._name = uuid.uuid4().hex
        self._work = Work(problem, folder / "runs", settings_of_jax())
        self.scores: dict[Entry, Score] = {}
        self._parcel = folder / f"parcel-{self._name}"

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Workers are sent the problem once."""
        name, parcel = self._name, self._parcel
        parcel.write_bytes(packed(self._work, same_files=True))
        self.executor.grow(self.jobs, lambda: opened(name, parcel))
        try:
            with open_here(self._name, self._work):
                yield
        finally:
            parcel.unlink(missing_ok=True)

    def run(self, stage: str, entries: Sequence[Entry]) -> dict[Entry, Score]:
        """The scores of these runs; those that are known are not run again."""
        wanted = [e for e in dict.fromkeys(entries) if e not in self.scores]
        for entry in list(wanted):
            if (found := self._read(entry)) is not None:
                self.scores[entry] = found
                wanted.remove(entry)
        jobs = [
            Job(do, (self._name, self._parcel, e), float(e.rounds), _program(e)) for e in wanted
        ]
        self.say(stage, 0, len(jobs))
        for done, outcome in enumerate(outcomes(jobs, self.executor), 1):
            if outcome.error is not None:
                raise outcome.error
            entry = wanted[outcome.number]
            self.scores[entry] = pickle.loads(outcome.value)
            self._write(entry, self.scores[entry])
            self.say(stage, done, len(jobs))
        return {e: self.scores[e] for e in entries}

    def _file(self, entry: Entry) -> Path:
        crowd = "" if entry.participation == 1.0 else f"-times-{entry.participation:g}"
        adapts = "-adapted" if entry.contestant.adapt else ""
        return (
            self.folder
            / "scores"
            / f"{entry.contestant.folder}{adapts}{crowd}-{entry.seed}-{entry.rounds}.json"
        )

    def _write(self, entry: Entry, found: Score) -> None:
        self._file(entry).parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file(entry), json.dumps(dataclasses.asdict(found)))

    def _read(self, entry: Entry) -> Score | None:
        if not self._file(entry).exists():
            return None
        values: dict[str, Any] = json.loads(self._file(entry).read_text())
        plain: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return Score(**plain)


def _program(entry: Entry) -> Any:
    # Numbers compile nothing; local steps after training are none of the program's.
    names = tuple(name for name, _ in entry.contestant.arguments)
    return entry.contestant.name, names, entry.participation


def race(
    problem: Problem,
    facts: Facts,
    candidates: Sequence[Candidate],
    folder: Path,
    seconds: float | None,
    jobs: int | None,
    say: Say,
) -> Race:
    """Find out; `folder` has what an earlier call found, which is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = _Plan(folder / "race.json", seconds)
    count = jobs or min(machine.cores(), machine.room_for_processes(as_this_one=True))
    with LocalExecutor(1) as executor:
        course = Course(problem, folder, executor, count, say)
        with course.open():
            return _stages(course, plan, facts, candidates)


class _Plan:
    """What was decided, kept in a file; and how much time is left."""

    def __init__(self, file: Path, seconds: float | None) -> None:
        self._file, self._seconds = file, seconds
        self._known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self._before = float(self._known.get("seconds", 0.0))
        self._began = time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds, in this and earlier calls."""
        return self._before + time.perf_counter() - self._began

    def decided(self, what: str, decide: Callable[[], Any]) -> Any:
        """A decision, or what was decided before."""
        if what not in self._known:
            self._known[what] = decide()
        self._known["seconds"] = self.spent
        write_whole(self._file, json.dumps(self._known))
        return self._known[what]

    def room(self, share: float, each: float, cores: int) -> int:
        """How many runs of so many seconds there is time for in a stage."""
        if self._seconds is None:
            return 10**6
        left = share * (self._seconds - self.spent)
        return max(0, int(left * cores / max(each, 1e-6)))


def _stages(course: Course, plan: _Plan, facts: Facts, candidates: Sequence[Candidate]) -> Race:
    problem, cores = course.problem, course.jobs
    horizon = problem.rounds
    length = {name: max(2, round(share * horizon)) for name, (share, _) in _STAGES.items()}
    length["final"] = horizon
    shared, short = common(facts), []
    stages: list[tuple[str, int, tuple[Contestant, ...]]] = []

    def ranked(found: dict[Entry, Score]) -> list[Contestant]:
        """Best first, by the mean over seeds."""
        each: dict[Contestant, list[float]] = {}
        for entry, score in found.items():
            each.setdefault(entry.contestant, []).append(reached(problem, score))
        return sorted(each, key=lambda c: float(np.mean(each[c])))

    def until(contestant: Contestant, stage: str, times: float = 1.0) -> int:
        """Rounds of a stage; fewer for who sends so much that a run's megabytes are spent before."""
        if problem.megabytes is None or contestant.name in (ALONE, POOLED):
            return length[stage]
        plain = dataclasses.replace(contestant, adapt=False)
        own = [
            s for e, s in course.scores.items() if e.contestant == plain and e.participation == 1.0
        ]
        sent = [np.mean(s.bytes) for s in own if s.bytes]
        if not sent:
            return length[stage]
        most = problem.megabytes * 1e6 / (float(np.mean(sent)) * times)
        return max(1, min(length[stage], int(most)))

    def stage(name: str, who: Sequence[Contestant]) -> list[Contestant]:
        stages.append((name, length[name], tuple(who)))
        return ranked(course.run(name, [Entry(c, 0, until(c, name)) for c in who]))

    # FedAvg's step size, which is where the others begin.
    base = next(c for c in candidates if c.name == BASELINE)
    scouts = base.contestants(rates(problem, SCOUTED), shared)
    best = stage("scout", scouts)[0]
    if all(s.failed for s in course.scores.values()):
        raise HoldfastError(
            "advise: FedAvg returned no finite number at any step size from a tenth to ten times the given; "
            "look at the data, or give another learning_rate.",
            about=("local", "learning_rate"),
        )
    cost = max(1e-4, max(s.per_round for s in course.scores.values()))
    around = (
        rates(problem, AROUND, best.learning_rate) if best.learning_rate is not None else [None]
    )

    # The likeliest values of every method first, so that what there is no time for is the unlikelier.
    others = [c for c in candidates if c.name != BASELINE]
    waves = [c.contestants(around, shared) for c in others]
    first = [
        wave[k] for k in range(max(map(len, waves), default=0)) for wave in waves if k < len(wave)
    ]
    # Every method is traced and compiled once per worker.
    room = plan.decided(
        "first", lambda: plan.room(_STAGES["first"][1], length["first"] * cost * 1.2 + 0.25, cores)
    )
    if room < len(first):
        short.append(f"{len(first) - max(room, len(others))} of {len(first)} values were not tried")
    first = first[: max(room, len(others))]
    order = stage("first", first)
    kept = ranked({e: s for e, s in course.scores.items() if not s.failed})

    # The best of every method, then the best of all.
    seeds_of_methods = _best_of_each(kept)
    third = [*seeds_of_methods, *(c for c in kept if c not in seeds_of_methods)]
    third = third[: max(len(seeds_of_methods), -(-len(order) // 3) + 2)]
    room = plan.decided(
        "second",
        lambda: plan.room(_STAGES["second"][1], length["second"] * cost * 1.2 + 0.15, cores),
    )
    if room < len(third):
        short.append(f"{len(third) - max(room, 3)} that did well in the first stage had no second")
    second = stage("second", _with_baseline(third[: max(room, 3)], best))
    finalists = _with_baseline(_best_of_each(second), best)

    # To the end, several times: who stays must be told from who was lucky.
    each = horizon * cost * 1.2 + 0.2
    count, seeds = plan.decided("final", lambda: _final(plan, each, cores, len(finalists)))
    if seeds < _SEEDS:
        short.append(f"the last stage has {seeds} seed{'s' * (seeds > 1)}, not {_SEEDS}")
    chosen = finalists[:count]
    if not any(c.name == BASELINE for c in chosen):
        chosen = [*chosen[:-1], next(c for c in finalists if c.name == BASELINE)]
    draws = tuple(range(seeds))
    ends = _ends(problem, best, facts)
    entries = [Entry(c, s, until(c, "final")) for c in chosen for s in draws]
    stages.append(("final", horizon, tuple(chosen)))
    course.run("final", [*entries, *(Entry(c, s, r) for c, r in ends for s in draws)])
    if problem.goal not in TO_TARGET and plan.decided(
        "adapted", lambda: plan.room(0.5, each, cores) >= 2
    ):
        tuned = ranked({e: course.scores[e] for e in entries})[:_TUNED]
        personal = [dataclasses.replace(c, adapt=True) for c in tuned if c.name != "flix"]
        course.run("adapted", [Entry(c, s, until(c, "final")) for c in personal for s in draws])
        chosen = [*chosen, *personal]
    if plan.decided("crowds", lambda: plan.room(1.0, each, cores) >= 2 * len(CROWDS)):
        top = ranked({e: course.scores[e] for e in entries})[:2]
        for times in CROWDS:
            if problem.with_participation(times) is not None:
                course.run("crowds", [Entry(c, 0, until(c, "final", times), times) for c in top])
    else:
        short.append("what changes with more or fewer clients in a round was not tried")
    plan.decided("over", lambda: True)
    return Race(
        dict(course.scores),
        tuple(stages),
        tuple(chosen),
        draws,
        best.learning_rate,
        plan.spent,
        tuple(short),
    )


def _final(plan: _Plan, each: float, cores: int, finalists: int) -> tuple[int, int]:
    """How many run to the end, and with how many seeds: three of each, then fewer of both."""
    room = plan.room(_STAGES["final"][1], each, cores)
    for count, seeds in ((_FINALISTS, _SEEDS), (3, _SEEDS), (3, 2), (2, 2)):
        # Two more for the ends.
        if room >= (min(count, finalists) + 2) * seeds:
            return min(count, finalists), seeds
    return min(2, finalists), 2


def _best_of_each(ranked: Sequence[Contestant]) -> list[Contestant]:
    best: dict[str, Contestant] = {}
    for contestant in ranked:
        best.setdefault(contestant.name, contestant)
    return list(best.values())


def _with_baseline(chosen: Sequence[Contestant], baseline: Contestant) -> list[Contestant]:
    return [*chosen] if any(c.name == BASELINE for c in chosen) else [*chosen, baseline]


def _ends(problem: Problem, best: Contestant, facts: Facts) -> list[tuple[Contestant, int]]:
    """Alone and in one place, with about the work that a client has in the race, and three times that."""
    turns = max(3, round(problem.rounds * facts.participation))
    lengths = sorted({min(problem.rounds, turns), min(problem.rounds, max(10, turns))})
    return [
        (Contestant(name, (), best.learning_rate), length)
        for name in (ALONE, POOLED)
        for length in lengths
    ]
