"""Which way a metric is better: declared by whoever made it, or known by its name."""

import dataclasses
import math
import re
from collections.abc import Mapping

from holdfast.errors import HoldfastError

# Names, sorted, and whether greater is better.
Directions = tuple[tuple[str, bool], ...]
# As somebody wrote it.
Declared = Mapping[str, bool] | Directions | None


@dataclasses.dataclass(frozen=True)
class Metric:
    """What is measured, and which way it is better.

    Args:
        name: what a column of a history ends with.
        greater_is_better: True for an accuracy, False for a loss.
        title: its name written out.
        most: what it never exceeds, if there is such a number.
    """

    name: str
    greater_is_better: bool
    title: str
    most: float | None = None


# What ends in one of these is of its kind: macro_f1, hinge_loss, top_5_accuracy.
STANDARD = (
    Metric("accuracy", True, "accuracy", 1),
    Metric("top_k_accuracy", True, "accuracy of the k most probable classes", 1),
    Metric("balanced_accuracy", True, "mean recall of the classes", 1),
    Metric("precision", True, "precision", 1),
    Metric("recall", True, "recall", 1),
    Metric("sensitivity", True, "recall of the positive class", 1),
    Metric("specificity", True, "recall of the negative class", 1),
    Metric("f1", True, "harmonic mean of precision and recall", 1),
    Metric("auc", True, "area under the ROC curve", 1),
    Metric("auroc", True, "area under the ROC curve", 1),
    Metric("average_precision", True, "area under the precision-recall curve", 1),
    Metric("hit_rate", True, "share of queries with a hit", 1),
    Metric("ndcg", True, "normalised discounted cumulative gain", 1),
    Metric("mrr", True, "mean reciprocal rank", 1),
    Metric("iou", True, "intersection over union", 1),
    Metric("bleu", True, "BLEU score"),
    Metric("r2", True, "coefficient of determination", 1),
    Metric("explained_variance", True, "explained variance", 1),
    Metric("log_likelihood", True, "log-likelihood"),
    Metric("loss", False, "loss"),
    Metric("error", False, "error"),
    Metric("error_rate", False, "share of errors", 1),
    Metric("absolute_error", False, "absolute error"),
    Metric("squared_error", False, "squared error"),
    Metric("mae", False, "mean absolute error"),
    Metric("mse", False, "mean squared error"),
    Metric("rmse", False, "root mean squared error"),
    Metric("mape", False, "mean absolute percentage error"),
    Metric("calibration_error", False, "calibration error", 1),
    Metric("ece", False, "expected calibration error", 1),
    Metric("brier", False, "Brier score"),
    Metric("cross_entropy", False, "cross-entropy"),
    Metric("negative_log_likelihood", False, "negative log-likelihood"),
    Metric("nll", False, "negative log-likelihood"),
    Metric("perplexity", False, "perplexity"),
    Metric("bits_per_character", False, "bits per character"),
)


def find(column: str, declared: Declared = None) -> Metric | None:
    """The metric that a column of a history holds; None if nobody knows it.

    A column has something before the metric (`train_`, `average_`, `personal_`, an evaluator's name)
    and after it (`_worst_tenth`, `_at_10`). What is declared precedes what is standard; of several
    names that fit, the longest is meant.

    Example:
        >>> find("validation_personal_error_worst_tenth").name, find("recall_at_10").name
        ('error', 'recall')
        >>> find("train_regret", {"regret": False}).greater_is_better, find("regret")
        (False, None)
    """
    own = {_plain(name): Metric(name, up, name) for name, up in directions(declared)}
    known = {metric.name: metric for metric in STANDARD} | own
    whole = _plain(column).removesuffix("_worst_tenth")
    for name in (whole, re.sub(r"_(score|(at|top)_?\d+)$", "", whole)):
        words = name.split("_")
        for i in range(len(words)):
            if found := known.get("_".join(words[i:])):
                return found
    return None


def greater_is_better(column: str, declared: Declared = None) -> bool:
    """Whether a column of a history is better high than low; refuses a name that nobody knows.

    Args:
        column: its name, with whatever stands before and after the metric.
        declared: directions by the names of metrics.

    Example:
        >>> greater_is_better("average_accuracy"), greater_is_better("train_squared_error")
        (True, False)
    """
    found = find(column, declared)
    if found is None:
        raise HoldfastError(
            f"metric `{column}`: nobody said whether greater is better; declare it with "
            f'hf.Model(greater_is_better={{"{column}": True}}) or False, or for a run folder that '
            f"is there in its methods.json."
        )
    return found.greater_is_better


def check_target(column: str, target: float, declared: Declared = None) -> None:
    """Refuse a target that no value of the metric can be at.

    Example:
        >>> check_target("accuracy", 95)
        Traceback (most recent call last):
        ...
        holdfast.errors.HoldfastError: target 95 for accuracy, which is never above 1; give 0.95.
    """
    found = find(column, declared)
    most = None if found is None else found.most
    if not math.isfinite(target):
        raise HoldfastError(f"target {target}; give a number.", about=("target",))
    if most is not None and target > most:
        percent = (
            f"; give {target / 100:g}." if target <= 100 * most else f"; give at most {most:g}."
        )
        raise HoldfastError(
            f"target {target:g} for {column}, which is never above {most:g}{percent}",
            about=("target",),
        )


def directions(declared: Declared) -> Directions:
    """What was declared as sorted pairs, which have a hash; refuses what is no direction.

    Example:
        >>> directions({"regret": False, "profit": True})
        (('profit', True), ('regret', False))
    """
    named = dict(declared) if isinstance(declared, tuple) else {} if declared is None else declared
    if not isinstance(named, Mapping) or not all(
        isinstance(name, str) and isinstance(up, bool) for name, up in named.items()
    ):
        raise HoldfastError(
            f"greater_is_better={declared!r}; give True or False by the name of the metric, such as "
            f'{{"regret": False}}.'
        )
    return tuple(sorted(named.items()))


def _plain(name: str) -> str:
    """In small letters, with underscores between words: `val/F1@10` as `val_f1_at_10`."""
    return re.sub(r"\W+", "_", name.replace("@", "_at_")).casefold()
