r"""From scores of held-out rows to a threshold, and from it to sets and intervals.

Of $n$ rows that had no part in training, choosing or testing each has a score. A new row that is
exchangeable with them has a score of at most the $(n + 1 - \lfloor \kappa (n+1) \rfloor)$-th smallest with a
probability of at least $1 - \kappa$, whatever the model.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.conformal.histogram import Histogram, merged, upper_ends
from holdfast.conformal.scores import Score, as_numbers, as_score
from holdfast.errors import HoldfastError, explain_arguments


def check_kappa(kappa: float) -> float:
    """Refuse what is no share of rows whose label may be missing."""
    number = isinstance(kappa, int | float | np.number) and not isinstance(kappa, bool)
    if not number or not 0 < kappa < 1:
        raise HoldfastError(
            f"conformal: kappa={kappa!r}, the share of rows whose label may be outside its set; give more "
            f"than 0 and less than 1, such as 0.1.",
            about=("kappa",),
        )
    return float(kappa)


def rank(n: int, kappa: float) -> int:
    r"""Which of $n$ sorted scores is the threshold, from 1; $n + 1$ where they are too few for any.

    Example:
        >>> rank(99, 0.1), rank(9, 0.1), rank(8, 0.1)
        (90, 9, 9)
    """
    # Without what rounding adds: 10 x 0.1 is 1, and 1 - 0.9 is 0.1.
    return n + 1 - math.floor(round(check_kappa(kappa) * (n + 1), 9))


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    r"""Scores of held-out rows, or a histogram of them: all that sets and intervals need besides a model.

    Args:
        score: what the scores are.
        scores: of the rows, sorted; None where only a histogram is known.
        histogram: how many rows have which score; None where all are known.
    """

    score: Score
    scores: np.ndarray | None = None
    histogram: Histogram | None = None

    def __post_init__(self) -> None:
        if (self.scores is None) == (self.histogram is None):
            raise HoldfastError("conformal: give a calibration scores, or a histogram of them.")

    @property
    def n(self) -> int:
        """How many rows it rests on."""
        return len(self.scores) if self.scores is not None else self._cells.n

    def __repr__(self) -> str:
        how = "" if self.histogram is None else f", in {len(self._cells)} cells"
        return f"Calibration({self.score.name}, {self.n} rows{how})"

    @property
    def _cells(self) -> Histogram:
        assert self.histogram is not None
        return self.histogram

    def threshold(self, kappa: float = 0.1) -> float:
        r"""The score that a new row exceeds with a probability of at most $\kappa$; infinite with few rows.

        Of a histogram it is the upper end of the cell that the score is in, so that coverage is at least as
        high.
        """
        wanted = rank(self.n, kappa)
        if wanted > self.n:
            return math.inf
        return (
            float(self._sorted[wanted - 1]) if self.histogram is None else self._cells.up_to(wanted)
        )

    @functools.cached_property
    def _sorted(self) -> np.ndarray:
        assert self.scores is not None
        return np.sort(self.scores)

    @property
    def rounded_up(self) -> np.ndarray | None:
        """Scores with the same thresholds: of a histogram, the upper end of each cell; None where one has
        none, and what is scored has no bound."""
        if self.histogram is None:
            return self._sorted
        cells = self._cells
        ends = np.append(upper_ends(len(cells), cells.largest), np.finfo(np.float32).max)
        if self.score.of_numbers and cells.counts[-1]:
            return None
        return np.repeat(ends, cells.counts)

    def excess(self, kappa: float = 0.1) -> float:
        """By how much coverage may be higher because only a histogram is known; 0 if all scores are."""
        wanted = rank(self.n, kappa)
        if self.histogram is None or wanted > self.n:
            return 0.0
        return (self._cells.below(wanted) - wanted) / (self.n + 1)

    def sets(self, probabilities: Any, kappa: float = 0.1, client: int = 0) -> np.ndarray:
        r"""Which labels a row may have, a truth value for each: the right one among them in at least
        $1 - \kappa$ of rows like those it was calibrated with, all together.

        Args:
            probabilities: of labels, a row for each example.
            kappa: the share of rows whose label may be missing.
            client: whose rows they are, for scores that are randomised.
        """
        return self.score.of_all(probabilities, client) <= self.threshold(kappa)

    def intervals(self, predicted: Any, kappa: float = 0.1) -> np.ndarray:
        r"""From where to where a row's number may be, in at least $1 - \kappa$ of rows."""
        if not self.score.of_numbers:
            raise HoldfastError(
                f"conformal: score `{self.score.name}` is of labels, which have sets and no intervals; use "
                f"sets, or calibrate with score `residual`.",
                about=("score",),
            )
        found, far = as_numbers(predicted, "predictions"), self.threshold(kappa)
        return np.stack([found - far, found + far], axis=-1)


@explain_arguments
def calibrate(
    predicted: Any, labels: Any, score: Score | str = "lac", client: int = 0
) -> Calibration:
    r"""Scores of rows that were neither trained on, nor chosen by, nor will be tested on.

    With `score="lac"` the set of a new row is every label with a probability of at least $\tau$,

    $$ \tau = \text{the } \lfloor \kappa (n+1) \rfloor \text{-th smallest of } p_{y_1}, \dots, p_{y_n}
       \qquad (\tau = 0 \text{ if that is } 0), $$

    the threshold on probabilities of FedPVR's appendix C.1.

    Args:
        predicted: probabilities, a row for each example and a column for each label; or numbers.
        labels: the right label of each row, from 0; or its number.
        score: `"lac"`, `"aps"`, `"raps"`, for numbers `"residual"`; or a `Score` with values of its own.
        client: whose rows they are, for scores that are randomised.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> sure, unsure = [0.9, 0.05, 0.05], [0.5, 0.4, 0.1]
        >>> held_out = hf.conformal.calibrate([sure] * 15 + [unsure] * 4, [0] * 17 + [1] * 2)
        >>> held_out
        Calibration(lac, 19 rows)
        >>> held_out.sets([sure, unsure], kappa=0.1).astype(int).tolist()
        [[1, 0, 0], [1, 1, 0]]

    Reference:
        Papadopoulos et al. 2002; Li et al. 2023 (FedPVR), section 5.2 and appendix C.1.
    """
    known = as_score(score)
    found = known.of_truth(predicted, labels, client)
    if not len(found):
        raise HoldfastError(
            "conformal: no rows to calibrate with; give some that were neither trained on, chosen by nor "
            "tested on.",
            about=("labels",),
        )
    return Calibration(known, np.sort(found))


@explain_arguments
def from_histograms(histograms: Sequence[Histogram], score: Score | str = "lac") -> Calibration:
    """What clients' histograms of scores come to together: nobody has sent a score or a row.

    Args:
        histograms: one for each client, with the same cells (`hf.conformal.histogram`).
        score: what the scores are.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> parts = [rng.random(n) for n in (30, 50, 19)]
        >>> together = hf.conformal.from_histograms([hf.conformal.histogram(p, bins=50) for p in parts])
        >>> exact = np.sort(np.concatenate(parts))[89]
        >>> together, bool(exact <= together.threshold(0.1) <= exact + 1 / 50)
        (Calibration(lac, 99 rows, in 50 cells), True)
    """
    return Calibration(as_score(score), histogram=merged(histograms))
