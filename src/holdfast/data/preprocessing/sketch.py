"""Quantiles that clients can send: at most so many points each, with a bound on the error in rank."""

import dataclasses
from collections.abc import Sequence

import numpy as np

POINTS = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class QuantileSketch:
    r"""Values in ascending order, each standing for so many.

    A client with $n_i$ values sends at most $k = 1000$ points: a run of $\lceil n_i / k \rceil$ neighbours
    is stood for by the one in the middle. Sketches are merged by putting their points together, so the
    rank of a quantile among all $N$ values is wrong by at most $\tfrac12 \sum_i \lceil n_i / k \rceil$,
    which is about $N / 2k$; it is exact where no client has more than $k$ values.

    Args:
        points: the values.
        weights: how many each stands for.

    Example:
        >>> import numpy as np
        >>> sketches = [QuantileSketch.of(np.arange(0.0, 50)), QuantileSketch.of(np.arange(50.0, 101))]
        >>> QuantileSketch.merged(sketches).quantile(0.25)
        25.0
    """

    points: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, points: int = POINTS) -> "QuantileSketch":
        """Of one client's values."""
        ordered = np.sort(values)
        run = -(-len(ordered) // points) or 1
        starts = np.arange(0, len(ordered), run)
        lengths = np.minimum(run, len(ordered) - starts)
        return cls(ordered[starts + (lengths - 1) // 2], lengths)

    @classmethod
    def merged(cls, sketches: Sequence["QuantileSketch"]) -> "QuantileSketch":
        """Of all clients' values."""
        points = np.concatenate([s.points for s in sketches])
        weights = np.concatenate([s.weights for s in sketches])
        found, place = np.unique(points, return_inverse=True)
        return cls(found, np.bincount(place, weights, minlength=len(found)).astype(np.int64))

    def quantile(self, share: float) -> float:
        """With linear interpolation between neighbours, as NumPy and scikit-learn have it."""
        ends = np.cumsum(self.weights)
        place = share * (ends[-1] - 1)
        below, above = int(np.floor(place)), int(np.ceil(place))
        low, high = self.points[np.searchsorted(ends, [below, above], side="right")]
        return float(low + (high - low) * (place - below))
