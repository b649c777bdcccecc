"""How much better one method is than another, and whether a race can tell."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from holdfast.adviser.order import cost, standing
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.adviser.work import Score, reached
from holdfast.metrics.intervals import students

# Of two-sided intervals.
_SURE = 0.95
# Fewer clients than this are not taken for a sample of clients.
_MANY = 10


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


def difference(problem: Problem, ours: Sequence[Score], theirs: Sequence[Score]) -> Gap:
    """How much better the first are with the seeds that both have; infinite if the others never got there."""
    both = min(len(ours), len(theirs))
    ours, theirs = ours[:both], theirs[:both]
    a = np.array([reached(problem, s) for s in ours])
    b = np.array([reached(problem, s) for s in theirs])
    if problem.goal in TO_TARGET:
        if not ((a < 1e8) & (b < 1e8)).any():
            # Who got there with every seed, where the other did with none, is ahead without a doubt.
            clear = (a < 1e8).all() and not (b < 1e8).any()
            return Gap(math.inf, 0.0 if clear else math.inf)
        if any(s.failed for s in theirs):
            return Gap(math.inf, math.inf)
        return _paired(
            np.array(
                [cost(problem, t) - cost(problem, o) for o, t in zip(ours, theirs, strict=True)]
            )
        )
    if any(s.failed for s in (*ours, *theirs)) or not np.isfinite([*a, *b]).all():
        return Gap(math.inf, 0.0)
    if problem.goal == "worst_tenth":
        value = standing(problem, theirs) - standing(problem, ours)
        return Gap(value, _paired(b - a).margin)
    return quality_gap(problem, ours, theirs)


def quality_gap(problem: Problem, ours: Sequence[Score], theirs: Sequence[Score]) -> Gap:
    """Difference of the metric over held-out examples, with the deviation over clients and over seeds."""
    both = min(len(ours), len(theirs))
    ours, theirs = ours[:both], theirs[:both]
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
        rows = held.sum() * min(both, problem.draws)
        over_clients = float(sum(p * (1 - p) for p in shares) / rows)
    over_seeds = float(per_seed.var(ddof=1) / len(per_seed)) if len(per_seed) > 1 else 0.0
    if len(each) < 2 and not problem.greater:
        # One client's loss has no deviation that could be seen.
        return Gap(value, math.inf)
    factor = students(0.5 + _SURE / 2, max(2, min(len(each), 60) - 1))
    return Gap(value, factor * math.sqrt(over_clients + over_seeds))


def _paired(values: np.ndarray) -> Gap:
    n = len(values)
    if n < 2:
        return Gap(float(values.mean()), math.inf)
    # Seeds are few: 90 %, or three of them could tell nothing.
    factor = students(0.95, n - 1)
    return Gap(float(values.mean()), factor * float(values.std(ddof=1)) / math.sqrt(n))
