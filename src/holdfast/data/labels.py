"""Labels as classes: 0, 1, ... in sorted order."""

from typing import Any

import numpy as np

from holdfast.data.clients import count
from holdfast.errors import HoldfastError
from holdfast.trees import Tree


def read_labels(data: Tree, labels: Any, who: str) -> tuple[np.ndarray, np.ndarray]:
    """The different labels, sorted, and which of them every example has.

    Args:
        data: examples with labels in `.y`, or give `labels`.
        labels: one per example.
        who: asks for them; messages begin with it.

    Example:
        >>> names, y = read_labels(np.zeros((3, 2)), ["owl", "cat", "owl"], "split")
        >>> names.tolist(), y.tolist()
        (['cat', 'owl'], [1, 0, 1])
    """
    n = count(data)
    if labels is None and not hasattr(data, "y"):
        raise HoldfastError(
            f"{who}: data has no `.y`; give labels=, one per example.", about=("labels",)
        )
    given = np.asarray(data.y if labels is None else labels)
    if given.shape != (n,):
        raise HoldfastError(
            f"{who}: labels of shape {given.shape}; give {n} by labels=, one per example.",
            about=("labels",),
        )
    return classes_of(given, who, "labels")


def classes_of(given: np.ndarray, who: str, argument: str) -> tuple[np.ndarray, np.ndarray]:
    """The different values, sorted, and which of them each is; refuses what has no order."""
    missing = given.dtype.kind == "f" and np.isnan(given)
    if np.any(missing):
        row = int(np.flatnonzero(missing)[0])
        raise HoldfastError(
            f"{who}: {argument} has NaN, first in row {row}; give every example one.",
            about=(argument,),
        )
    try:
        return np.unique(given, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in given})
        raise HoldfastError(
            f"{who}: {argument} has values of types {', '.join(kinds)}, which have no order; give "
            f"one type.",
            about=(argument,),
        ) from None
