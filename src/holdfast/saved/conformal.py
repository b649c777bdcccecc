r"""Split conformal prediction: sets and intervals that hold the truth as often as is asked for.

Of $n$ rows that had no part in training or choosing, each has a score, the larger the worse: one minus the
probability of its label, or how far a number is off. A new row that is exchangeable with them has a score
of at most the $\lceil (n+1) c \rceil$-th smallest with a probability of at least $c$, whatever the model.
"""

import math
from collections.abc import Sequence

import numpy as np

from holdfast.errors import HoldfastError


def threshold(scores: Sequence[float], coverage: float, what: str) -> float:
    """The score that a new row exceeds with a probability of at most 1 - coverage; infinite with few rows.

    Example:
        >>> threshold([0.1, 0.2, 0.3, 0.4], 0.6, "sets"), threshold([0.1, 0.2], 0.9, "sets")
        (0.3, inf)
    """
    if not scores:
        raise HoldfastError(
            f"{what}: the model is not calibrated; use saved.calibrate(rows, labels) with rows that were "
            f"neither trained on nor chosen by."
        )
    if not 0 < coverage < 1:
        raise HoldfastError(
            f"{what}: coverage={coverage}; give a share above 0 and below 1, such as 0.9.",
            about=("coverage",),
        )
    # Without what rounding adds: 10 x 0.9 is 9, not 9.000000000000002.
    rank = math.ceil(round((len(scores) + 1) * coverage, 9))
    return math.inf if rank > len(scores) else sorted(scores)[rank - 1]


def scores_of_labels(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """One minus the probability of each row's own label."""
    own = np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0]
    return tuple((1 - own.astype(np.float64)).tolist())


def scores_of_numbers(predicted: np.ndarray, numbers: np.ndarray) -> tuple[float, ...]:
    """How far each prediction is off."""
    return tuple(np.abs(np.asarray(predicted, np.float64) - numbers).tolist())
