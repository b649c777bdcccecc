"""The area under the ROC curve of plain scores."""

from typing import Any

import numpy as np

from holdfast.errors import HoldfastError


def auc(scores: Any, labels: Any) -> float:
    r"""Area under the ROC curve: how often a positive example is scored above a negative one.

    $$ \mathrm{AUC} = P(s_+ > s_-) + \tfrac12 P(s_+ = s_-) $$

    The value of scikit-learn's `roc_auc_score`, from ranks: intervals need it some thousand times.
    `metrics=["auc"]` measures it of a model, also of several classes.

    Args:
        scores: one number per example, larger for positive; logits and probabilities give the same.
        labels: 1 for positive, 0 for negative.

    Example:
        >>> from holdfast.models import auc
        >>> auc([0.1, 0.4, 0.4, 0.8], [0, 1, 0, 1])
        0.875
    """
    s, positive = np.asarray(scores), np.asarray(labels) == 1
    if s.ndim != 1 or s.shape != positive.shape or np.isnan(s).any():
        raise HoldfastError(
            f"auc: scores {s.shape}, labels {positive.shape}, {np.isnan(s).sum()} scores are NaN; "
            f"give one number and one label per example."
        )
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        raise HoldfastError(
            f"auc: {positives} positive and {negatives} negative examples; give at least one of each."
        )
    from scipy.stats import rankdata

    beaten = rankdata(s)[positive].sum() - positives * (positives + 1) / 2
    return float(beaten / (positives * negatives))
