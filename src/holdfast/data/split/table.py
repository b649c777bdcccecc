"""How many examples of each class each client owns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.clients import Clients, check_clients
from holdfast.data.grouped import Grouped
from holdfast.data.labels import read_labels
from holdfast.errors import HoldfastError, explain_arguments

# Numbers in a table; above, it would need gigabytes.
_MOST_COUNTS = 2**28


@explain_arguments
def counts(clients: Clients, labels: Any = None) -> np.ndarray:
    """How many examples of each class each client owns: an array (clients, classes).

    Classes are the different labels of `clients.examples`, in sorted order.

    Args:
        clients: the population.
        labels: one per example of `clients.examples`; its `.y` unless given.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> data = hf.Examples(np.zeros((5, 1)), np.array([0, 1, 1, 2, 0]))
        >>> hf.data.split.counts(hf.data.partition.by(data, ["a", "a", "a", "b", "b"]))
        array([[1, 2, 0],
               [1, 0, 1]])
    """
    found = owned_labels(clients, labels)
    if found is None:
        raise HoldfastError(
            "split.counts: `.y` holds no classes; give labels=, one per example.", about=("labels",)
        )
    names, y = found
    n, classes = len(clients), len(names)
    if n * classes > _MOST_COUNTS:
        raise HoldfastError(
            f"split.counts: {n} clients by {classes} classes do not fit into memory; take some "
            f"clients by clients.subset, or use split.statistics."
        )
    key = owners(clients) * classes + y
    return np.bincount(key, minlength=n * classes).reshape(n, classes)


def class_names(clients: Clients, names: Sequence[str]) -> list[str]:
    """What the columns of `counts` are called: of labels 0, 1, ... those that an example has."""
    found = np.unique(np.asarray(clients.examples.y)).tolist()
    return [names[k] if 0 <= k < len(names) else str(k) for k in found]


def has_classes(clients: Clients) -> bool:
    """Whether examples belong to classes, by which a split can be shown."""
    if not clients.here:
        return False
    if isinstance(clients.examples, Grouped):
        columns = {whose.column("y") for whose in clients.examples.whose}
        if columns != {"y"}:
            return False
    labels = np.asarray(getattr(clients.examples, "y", 0.0))
    return labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)


def owned_labels(clients: Clients, labels: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The classes, sorted, and the class of each owned example, client by client.

    None where labels are not given and `.y` is no whole number per example: it is then a target of
    regression, a text, or not there.
    """
    check_clients("split", clients)
    if labels is None:
        own = np.asarray(getattr(clients.examples, "y", 0.0))
        if own.ndim != 1 or own.dtype.kind not in "biuSUO":
            return None
    names, y = read_labels(clients.examples, labels, "split")
    return names, y[clients.order]


def owners(clients: Clients) -> np.ndarray:
    """Whose each owned example is, client by client."""
    return np.repeat(np.arange(len(clients)), clients.sizes)


def nonzero_counts(
    owner: np.ndarray, y: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Client, class and number of examples, where there are any; sorted by client, then class."""
    key, amount = np.unique(owner * classes + y, return_counts=True)
    return key // classes, key % classes, amount
