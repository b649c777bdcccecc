"""Metrics of a whole set of predictions, by scikit-learn's definitions.

Each is a function of labels and of what `model.predict` says: one row of class probabilities per example,
the probability of label 1, or a regression's number. None is a set that has no such value. scikit-learn
is imported by the first that is computed.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from holdfast.metrics.auc import auc as area

SetFunction = Callable[[np.ndarray, np.ndarray], float | None]
# Of the calibration curve, as many as scikit-learn's example and most papers have.
BINS = 10


@contextmanager
def _quiet() -> Iterator[Any]:
    """scikit-learn's metrics, without the warnings of what is dealt with here."""
    import sklearn.metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield sklearn.metrics


def _columns(predictions: np.ndarray) -> np.ndarray:
    """Probabilities with a column per class."""
    if predictions.ndim == 1:
        return np.stack([1 - predictions, predictions], axis=1)
    return predictions


def classes_of(predictions: np.ndarray) -> np.ndarray:
    """The most probable class of each; of a single probability 1 above a half."""
    if predictions.ndim == 1:
        return (predictions > 0.5).astype(np.int64)
    return predictions.argmax(axis=1)


def _ranked(of: Callable[[np.ndarray, np.ndarray], float]) -> SetFunction:
    """A metric of how positives are ranked: of label 1 of two; else the mean over classes, each against
    the rest, of those that are there. None where all examples are of one class."""

    @functools.wraps(of)
    def ranked(labels: np.ndarray, predictions: np.ndarray) -> float | None:
        there = np.unique(labels)
        if len(there) < 2:
            return None
        probabilities = _columns(predictions)
        wanted = there.astype(np.int64) if probabilities.shape[1] > 2 else [1]
        return float(np.mean([of(labels == c, probabilities[:, c]) for c in wanted]))

    return ranked


@_ranked
def auc(positive: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve; of several classes the mean, each against the rest."""
    return area(scores, positive)


@_ranked
def average_precision(positive: np.ndarray, scores: np.ndarray) -> float:
    """Area under the precision-recall curve as a sum; of several classes the mean."""
    with _quiet() as sk:
        return float(sk.average_precision_score(positive, scores))


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """Share of examples whose most probable class is theirs."""
    return float(np.mean(classes_of(predictions) == labels))


def balanced_accuracy(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """Mean recall of the classes that are there."""
    with _quiet() as sk:
        return float(sk.balanced_accuracy_score(labels, classes_of(predictions)))


def f1_macro(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """Mean F1 of the classes that are there or predicted."""
    with _quiet() as sk:
        return float(sk.f1_score(labels, classes_of(predictions), average="macro"))


def _of_one_class(name: str, positive: int = 1) -> SetFunction:
    """A metric of label 1 of two, by its name in scikit-learn; None where it would be 0 / 0."""

    def found(labels: np.ndarray, predictions: np.ndarray) -> float | None:
        with _quiet() as sk:
            value = getattr(sk, name)(
                labels, classes_of(predictions), pos_label=positive, zero_division=math.nan
            )
        return None if math.isnan(value) else float(value)

    return found


f1_binary = _of_one_class("f1_score")
precision = _of_one_class("precision_score")
recall = _of_one_class("recall_score")
specificity = _of_one_class("recall_score", positive=0)


def top_k_accuracy(labels: np.ndarray, predictions: np.ndarray, k: int) -> float | None:
    """Share of examples whose class is among the k most probable."""
    probabilities = _columns(predictions)
    every = np.arange(probabilities.shape[1])
    with _quiet() as sk:
        # Two classes have one column there.
        given = probabilities if len(every) > 2 else probabilities[:, 1]
        return float(sk.top_k_accuracy_score(labels, given, k=k, labels=every))


def brier(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """Mean squared error of probabilities: of label 1 of two; of several classes summed over them."""
    probabilities = _columns(predictions)
    # Rounded, they may not add up to 1 as closely as is asked there.
    shares = probabilities / probabilities.sum(axis=1, keepdims=True)
    with _quiet() as sk:
        if shares.shape[1] > 2:
            return float(sk.brier_score_loss(labels, shares, labels=np.arange(shares.shape[1])))
        return float(sk.brier_score_loss(labels, np.clip(shares[:, 1], 0, 1), pos_label=1))


def expected_calibration_error(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    r"""How far the confidence in the most probable class is from how often it is right.

    $$ \sum_b \tfrac{n_b}{n} \big| \text{accuracy}_b - \text{confidence}_b \big| $$

    over the 10 bins of equal width of scikit-learn's `calibration_curve`.
    """
    from sklearn.calibration import calibration_curve

    confidence = np.clip(_columns(predictions).max(axis=1), 0, 1)
    right = (classes_of(predictions) == labels).astype(np.int64)
    with _quiet():
        often, sure = calibration_curve(right, confidence, n_bins=BINS, pos_label=1)
    bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence)
    sizes = np.bincount(bins, minlength=BINS)
    return float(np.average(np.abs(often - sure), weights=sizes[sizes > 0]))


def r2(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """1 - squared error / variance of the labels; None of a single example."""
    if len(labels) < 2:
        return None
    with _quiet() as sk:
        return float(sk.r2_score(labels, predictions))


def absolute_error(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """Mean absolute error."""
    with _quiet() as sk:
        return float(sk.mean_absolute_error(labels, predictions))


def squared_error(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """Mean squared error."""
    with _quiet() as sk:
        return float(sk.mean_squared_error(labels, predictions))


def root_mean_squared_error(labels: np.ndarray, predictions: np.ndarray) -> float | None:
    """Root of the mean squared error."""
    with _quiet() as sk:
        return float(sk.root_mean_squared_error(labels, predictions))
