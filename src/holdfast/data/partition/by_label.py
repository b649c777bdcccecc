"""Splits that deal out classes: few to each client, or all to everybody alike."""

from typing import Any

import numpy as np

from holdfast.data.checks import check_counts, generator
from holdfast.data.clients import Clients, count
from holdfast.data.labels import read_labels
from holdfast.data.partition.common import even_sizes, grouped
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.trees import Tree


@explain_arguments
def by_classes(
    data: Tree, clients: int, classes: int, seed: int = 0, labels: Any = None
) -> Clients:
    """Each client holds examples of so many classes only, drawn at random; 1 is the pathological split.

    A client's classes are distinct and drawn uniformly. The draw is balanced: each class has equally
    many holders (differing by one at most), so that none is left out, and its examples are shared
    evenly among them.

    Args:
        data: examples with labels in `.y`, or give `labels`.
        clients: number of clients.
        classes: how many classes each client holds.
        seed: the split is a function of it.
        labels: one integer per example, if not `data.y`.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.by_classes(train, clients=10, classes=2)
        >>> print(hf.data.split.sketch(clients, first=4))
        client  examples  classes
             0       144  · · · · · █ · · · █
             1       143  · · · · · · · █ · █
             2       146  · █ · · █ · · · · ·
             3       148  · · · · █ · █ · · ·
        █ is 52% of a client's examples; 6 more not shown
    """
    check_counts("partition", clients=clients)
    names, y = read_labels(data, labels, "partition.by_classes")
    check_counts("partition.by_classes", classes=classes)
    found = len(names)
    if not found:
        raise HoldfastError(
            "partition.by_classes: the data has no examples; give some.", about=("data",)
        )
    if classes > found:
        raise HoldfastError(
            f"partition.by_classes: classes={classes} of {found}; give 1..{found}.",
            about=("classes",),
        )
    if clients * classes < found:
        raise HoldfastError(
            f"partition.by_classes: {clients} clients with {classes} each cannot hold all "
            f"{found} classes; give more clients or more classes each.",
            about=("clients",),
        )
    rng = generator(seed)
    dealt = rng.permutation(_balanced_draw(rng, clients, classes, found)).reshape(-1)
    rows, owner = [], []
    for own, places in zip(_positions(y, found), _positions(dealt, found), strict=True):
        rows.append(rng.permutation(own))
        # Whoever comes first has one example more: not always the same clients.
        holders = rng.permutation(places // classes)
        owner.append(np.repeat(holders, even_sizes(len(own), len(holders))))
    owners = np.concatenate(owner)
    sizes = np.bincount(owners, minlength=clients)
    return grouped(data, np.concatenate(rows), owners, sizes)


@explain_arguments
def shards(
    data: Tree, clients: int, per_client: int = 2, seed: int = 0, labels: Any = None
) -> Clients:
    """FedAvg's pathological split: sorted by label, cut into shards, so many shards to each client.

    There are `clients * per_client` shards of equal size (differing by one at most); which client
    receives which is random. Most clients hold at most `per_client` classes; one whose shard lies
    across a border between classes may hold one more for each such shard.

    Args:
        data: examples with labels in `.y`, or give `labels`.
        clients: number of clients.
        per_client: shards each client receives; the paper has 2.
        seed: the split is a function of it.
        labels: one integer per example, if not `data.y`.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.shards(train, clients=50)
        >>> print(hf.data.split.sketch(clients, first=4))
        client  examples  classes
             0        28  · · · · · █ ▃ · · ·
             1        28  · · · · ▆ ▆ · · · ·
             2        30  ▆ · ▂ ▅ · · · · · ·
             3        28  · · · · · · ▆ · ▆ ·
        █ is 79% of a client's examples; 46 more not shown

    Reference: McMahan et al., "Communication-efficient learning of deep networks from decentralized
    data", 2017.
    """
    n = count(data)
    check_counts("partition", clients=clients)
    check_counts("partition.shards", per_client=per_client)
    _, y = read_labels(data, labels, "partition.shards")
    receiver = generator(seed).permutation(clients * per_client) // per_client
    owner = np.repeat(receiver, even_sizes(n, clients * per_client))
    rows = np.argsort(y, kind="stable")
    return grouped(data, rows, owner, np.bincount(owner, minlength=clients))


@explain_arguments
def stratified(data: Tree, clients: int, seed: int = 0, labels: Any = None) -> Clients:
    """Every client has the same share of each class; equal sizes (both differing by one at most).

    What `iid` is only on average: the perfect IID split of FedDyn's code. Shuffled, sorted by label
    and dealt out in turn.

    Args:
        data: examples with labels in `.y`, or give `labels`.
        clients: number of clients.
        seed: the split is a function of it.
        labels: one integer per example, if not `data.y`.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.stratified(train, clients=10)
        >>> clients
        Clients(10 with 143 to 144 examples, 1438 in all)
        >>> print(hf.data.split.sketch(clients, first=2))
        client  examples  classes
             0       144  █ █ █ █ █ █ █ █ ▇ █
             1       144  █ █ █ █ █ █ █ ▇ █ █
        █ is 10% of a client's examples; 8 more not shown

    Reference: Acar et al., "Federated learning based on dynamic regularization", 2021.
    """
    check_counts("partition", clients=clients)
    _, y = read_labels(data, labels, "partition.stratified")
    rng = generator(seed)
    mixed = rng.permutation(len(y))
    rows = mixed[np.argsort(y[mixed], kind="stable")]
    owner = rng.permutation(clients)[np.arange(len(y)) % clients]
    # A client's examples in random order, not by class.
    again = rng.permutation(len(y))
    rows, owner = rows[again], owner[again]
    return grouped(data, rows, owner, np.bincount(owner, minlength=clients))


def _balanced_draw(rng: np.random.Generator, clients: int, classes: int, found: int) -> np.ndarray:
    """Distinct classes for every client, one row each; every class in equally many rows."""
    places = rng.permutation(even_sizes(clients * classes, found))
    drawn = np.empty((clients, classes), np.int64)
    for row, left in zip(drawn, range(clients, 0, -1), strict=True):
        # A class with p places for the clients left is drawn with probability p / left: points `left`
        # apart fall on stretches of length p <= left, so on different ones.
        order = rng.permutation(found)
        points = rng.integers(left) + left * np.arange(classes)
        row[:] = order[np.searchsorted(np.cumsum(places[order]), points, side="right")]
        places[row] -= 1
    return drawn


def _positions(values: np.ndarray, classes: int) -> list[np.ndarray]:
    """Where each of 0, 1, ..., classes - 1 stands, in increasing order."""
    cuts = np.cumsum(np.bincount(values, minlength=classes))[:-1]
    return np.split(np.argsort(values, kind="stable"), cuts)
