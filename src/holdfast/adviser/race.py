"""Successive halving: many methods and hyper-parameters for few rounds, the better ones for more.

Then values beside the best ones, the best of every method to the end with several seeds, and more seeds for
those that cannot be told apart, for as long as there is time.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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
from holdfast.adviser.course import Course, Say
from holdfast.adviser.facts import Facts
from holdfast.adviser.gaps import Gap, difference
from holdfast.adviser.order import by_contestant, ordered, standing
from holdfast.adviser.plan import Plan
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.adviser.work import ALONE, POOLED, Entry, Score
from holdfast.errors import HoldfastError
from holdfast.jobs import machine
from holdfast.jobs.local import LocalExecutor

# What of all rounds a stage has, and what of the time that is left when it begins.
_STAGES = {
    "scout": (1 / 8, 1.0),
    "first": (1 / 8, 0.3),
    "second": (3 / 8, 0.35),
    "refine": (3 / 8, 0.3),
    "semifinal": (1.0, 0.35),
    "final": (1.0, 0.7),
    "adapted": (1.0, 0.5),
    "crowds": (1.0, 0.4),
    "more": (1.0, 0.8),
}
# How often values beside the best are tried.
_PASSES = 3
# Methods in the semifinal; values of each and seeds, in its first turn and its second.
_SEMIFINALISTS, _SEMIFINAL = 5, ((4, 2), (2, 5))
# Methods beside whose best values others are tried by whole runs.
_WATCHED = 3
# Who is in the last stage, at most, with how many seeds, and with how many where they cannot be told apart.
_FINALISTS, _SEEDS, _MOST_SEEDS = 5, 3, 15
# Seeds of the last stage where there is time for it, so that every example judges once.
_JUDGES = 5
# A difference so small, with what is uncertain of it, is as good as none: a ratio's logarithm, or accuracy.
_EQUAL = {"quality": 0.005, "worst_tenth": 0.005}
_EQUAL_RATIO = 0.1
# With how many draws values are compared for few rounds, where there is time.
_DRAWS = {"scout": 2, "first": 2, "second": 3}
# Local steps of its own that a client takes for nothing but a better model of its own.
_TUNED = 2  # of the finalists
# How often more or fewer clients take part, to see what would change.
CROWDS = (0.3, 3.0)
# Of a run, besides its rounds: reading its save, tracing, judging.
_OVERHEAD = 0.2


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
        ended: rounds of whole runs, by who ran to the end; fewer than all where megabytes are spent before.
    """

    scores: dict[Entry, Score]
    stages: tuple[tuple[str, int, tuple[Contestant, ...]], ...]
    finalists: tuple[Contestant, ...]
    seeds: tuple[int, ...]
    rate: float | None
    seconds: float
    short: tuple[str, ...] = ()
    ended: Mapping[Contestant, int] = dataclasses.field(default_factory=dict)

    def last(self, contestant: Contestant) -> tuple[int, list[Score]]:
        """The whole runs of a contestant, or the longest there are: how many rounds, and the score with each
        seed."""
        own = {
            e: s
            for e, s in self.scores.items()
            if e.contestant == contestant and e.participation == 1.0
        }
        rounds = self.ended.get(contestant) or max(e.rounds for e in own)
        return rounds, [
            s for e, s in sorted(own.items(), key=lambda p: p[0].seed) if e.rounds == rounds
        ]


