"""Test examples for every client, with the labels it has."""

import dataclasses

import numpy as np

from holdfast.data.checks import generator
from holdfast.data.clients import Clients, Examples, check_clients
from holdfast.errors import explain_arguments


@explain_arguments
def matched_test(test: Examples, clients: Clients, seed: int = 0) -> Clients:
    """Test examples for each client in its own mix of labels; clients share test examples.

    Of each label a client gets as many test examples as it has for training, drawn without
    replacement (all there are, if it has more). So the accuracy on them is what the client would see
    itself. Where labels are no classes, everybody is tested on the whole set.

    Args:
        test: test examples.
        clients: the population, whose training examples have their labels in `.y`.
        seed: the choice is a function of it.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.by_classes(train, clients=10, classes=1)
        >>> mine = hf.data.matched_test(test, clients)[3]
        >>> len(set(mine.y.tolist()))
        1
    """
    check_clients("matched_test", clients)
    labels, given = np.asarray(clients.examples.y), np.asarray(test.y)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        everything = [np.arange(len(given))] * len(clients)
        return _named(test, everything, clients)
    rng = generator(seed)
    values = np.unique(labels)
    stock = [rng.permutation(np.flatnonzero(given == v)) for v in values]
    place = np.searchsorted(values, labels)
    rows = []
    for i in range(len(clients)):
        wanted = np.bincount(place[clients.rows(i)], minlength=len(values))
        # A different stretch of a label's examples for each client, without drawing again.
        parts = [_stretch(s, n, i) for s, n in zip(stock, wanted, strict=True) if n]
        rows.append(np.concatenate(parts) if parts else np.zeros(0, np.int64))
    return _named(test, rows, clients)


def _named(test: Examples, rows: list[np.ndarray], clients: Clients) -> Clients:
    """Whose test examples these are, by the names that clients have."""
    return dataclasses.replace(Clients.from_rows(test, rows), names=clients.names)


def _stretch(stock: np.ndarray, size: int, client: int) -> np.ndarray:
    if size >= len(stock):
        return stock
    begin = (client * size) % len(stock)
    return np.take(stock, np.arange(begin, begin + size), mode="wrap")
