"""What one run measured, and the numbers read off it: all that is kept of it."""

import dataclasses
import itertools
import math
from typing import Self

import numpy as np

from papers.study import Values

GD, DCGD, DIANA = "GD", "DCGD", "DIANA"
AVERAGE, ZERO = "x_avg", "zero"  # where runs start
POINTS = 90  # of a curve that are kept
NONE = 1e-14  # gaps below are rounding errors


@dataclasses.dataclass(frozen=True)
class Setting:
    """One run: a data set, a method, a mixture, and how many numbers each reply carries."""

    data: str
    method: str
    alpha: float
    k: int  # numbers in a reply; all d of them for GD
    clients: int
    start: str = AVERAGE


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


@dataclasses.dataclass(frozen=True)
class Curve:
    """Gap and distance after some of the rounds, the first being round 0; what was read off all of them.

    Args:
        setting: which run.
        size: the number of parameters.
        bits: of one reply, places of the k numbers included.
        rounds: after which the curve is kept.
        gap: how far the objective was above its minimum then.
        distance: of gradient descent, mean squared distance of the deployed models to those at the optimum.
        needed: the first round measured with a gap that is good enough; none if there is none.
        per_digit: rounds that divide the gap by ten, late in the run; none if it fell by less than a digit.
        end: the last gap; of DCGD, which goes up and down in the end, the mean of the last quarter.
        promise: what theory guarantees.
    """

    setting: Setting
    size: int
    bits: int
    rounds: tuple[int, ...]
    gap: tuple[float, ...]
    distance: tuple[float, ...]
    needed: int | None
    per_digit: float | None
    end: float
    promise: Promise

    @classmethod
    def of(
        cls,
        setting: Setting,
        size: int,
        bits: int,
        measured: list[tuple[int, float, float]],
        accuracy: float,
        promise: Promise,
    ) -> Self:
        """Read the numbers off, and thin the curve."""
        at, gap, _ = map(np.array, zip(*measured, strict=True))
        there = np.flatnonzero(gap <= accuracy)
        late = at >= 0.75 * at[-1]
        # Closer together at the beginning.
        spaced = np.geomspace(1, len(measured), POINTS).round().astype(int) - 1
        kept = [measured[place] for place in np.unique(spaced)]
        rounds, gaps, distances = zip(*kept, strict=True)
        return cls(
            setting,
            size,
            bits,
            rounds,
            tuple(map(_short, gaps)),
            tuple(map(_short, distances)) if setting.method == GD else (),
            int(at[there[0]]) if len(there) else None,
            _per_digit(at, gap),
            _short(float(gap[late].mean() if setting.method == DCGD else gap[-1])),
            promise,
        )

    @classmethod
    def read(cls, kept: Values) -> Self:
        """From what `values` gave."""
        promised = {k: math.inf if v is None else v for k, v in kept["promise"].items()}
        return cls(
            **{**kept, "setting": Setting(**kept["setting"]), "promise": Promise(**promised)}
        )

    @property
    def values(self) -> Values:
        """As it is kept: JSON has no infinity."""
        kept = dataclasses.asdict(self)
        kept["promise"] = {
            name: _short(value) if math.isfinite(value) else None
            for name, value in kept["promise"].items()
        }
        return kept

    @property
    def floats(self) -> np.ndarray:
        """Numbers each client has sent up."""
        return np.array(self.rounds) * self.setting.k

    @property
    def floats_needed(self) -> int | None:
        """Numbers a client sent up until the gap was good enough."""
        return None if self.needed is None else self.needed * self.setting.k

    def rounds_to(self, gap: float) -> int | None:
        """The first round that was kept with this gap."""
        below = itertools.compress(self.rounds, np.array(self.gap) <= gap)
        return next(below, None)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _per_digit(at: np.ndarray, gap: np.ndarray) -> float | None:
    """By least squares over the second half of the rounds."""
    seen = (at >= at[-1] / 2) & (gap > NONE)
    digits = np.log10(gap[seen])
    if seen.sum() < 3 or digits[0] - digits[-1] < 1:
        return None
    return _short(-1 / float(np.polyfit(at[seen], digits, 1)[0]))
