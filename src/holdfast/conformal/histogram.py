"""How many rows have which score: all that a client sends, and what the server makes of it."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError, explain_arguments, whole_number

# Of one count, as it travels.
BITS = 32
_FEWEST = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of scores in cells of one width from 0 on; the last cell has no end.

    Args:
        counts: rows in each cell. A cell has its upper end and not its lower one.
        largest: where the last cell would end, if it had the width of the others.
    """

    counts: np.ndarray
    largest: float = 1.0

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def n(self) -> int:
        """How many rows were counted."""
        return int(self.counts.sum())

    @property
    def bits(self) -> int:
        """What it takes to send one."""
        return BITS * len(self.counts)

    def up_to(self, rank: int) -> float:
        """The upper end of the cell of the `rank`-th smallest score; infinite of the last cell."""
        cell = self._cell(rank)
        if cell == len(self.counts) - 1:
            return math.inf
        return float(upper_ends(len(self.counts), self.largest)[cell])

    def below(self, rank: int) -> int:
        """How many rows are in cells up to that of the `rank`-th smallest score."""
        return int(np.cumsum(self.counts)[self._cell(rank)])

    def _cell(self, rank: int) -> int:
        return int(np.searchsorted(np.cumsum(self.counts), rank))


def upper_ends(bins: int, largest: float) -> np.ndarray:
    """Where cells end, but for the last, which does not."""
    return np.arange(1, bins) * (largest / bins)


@explain_arguments
def histogram(scores: Any, bins: int = 1000, largest: float = 1.0) -> Histogram:
    """Scores as counts in cells, which is what a client sends: 4 bytes a cell, and no score or row.

    Args:
        scores: of a client's rows (`Score.of_truth`).
        bins: cells. With more of them a threshold is nearer to the exact one, and never below it.
        largest: the largest score there may be: 1 of `lac` and `aps`, `score.largest(classes)` in general.
            Rows beyond are in the last cell; a threshold there is infinite.

    Example:
        >>> import holdfast as hf
        >>> cells = hf.conformal.histogram([0.1, 0.2, 0.5, 0.75, 1.0], bins=4)
        >>> cells.counts.tolist(), cells.up_to(3), cells.bits // 8
        ([2, 1, 1, 1], 0.5, 16)
    """
    bins = whole_number("conformal", "bins", bins)
    if bins < _FEWEST:
        raise HoldfastError(
            f"conformal: bins={bins}, which tells no score from another, so that every set has every label; "
            f"give at least {_FEWEST}, better 1000.",
            about=("bins",),
        )
    if not (np.isfinite(largest) and largest > 0):
        raise HoldfastError(
            f"conformal: largest={largest}; give the largest score there may be, more than 0.",
            about=("largest",),
        )
    found = np.asarray(scores, np.float64)
    if found.ndim != 1 or np.isnan(found).any() or len(found) >= 2**BITS:
        raise HoldfastError(
            f"conformal: scores of shape {found.shape}; give one number for each row, none of them NaN.",
            about=("scores",),
        )
    cells = np.searchsorted(upper_ends(bins, largest), found, side="left")
    return Histogram(np.bincount(cells, minlength=bins), float(largest))


def merged(histograms: Sequence[Histogram]) -> Histogram:
    """All rows of several histograms; refuses cells that differ."""
    several = list(histograms)
    if not several or not sum(h.n for h in several):
        raise HoldfastError(
            "conformal: no rows to calibrate with in any histogram; give clients some that were neither "
            "trained on, chosen by nor tested on.",
            about=("histograms",),
        )
    kinds = {(len(h), h.largest) for h in several}
    if len(kinds) > 1:
        said = " and ".join(
            f"{bins} cells up to {largest:g}" for bins, largest in sorted(kinds)[:2]
        )
        raise HoldfastError(
            f"conformal: histograms with {said}; let all clients count in the same cells.",
            about=("histograms",),
        )
    return Histogram(np.sum([h.counts for h in several], axis=0), several[0].largest)
