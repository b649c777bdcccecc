"""A figure over seeds, and which of several is best."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure over seeds: its mean and standard deviation, over those that reached it."""

    values: tuple[float | None, ...]

    @property
    def reached(self) -> list[float]:
        """The seeds that have one."""
        return [v for v in self.values if v is not None]

    @property
    def mean(self) -> float | None:
        """Their mean, if every seed has one: a mean over the lucky ones would flatter."""
        return float(np.mean(self.reached)) if self.reached and self.all_reached else None

    @property
    def deviation(self) -> float:
        """Their standard deviation; 0 for a single seed."""
        return float(np.std(self.reached, ddof=1)) if len(self.reached) > 1 else 0.0

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
