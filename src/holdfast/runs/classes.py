"""Classes one by one, from what was predicted of test rows: the confusion matrix, precision and recall."""

import dataclasses

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from holdfast.runs.predictions import Predictions
from holdfast.runs.results import MethodResult


@dataclasses.dataclass(frozen=True)
class ClassResult:
    """One class, a mean over a method's runs.

    Args:
        label: its number.
        name: what the data calls it; its number where it has no name.
        rows: test rows of it.
        precision: of the rows predicted to be it, the share that is; 0 where there are none.
        recall: of its rows, the share predicted to be it.
        f1: the harmonic mean of the two.
    """

    label: int
    name: str
    rows: float
    precision: float
    recall: float
    f1: float


@dataclasses.dataclass(frozen=True)
class Confusion:
    """How many test rows of a class (first index) were predicted to be which (second): means over runs."""

    names: tuple[str, ...]
    counts: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The same as shares of each class's rows."""
        rows = self.counts.sum(axis=1, keepdims=True)
        return self.counts / np.where(rows == 0, 1, rows)


def confusion(
    method: MethodResult, names: tuple[str, ...] | None = None, client: int | None = None
) -> Confusion | None:
    """Of every client's own test rows by the model it would use; None where no classes were predicted.

    Args:
        method: a method that has ended.
        names: what the labels are called (`holdfast.runs.sites.names_of_labels`).
        client: of this client's rows alone; of everybody unless given.
    """
    known = _labels_and_classes(method, client)
    if not known:
        return None
    labels = _all_labels(method)
    each = [confusion_matrix(label, predicted, labels=labels) for label, predicted in known]
    return Confusion(_named(labels, names), np.mean(each, axis=0))


def by_class(
    method: MethodResult, names: tuple[str, ...] | None = None, client: int | None = None
) -> list[ClassResult]:
    """Precision, recall and F1 of every class, as scikit-learn defines them; empty without classes.

    Args:
        method: a method that has ended.
        names: what the labels are called.
        client: of this client's rows alone; of everybody unless given.
    """
    known = _labels_and_classes(method, client)
    if not known:
        return []
    labels = _all_labels(method)
    each = [
        precision_recall_fscore_support(label, predicted, labels=labels, zero_division=0)
        for label, predicted in known
    ]
    precision, recall, f1, rows = np.mean(np.array(each, float), axis=0)
    return [
        ClassResult(int(label), name, *map(float, (rows[i], precision[i], recall[i], f1[i])))
        for i, (label, name) in enumerate(zip(labels, _named(labels, names), strict=True))
    ]


def _labels_and_classes(
    method: MethodResult, client: int | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    for predictions in method.predictions.values():
        predicted, label = predictions.predicted, predictions.label
        if predicted is None or label is None:
            return []
        mine = slice(None) if client is None else predictions.client == client
        if len(label[mine]):
            found.append((label[mine], predicted[mine]))
    return found


def _all_labels(method: MethodResult) -> np.ndarray:
    """Every class that is there or can be predicted, the same for every client and method."""
    return np.arange(max(_classes(p) for p in method.predictions.values()))


def _classes(predictions: Predictions) -> int:
    assert predictions.output is not None
    assert predictions.label is not None
    wide = predictions.output.shape[1] if predictions.output.ndim == 2 else 2
    return max(wide, int(predictions.label.max(initial=0)) + 1)


def _named(labels: np.ndarray, names: tuple[str, ...] | None) -> tuple[str, ...]:
    known = names or ()
    return tuple(known[i] if i < len(known) else str(i) for i in map(int, labels))
