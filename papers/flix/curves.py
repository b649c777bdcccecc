"""What one run measured, and the numbers read off it."""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Setting:
    """One run: a data set, a method, a mixture, and how many numbers each reply carries."""

    data: str
    method: str  # "GD", "DCGD" or "DIANA"
    alpha: float
    k: int  # numbers in a reply; all d of them for GD
    clients: int


@dataclasses.dataclass(frozen=True)
class Promise:
    """What theory guarantees."""

    rate: float  # every round leaves at most 1 - rate of the error; 0 without strong convexity
    limit: float  # the gap at which DCGD may stay; 0 for the others
    first_gap: float  # at most, at x_avg
    rounds: float  # of GD to the accuracy asked for, at most

    @property
    def rounds_per_digit(self) -> float:
        """Rounds that are enough to divide the error by ten."""
        return math.inf if self.rate <= 0 else math.log(10) / -math.log1p(-self.rate)


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Gap and distance after some of the rounds, the first of them round 0, at x_avg."""

    setting: Setting
    rounds: np.ndarray
    gap: np.ndarray
    distance: np.ndarray
    bits: int  # of one reply, places of the k numbers included
    accuracy: float  # the gap that rounds are counted to
    promise: Promise

    @property
    def floats(self) -> np.ndarray:
        """Numbers each client has sent up."""
        return self.rounds * self.setting.k

    @property
    def needed(self) -> int | None:
        """The first round measured with a gap of at most `accuracy`; None if there is none."""
        there = np.flatnonzero(self.gap <= self.accuracy)
        return int(self.rounds[there[0]]) if len(there) else None

    @property
    def end(self) -> float:
        """The last gap; of DCGD, which goes up and down in the end, the mean of the last quarter."""
        wanders = self.setting.method == "DCGD"
        return float(
            self.gap[self.rounds >= 0.75 * self.rounds[-1]].mean() if wanders else self.gap[-1]
        )

    @property
    def rounds_per_digit(self) -> float | None:
        """Rounds that divide the gap by ten, by least squares over the second half of the rounds.

        None where the gap falls by less than a digit there.
        """
        seen = (self.rounds >= self.rounds[-1] / 2) & (self.gap > 1e-14)
        digits = np.log10(self.gap[seen])
        if seen.sum() < 3 or digits[0] - digits[-1] < 1:
            return None
        return -1 / float(np.polyfit(self.rounds[seen], digits, 1)[0])
