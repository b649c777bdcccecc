"""Metrics by name: which way each is better, and what those of a whole set are functions of."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Literal

from holdfast.errors import HoldfastError
from holdfast.metrics import sets
from holdfast.metrics.sets import SetFunction

# Names, sorted, and whether greater is better.
Directions = tuple[tuple[str, bool], ...]
# As somebody wrote it.
Declared = Mapping[str, bool] | Directions | None
# Predictions that a metric of a set is made for.
Takes = Literal["classes", "two classes", "numbers"] | None


@dataclasses.dataclass(frozen=True)
class Metric:
    """What is measured, and which way it is better.

    Args:
        name: what a column of a history ends with.
        greater_is_better: True for an accuracy, False for a loss.
        title: its name written out.
        most: what it never exceeds, if there is such a number.
        of: `(labels, predictions) -> number` of a whole set, or None where it has no such value; None of
            what a model measures of each example itself.
        takes: predictions it is made for: probabilities of `"classes"`, of `"two classes"`, a
            regression's `"numbers"`; any unless given.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> metric = hf.metrics.named("f1_binary")
        >>> metric.of(np.array([0, 1, 1, 1]), np.array([0.2, 0.7, 0.4, 0.9]))
        0.8
    """

    name: str
    greater_is_better: bool
    title: str
    most: float | None = None
    of: SetFunction | None = None
    takes: Takes = None


# What ends in one of these is of its kind: macro_f1, hinge_loss, top_5_accuracy.
STANDARD = (
    Metric("accuracy", True, "accuracy", 1, sets.accuracy, "classes"),
    Metric("top_k_accuracy", True, "accuracy of the k most probable classes", 1),
    Metric(
        "balanced_accuracy",
        True,
        "mean recall of the classes",
        1,
        sets.balanced_accuracy,
        "classes",
    ),
    Metric("precision", True, "precision", 1, sets.precision, "two classes"),
    Metric("recall", True, "recall", 1, sets.recall, "two classes"),
    Metric("sensitivity", True, "recall of the positive class", 1, sets.recall, "two classes"),
    Metric("specificity", True, "recall of the negative class", 1, sets.specificity, "two classes"),
    Metric("f1", True, "harmonic mean of precision and recall", 1),
    Metric("f1_macro", True, "mean F1 of the classes", 1, sets.f1_macro, "classes"),
    Metric("f1_binary", True, "F1 of the positive class", 1, sets.f1_binary, "two classes"),
    Metric("auc", True, "area under the ROC curve", 1, sets.auc, "classes"),
    Metric("auroc", True, "area under the ROC curve", 1, sets.auc, "classes"),
    Metric(
        "average_precision",
        True,
        "area under the precision-recall curve",
        1,
        sets.average_precision,
        "classes",
    ),
    Metric("hit_rate", True, "share of queries with a hit", 1),
    Metric("ndcg", True, "normalised discounted cumulative gain", 1),
    Metric("mrr", True, "mean reciprocal rank", 1),
    Metric("iou", True, "intersection over union", 1),
    Metric("bleu", True, "BLEU score"),
    Metric("r2", True, "coefficient of determination", 1, sets.r2, "numbers"),
    Metric("explained_variance", True, "explained variance", 1),
    Metric("log_likelihood", True, "log-likelihood"),
    Metric("loss", False, "loss"),
    Metric("error", False, "error"),
    Metric("error_rate", False, "share of errors", 1),
    Metric("absolute_error", False, "absolute error", None, sets.absolute_error, "numbers"),
    Metric("squared_error", False, "squared error", None, sets.squared_error, "numbers"),
    Metric("mae", False, "mean absolute error", None, sets.absolute_error, "numbers"),
    Metric("mse", False, "mean squared error", None, sets.squared_error, "numbers"),
    Metric("rmse", False, "root mean squared error", None, sets.root_mean_squared_error, "numbers"),
    Metric("mape", False, "mean absolute percentage error"),
    Metric("calibration_error", False, "calibration error", 1),
    Metric(
        "expected_calibration_error",
        False,
        "expected calibration error",
        1,
        sets.expected_calibration_error,
        "classes",
    ),
    Metric(
        "ece", False, "expected calibration error", 1, sets.expected_calibration_error, "classes"
    ),
    Metric("brier", False, "Brier score", None, sets.brier, "classes"),
    Metric("cross_entropy", False, "cross-entropy"),
    Metric("negative_log_likelihood", False, "negative log-likelihood"),
    Metric("nll", False, "negative log-likelihood"),
    Metric("perplexity", False, "perplexity"),
    Metric("bits_per_character", False, "bits per character"),
)


BY_NAME = {metric.name: metric for metric in STANDARD}


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
    known = BY_NAME | own
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