def race(
    problem: Problem,
    facts: Facts,
    candidates: Sequence[Candidate],
    folder: Path,
    seconds: float | None,
    jobs: int | None,
    say: Say,
    began: float | None = None,
) -> Race:
    """Find out; `folder` has what an earlier call found, which is not run again.

    Time counts from `began`, by `time.perf_counter`; from now unless given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    since = time.perf_counter() if began is None else began
    plan = Plan(folder / "race.json", seconds, since, [c.name for c in candidates])
    count = jobs or min(machine.cores(), machine.room_for_processes(as_this_one=True))
    with LocalExecutor(1) as executor:
        course = Course(problem, folder, executor, count, say)
        with course.open():
            return _Stages(course, plan, facts, candidates).run()


class _Stages:
    """The stages of a race, one after another."""

    def __init__(
        self, course: Course, plan: Plan, facts: Facts, candidates: Sequence[Candidate]
    ) -> None:
        self.course, self.plan, self.facts = course, plan, facts
        self.candidates, self.problem = candidates, course.problem
        horizon = self.problem.rounds
        self.length = {
            name: min(horizon, max(2, round(share * horizon)))
            for name, (share, _) in _STAGES.items()
        }
        self.shared = common(facts)
        self.stages: list[tuple[str, int, tuple[Contestant, ...]]] = []
        self.short: list[str] = []
        # Of few rounds, by how many those were; and with how many seeds.
        self.found: dict[int, dict[Entry, Score]] = {}
        self.draws: dict[str, int] = {}
        self.cost = 0.0  # seconds of a round

    def run(self) -> Race:
        best = self._scout()
        self._first(best)
        good = self._refine(self._second(best))
        finalists = self._semifinal(good, best)
        chosen, seeds = self._final(finalists, best)
        personal = self._adapted(chosen, seeds)
        self._crowds(chosen, seeds)
        self._more([*chosen, *personal], seeds)
        self.plan.decided("over", lambda: True)
        return Race(
            dict(self.course.scores),
            tuple(self.stages),
            (*chosen, *personal),
            tuple(range(seeds)),
            best.learning_rate,
            self.plan.spent,
            tuple(self.short),
            {c: self._until(c, "final") for c in (*chosen, *personal)},
        )

    def _scout(self) -> Contestant:
        """FedAvg's step size, which is where the others begin."""
        base = next(c for c in self.candidates if c.name == BASELINE)
        scouts = base.contestants(rates(self.problem, SCOUTED), self.shared)
        best = self._stage("scout", scouts, _DRAWS["scout"])[0]
        if all(s.failed for s in self.course.scores.values()):
            raise HoldfastError(
                "advise: FedAvg returned no finite number at any step size from a tenth to ten times the "
                "given; look at the data, or give another learning_rate.",
                about=("local", "learning_rate"),
            )
        self.cost = max(1e-4, max(s.per_round for s in self.course.scores.values()))
        return best

    def _first(self, best: Contestant) -> None:
        """Every method with several values, for a few rounds."""
        rate = best.learning_rate
        around = [None] if rate is None else rates(self.problem, AROUND, rate)
        others = [c for c in self.candidates if c.name != BASELINE]
        # The likeliest values of every method first, so that what there is no time for is the unlikelier.
        waves = [c.contestants(around, self.shared) for c in others]
        longest = max(map(len, waves), default=0)
        first = [wave[k] for k in range(longest) for wave in waves if k < len(wave)]
        # Every method is traced and compiled once per worker, so a run costs a little more here.
        room = max(self._room("first", 0.05), len(others))
        if room < len(first):
            self.short.append(f"{len(first) - room} of {len(first)} values were not tried")
        self.draws["first"] = max(1, min(_DRAWS["first"], room // max(1, len(first))))
        self._stage("first", first[:room], self.draws["first"])

    def _second(self, best: Contestant) -> list[Contestant]:
        """The best of every method, since some begin slowly, and the best of all."""
        kept = self._ranked("first")
        leaders = _best_of_each(kept)
        third = [*leaders, *(c for c in kept if c not in leaders)]
        third = third[: max(len(leaders), -(-len(kept) // 3) + 2)]
        room = max(self._room("second"), 3)
        if room < len(third):
            missing = len(third) - room
            self.short.append(f"{missing} that did well in the first stage had no second")
        third = _with_baseline(third[:room], best)
        self.draws["second"] = max(1, min(_DRAWS["second"], room // len(third)))
        self._stage("second", third, self.draws["second"])
        return self._ranked("second")

    def _refine(self, order: list[Contestant]) -> list[Contestant]:
        """Values beside the best of the leading methods, as long as they are better and there is time."""
        for turn in range(_PASSES):
            known = set(order)
            leaders = _best_of_each(order)[: _FINALISTS + 1]
            new = [n for c in leaders for n in c.neighbours() if n not in known]
            room = self._room("refine", turn=turn)
            draws = self.draws["second"]
            if not new or room < 2 * draws:
                break
            self._stage("refine", list(dict.fromkeys(new))[: room // draws], draws)
            order = self._ranked("second")
            if not set(_best_of_each(order)) - set(leaders):
                break
        return order

    def _semifinal(self, order: list[Contestant], best: Contestant) -> list[Contestant]:
        """One contestant of each method, by whole runs: several values of each with two draws, values beside
        the best of the leading methods, and the better ones with as many draws as there is time for."""
        leaders = [c.method for c in _best_of_each(order)][:_SEMIFINALISTS]
        if best.method not in leaders:
            leaders.append(best.method)
        order = [c for c in _with_baseline(order, best) if c.method in leaders]
        length, entered = self._long_enough(order), False
        for turn, (values, most) in enumerate(_SEMIFINAL):
            room = self._room("semifinal", turn=turn, rounds=length)
            values = min(values, room // (most * len(leaders)))
            if values < 1:
                break
            few = [c for m in leaders for c in [o for o in order if o.method == m][:values]]
            if turn == 0:
                room -= len(few) * most
                beside = [n for c in _best_of_each(order)[:_WATCHED] for n in c.neighbours()]
                beside = [c for c in dict.fromkeys(beside) if c not in few]
                few += beside[: max(0, room // most)]
            self.stages.append(("semifinal", length, tuple(few)))
            entries = [
                Entry(c, s, self._until(c, "semifinal", rounds=length))
                for c in few
                for s in range(most)
            ]
            order = ordered(self.problem, by_contestant(self.course.run("semifinal", entries)))
            entered = True
        if not entered:
            return _with_baseline(_best_of_each(order), best)
        return _best_of_each(order)

    def _long_enough(self, order: list[Contestant]) -> int:
        """Rounds of runs that tell who is first: all, or until a target is reached with rounds to spare."""
        problem, length = self.problem, self.length["semifinal"]
        spare = {"rounds": 1.75, "megabytes": 3.0, "seconds": 3.0}.get(problem.goal)
        if spare is None or problem.target is None:
            return length
        at = self.length["second"]
        scores = by_contestant(self.found[at])[order[0]]
        rounds = [s.rounds_to(problem.target, problem.greater) for s in scores]
        if not np.isfinite(rounds).all():
            return length
        return min(length, max(at, math.ceil(spare * float(np.mean(rounds)))))

    def _final(self, finalists: list[Contestant], best: Contestant) -> tuple[list[Contestant], int]:
        """To the end, several times: who stays must be told from who was lucky."""
        room = self._room("final")
        count, seeds = min(2, len(finalists)), 2
        draws = max(_SEEDS, min(self.problem.draws, _JUDGES))
        for most, each in (
            (_FINALISTS, draws),
            (_FINALISTS, _SEEDS),
            (4, _SEEDS),
            (3, _SEEDS),
            (3, 2),
        ):
            # Two more for the ends.
            if room >= (min(most, len(finalists)) + 2) * each:
                count, seeds = min(most, len(finalists)), each
                break
        if seeds < _SEEDS:
            self.short.append(f"the last stage has {seeds} seeds, not {_SEEDS}")
        chosen = finalists[:count]
        if not any(c.name == BASELINE for c in chosen):
            chosen = [*chosen[:-1], next(c for c in finalists if c.name == BASELINE)]
        self.stages.append(("final", self.problem.rounds, tuple(chosen)))
        entries = [Entry(c, s, self._until(c, "final")) for c in chosen for s in range(seeds)]
        ends = _ends(self.problem, best, self.facts)
        apart = [Entry(c, s, r) for c, r in ends for s in range(min(seeds, _SEEDS))]
        self.course.run("final", [*entries, *apart])
        return chosen, seeds

    def _adapted(self, chosen: list[Contestant], seeds: int) -> list[Contestant]:
        """The best two by models of clients' own, after local steps that nobody else hears of."""
        if self.problem.goal in TO_TARGET or self._room("adapted") < 2 * seeds:
            return []
        best = self._ordered(self._finals(chosen, seeds))[:_TUNED]
        personal = [dataclasses.replace(c, adapt=True) for c in best if c.name != "flix"]
        self._run("adapted", personal, range(seeds))
        return personal

    def _crowds(self, chosen: list[Contestant], seeds: int) -> None:
        """The best two with more and with fewer clients in a round."""
        if self._room("crowds") < 2 * len(CROWDS):
            self.short.append("what changes with more or fewer clients in a round was not tried")
            return
        top = self._ordered(self._finals(chosen, seeds))[:2]
        for times in CROWDS:
            if self.problem.with_participation(times) is not None:
                entries = [Entry(c, 0, self._until(c, "crowds", times), times) for c in top]
                self.course.run("crowds", entries)

    def _more(self, chosen: list[Contestant], seeds: int) -> None:
        """More seeds for those that cannot be told from the best."""
        doubtful = list(chosen)
        for seed in range(seeds, _MOST_SEEDS):
            finals = by_contestant(self._finals(doubtful, seed))
            first, *others = sorted(finals, key=lambda c: standing(self.problem, finals[c]))
            tied = [
                c
                for c in others
                if self._is_open(difference(self.problem, finals[first], finals[c]))
            ]
            doubtful = [first, *tied]
            if not tied or self._room("more", turn=seed) < len(doubtful):
                break
            self._run("more", doubtful, (seed,))

    def _is_open(self, gap: Gap) -> bool:
        """Whether more runs could tell something of a difference: it is a tie, and maybe not a small one."""
        small = _EQUAL.get(self.problem.goal, _EQUAL_RATIO) if self.problem.greater else 0.0
        return gap.is_tie and abs(gap.value) + gap.margin > small

    def _finals(self, who: Sequence[Contestant], seeds: int) -> dict[Entry, Score]:
        entries = [Entry(c, s, self._until(c, "final")) for c in who for s in range(seeds)]
        return {e: self.course.scores[e] for e in entries}

    def _ordered(self, found: Mapping[Entry, Score]) -> list[Contestant]:
        return ordered(self.problem, by_contestant(found))

    def _room(
        self, stage: str, extra: float = 0.0, turn: int | None = None, rounds: int | None = None
    ) -> int:
        """How many runs of a stage there is time for; what was decided before stays decided."""
        each = (rounds or self.length[stage]) * self.cost * 1.2 + _OVERHEAD + extra
        name, share = stage if turn is None else f"{stage}-{turn}", _STAGES[stage][1]
        room: int = self.plan.decided(name, lambda: self.plan.room(share, each, self.course.jobs))
        return room

    def _stage(self, name: str, who: Sequence[Contestant], draws: int) -> list[Contestant]:
        """Run these with so many seeds; best first."""
        self.stages.append((name, self.length[name], tuple(who)))
        found = self._run(name, who, range(draws))
        self.found.setdefault(self.length[name], {}).update(found)
        return self._ordered(found)

    def _run(
        self, stage: str, who: Sequence[Contestant], seeds: Sequence[int]
    ) -> dict[Entry, Score]:
        entries = [Entry(c, s, self._until(c, stage)) for c in who for s in seeds]
        return self.course.run(stage, entries)

    def _ranked(self, stage: str) -> list[Contestant]:
        """Best first, of all that got through as many rounds as a stage has, with as many seeds."""
        found = by_contestant(self.found[self.length[stage]])
        draws = self.draws[stage]
        through = {
            c: s[:draws]
            for c, s in found.items()
            if len(s) >= draws and not any(one.failed for one in s)
        }
        if not through:
            raise HoldfastError(
                f"advise: no method returned finite numbers for {self.length[stage]} rounds; give a smaller "
                f"learning_rate, or a clip.",
                about=("local", "learning_rate"),
            )
        return ordered(self.problem, through)

    def _until(
        self, contestant: Contestant, stage: str, times: float = 1.0, rounds: int | None = None
    ) -> int:
        """Rounds of a stage; fewer for who sends so much that a run's megabytes are spent before."""
        problem, length = self.problem, rounds or self.length[stage]
        if problem.megabytes is None or contestant.name in (ALONE, POOLED):
            return length
        plain = dataclasses.replace(contestant, adapt=False)
        scores = self.course.scores.items()
        own = [s for e, s in scores if e.contestant == plain and e.participation == 1.0]
        sent = [np.mean(s.bytes) for s in own if s.bytes]
        if not sent:
            return length
        # By the first run of it, so that the answer stays the same when there are more.
        most = problem.megabytes * 1e6 / (float(sent[0]) * times)
        return max(1, min(length, int(most)))


def _best_of_each(ranked: Sequence[Contestant]) -> list[Contestant]:
    best: dict[str, Contestant] = {}
    for contestant in ranked:
        best.setdefault(contestant.name, contestant)
    return list(best.values())


def _with_baseline(chosen: Sequence[Contestant], baseline: Contestant) -> list[Contestant]:
    return [*chosen] if any(c.name == BASELINE for c in chosen) else [*chosen, baseline]


def _ends(problem: Problem, best: Contestant, facts: Facts) -> list[tuple[Contestant, int]]:
    """Alone and in one place, for as many rounds as a client has turns in the race, and for at least ten."""
    turns = max(3, round(problem.rounds * facts.participation))
    lengths = sorted({min(problem.rounds, turns), min(problem.rounds, max(10, turns))})
    return [
        (Contestant(name, (), best.learning_rate), length)
        for name in (ALONE, POOLED)
        for length in lengths
    ]
