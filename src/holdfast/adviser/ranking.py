"""Who is ahead of whom by how much, and which differences a race cannot tell."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from holdfast.adviser.candidates import Contestant
from holdfast.adviser.gaps import Gap, difference
from holdfast.adviser.order import standing
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.adviser.race import Race
from holdfast.adviser.work import reached

# Among methods that cannot be told apart and are as near as this, the plainest is advised.
_NEAR = {"rounds": 1.05, "megabytes": 1.05, "seconds": 1.05, "quality": 0.003, "worst_tenth": 0.003}
# The less a method asks of clients and server, the earlier.
_PLAIN = (
    "fedavg", "fedprox", "fedavgm", "fedadam", "fedavg_plus", "feddyn", "fedpvr", "scaffold", "feddc",
    "feddyn_plus", "scaffold_plus", "flix",
)  # fmt: skip


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
    order = sorted(finals, key=lambda c: standing(problem, finals[c]))
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
        return -rounds, standing(problem, scores)

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
