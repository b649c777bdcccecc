"""Who is ahead of whom by how much, and which differences a race cannot tell."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from holdfast.adviser.candidates import Contestant
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.adviser.race import Race
from holdfast.adviser.work import Score, reached

# Of two-sided intervals.
_SURE = 0.95
# Fewer clients than this are not taken for a sample of clients.
_MANY = 10
# Among methods that cannot be told apart and are as near as this, the plainest is advised.
_NEAR = {"rounds": 1.05, "megabytes": 1.05, "seconds": 1.05, "quality": 0.003, "worst_tenth": 0.003}
# The less a method asks of clients and server, the earlier.
_PLAIN = (
    "fedavg", "fedprox", "fedavgm", "fedadam", "fedavg_plus", "feddyn", "fedpvr", "scaffold", "feddc",
    "feddyn_plus", "scaffold_plus", "flix",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Gap:
    """How much better the one is than the other, and the half width of its 95 % interval.

    For goals that are counted until a target is reached it is a ratio, else a difference of the metric.
    """

    value: float
    margin: float

    @property
    def is_tie(self) -> bool:
        """Whether the race cannot tell them apart."""
        return not abs(self.value) > self.margin


@dataclasses.dataclass(frozen=True)
class Place:
    """A method in the ranking, with its best hyper-parameters.

    Args:
        contestant: who.
        value: what the goal counts, the mean over seeds; infinite if it was not reached.
        deviation: over seeds.
        rounds: that it ran.
        seeds: that it ran with.
        final: whether it ran to the end.
        behind: how far the best is ahead of it, the logarithm of a ratio for goals that are reached.
        quality: on held-out examples, by what clients would use.
        worst_tenth: the same of the worst tenth of clients.
        megabytes: of a round.
        failed: why it did not get through, if it did not with any seed.
    """

    contestant: Contestant
    value: float
    deviation: float
    rounds: int
    seeds: int
    final: bool
    behind: Gap | None
    quality: float
    worst_tenth: float
    megabytes: float
    failed: str = ""

    @property
    def is_tied(self) -> bool:
        """Whether it cannot be told from the best."""
        return self.final and self.behind is not None and self.behind.is_tie


def ranking(problem: Problem, race: Race) -> list[Place]:
    """All methods that ran, finalists first, each with its best hyper-parameters."""
    finals = {c: race.last(c)[1] for c in race.finalists}
    order = sorted(finals, key=lambda c: _mean(problem, finals[c]))
    best = finals[order[0]]
    places = []
    for contestant in order:
        gap = None if contestant == order[0] else difference(problem, best, finals[contestant])
        places.append(_place(problem, race, contestant, True, gap))
    seen = {c.method for c in order}
    rest: dict[str, Contestant] = {}
    others = [e.contestant for e in race.scores if e.contestant.method not in seen]
    others = [c for c in dict.fromkeys(others) if c.name not in ("local_only", "centralised")]

    def far(contestant: Contestant) -> tuple[float, float]:
        rounds, scores = race.last(contestant)
        return -rounds, _mean(problem, scores)

    for contestant in sorted(others, key=far):
        rest.setdefault(contestant.method, contestant)
    return [*places, *(_place(problem, race, c, False, None) for c in rest.values())]


def recommended(problem: Problem, places: Sequence[Place]) -> Place:
    """The best; of those that cannot be told from it and are as good as equal, the plainest."""
    best, near = places[0], _NEAR[problem.goal]

    def equal(place: Place) -> bool:
        if not place.is_tied or place.behind is None:
            return False
        gap = place.behind.value
        return gap <= (math.log(near) if problem.goal in TO_TARGET else near)

    def plain(place: Place) -> tuple[bool, int]:
        name = place.contestant.name
        return place.contestant.adapt, _PLAIN.index(name) if name in _PLAIN else len(_PLAIN)

    return min([best, *filter(equal, places)], key=plain)


def difference(problem: Problem, ours: Sequence[Score], theirs: Sequence[Score]) -> Gap:
    """How much better the first are, run with the same seeds; infinite if the others never got there."""
    a = np.array([reached(problem, s) for s in ours])
    b = np.array([reached(problem, s) for s in theirs])
    if problem.goal in TO_TARGET:
        there = (a < 1e8) & (b < 1e8)
        if not there.all():
            # Who got there with every seed, where the other did with none, is ahead without a doubt.
            clear = (a < 1e8).all() and not (b < 1e8).any()
            return Gap(math.inf, 0.0 if clear else math.inf)
        return _paired(np.log(b) - np.log(a))
    if any(s.failed for s in (*ours, *theirs)) or not np.isfinite([*a, *b]).all():
        return Gap(math.inf, 0.0)
    if problem.goal == "worst_tenth":
        return _paired(b - a)
    return quality_gap(problem, ours, theirs)


def quality_gap(problem: Problem, ours: Sequence[Score], theirs: Sequence[Score]) -> Gap:
    """Difference of the metric over held-out examples, with the deviation over clients and over seeds."""
    sign = 1.0 if problem.greater else -1.0
    per_seed = np.array([sign * (a.quality - b.quality) for a, b in zip(ours, theirs, strict=True)])
    held = np.asarray(ours[0].held, float)
    weights = held / held.sum()
    each = sign * np.mean(
        [np.subtract(a.clients, b.clients) for a, b in zip(ours, theirs, strict=True)], 0
    )
    value = float(weights @ each)
    if len(each) >= _MANY or not problem.greater:
        n = len(each)
        over_clients = float((weights**2 * (each - value) ** 2).sum()) * n / max(1, n - 1)
    else:
        # Of few clients rows are the sample; as if the two erred independently, which is cautious.
        shares = [np.mean([s.quality for s in some]) for some in (ours, theirs)]
        over_clients = float(sum(p * (1 - p) for p in shares) / held.sum())
    over_seeds = float(per_seed.var(ddof=1) / len(per_seed)) if len(per_seed) > 1 else 0.0
    factor = float(stats.t.ppf(0.5 + _SURE / 2, max(2, min(len(each), 60) - 1)))
    return Gap(value, factor * math.sqrt(over_clients + over_seeds))


def _paired(values: np.ndarray) -> Gap:
    n = len(values)
    if n < 2:
        return Gap(float(values.mean()), math.inf)
    # Seeds are few: 90 %, or three of them could tell nothing.
    factor = float(stats.t.ppf(0.95, n - 1))
    return Gap(float(values.mean()), factor * float(values.std(ddof=1)) / math.sqrt(n))


def _mean(problem: Problem, scores: Sequence[Score]) -> float:
    return float(np.mean([reached(problem, s) for s in scores]))


def _place(
    problem: Problem, race: Race, contestant: Contestant, final: bool, gap: Gap | None
) -> Place:
    rounds, scores = race.last(contestant)
    good = [s for s in scores if not s.failed]
    values = np.array([reached(problem, s) for s in scores])
    if problem.goal in TO_TARGET:
        values = np.where(values < 1e8, values, np.inf)
    else:
        values = values * (-1.0 if problem.greater else 1.0)
    several = len(values) > 1 and np.isfinite(values).all()
    return Place(
        contestant,
        float(values.mean()) if np.isfinite(values).all() else math.inf,
        float(values.std(ddof=1)) if several else 0.0,
        rounds,
        len(scores),
        final,
        gap,
        float(np.mean([s.quality for s in good])) if good else math.nan,
        float(np.mean([s.worst_tenth(problem.greater) for s in good])) if good else math.nan,
        float(np.mean([np.mean(s.bytes) for s in good]) / 1e6) if good else math.nan,
        "" if good else scores[0].failed,
    )
