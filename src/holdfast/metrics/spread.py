"""A figure over seeds, and which of several is best."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure over seeds: its mean and standard deviation, over those that reached it.

    Args:
        values: one per seed; None of a seed that did not get there.
        spent: one per seed, where what it takes is counted: what it had spent when it stopped. A seed
            that did not get there needs more than that.
        splits: one per value, the split of the data it is of; empty where there is one split.

    Example:
        >>> some = Spread((60, None, 64), spent=(100, 100, 100))
        >>> some.mean, some.more_than
        (None, 74.66666666666667)
    """

    values: tuple[float | None, ...]
    spent: tuple[float, ...] = ()
    splits: tuple[int, ...] = ()

    def per(self, unit: float) -> "Spread":
        """The same in a larger unit."""
        values = tuple(None if v is None else v / unit for v in self.values)
        return Spread(values, tuple(v / unit for v in self.spent), self.splits)

    @property
    def reached(self) -> list[float]:
        """The seeds that have one."""
        return [v for v in self.values if v is not None]

    @property
    def mean(self) -> float | None:
        """Their mean, if every seed has one: a mean over the lucky ones would flatter."""
        return float(np.mean(self.reached)) if self.reached and self.all_reached else None

    @property
    def more_than(self) -> float | None:
        """A lower bound of the mean where not every seed got there: those that did not are counted with
        what they had spent. None where every seed did, or where nobody counted."""
        if self.all_reached or len(self.spent) != len(self.values):
            return None
        pairs = zip(self.values, self.spent, strict=True)
        return float(np.mean([spent if value is None else value for value, spent in pairs]))

    @property
    def deviation(self) -> float:
        """Their standard deviation; 0 for a single seed, and for seeds that differ by rounding alone."""
        found = float(np.std(self.reached, ddof=1)) if len(self.reached) > 1 else 0.0
        return 0.0 if found <= 1e-12 * max(map(abs, self.reached), default=0.0) else found

    @property
    def over_splits(self) -> float | None:
        """The standard deviation of the means of splits; None where there is one, or not all have a value."""
        each = self._by_split
        return float(np.std([np.mean(v) for v in each], ddof=1)) if len(each) > 1 else None

    @property
    def over_seeds(self) -> float | None:
        """The standard deviation between seeds of one split, pooled over splits; None with one seed.

        Example:
            >>> some = Spread((1.0, 3.0, 5.0, 7.0), splits=(0, 0, 1, 1))
            >>> round(some.over_splits, 3), round(some.over_seeds, 3)
            (2.828, 1.414)
        """
        several = [v for v in self._by_split if len(v) > 1]
        return float(np.sqrt(np.mean([np.var(v, ddof=1) for v in several]))) if several else None

    @property
    def _by_split(self) -> list[list[float]]:
        if not self.all_reached:
            return []
        of = self.splits or (0,) * len(self.values)
        pairs = list(zip(of, self.reached, strict=True))
        return [[v for split, v in pairs if split == one] for one in dict.fromkeys(of)]

    @property
    def all_reached(self) -> bool:
        """Whether every seed has one."""
        return len(self.reached) == len(self.values)


def best(spreads: Sequence[Spread], greater_is_better: bool) -> int | None:
    """Which has the best mean; None if none has one.

    Example:
        >>> best([Spread((3.0,)), Spread((None,)), Spread((1.0, 2.0))], greater_is_better=False)
        2
    """
    means = [(spread.mean, i) for i, spread in enumerate(spreads)]
    known = [(mean, i) for mean, i in means if mean is not None and math.isfinite(mean)]
    return min((-mean if greater_is_better else mean, i) for mean, i in known)[1] if known else None
