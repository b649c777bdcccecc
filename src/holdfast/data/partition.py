"""Ways to split a data set over clients: deterministic from a seed, without replacement, always ending."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.clients import Clients, count
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.trees import Tree


def _even_sizes(examples: int, clients: int) -> np.ndarray:
    if not isinstance(clients, int | np.integer) or clients < 1:
        raise HoldfastError(f"partition: clients={clients!r}; give a whole number of at least 1.")
    return np.full(clients, examples // clients) + (np.arange(clients) < examples % clients)


@explain_arguments
def iid(data: Tree, clients: int, seed: int = 0) -> Clients:
    """Shuffle, then equal sizes (differing by one at most)."""
    n = count(data)
    sizes = _even_sizes(n, clients)
    order = np.random.default_rng(seed).permutation(n)
    return Clients(data, order, np.concatenate([[0], np.cumsum(sizes)]))


@explain_arguments
def in_order(data: Tree, clients: int) -> Clients:
    r"""Stored order, cut into equal sizes (differing by one at most), as studies of convex problems do.

    Of $r$ examples, client $i = 0, \dots, n - 1$ owns rows
    $\lfloor i r / n \rfloor, \dots, \lfloor (i + 1) r / n \rfloor - 1$.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> split = hf.data.partition.in_order(hf.Examples(np.zeros((7, 1)), np.arange(7)), clients=3)
        >>> [part.y.tolist() for part in split]
        [[0, 1], [2, 3], [4, 5, 6]]
    """
    n = count(data)
    _even_sizes(n, clients)  # refuses numbers of clients that make no sense
    return Clients(data, np.arange(n), np.arange(clients + 1) * n // clients)


@explain_arguments
def by(data: Tree, client_of_row: Any) -> Clients:
    """A natural split: rows with the same value belong together, in stored order.

    Clients are numbered by sorted value.
    """
    owner = np.asarray(client_of_row)
    if len(owner) != count(data):
        raise HoldfastError(
            f"partition.by: {len(owner)} owners for {count(data)} examples; give one per example."
        )
    _, sizes = np.unique(owner, return_counts=True)
    order = np.argsort(owner, kind="stable")
    return Clients(data, order, np.concatenate([[0], np.cumsum(sizes)]))


@explain_arguments
def dirichlet(
    data: Tree,
    clients: int,
    concentration: float,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
    labels: Any = None,
) -> Clients:
    """Label skew as in FedDyn: each client draws class priors from Dirichlet(concentration).

    Sizes are exact: equal (differing by one at most), or as given. In random order each free place
    draws a class from its client's prior; a class that is used up is drawn no more. The published
    loop never ends once a client's remaining classes have no mass; here priors are kept as
    logarithms, so what is left always has some.

    Args:
        data: examples with labels in `.y`, or give `labels`.
        clients: number of clients.
        concentration: small means few classes per client; 0.3 is the papers' usual value.
        seed: the split is a function of it.
        sizes: examples per client.
        labels: one integer per example, if not `data.y`.
    """
    n = count(data)
    if labels is None and not hasattr(data, "y"):
        raise HoldfastError("partition.dirichlet: data has no `.y`; give labels=, one per example.")
    classes, y = np.unique(np.asarray(data.y if labels is None else labels), return_inverse=True)
    if len(y) != n:
        raise HoldfastError(
            f"partition.dirichlet: {len(y)} labels for {n} examples; give one each."
        )
    if not concentration > 0:
        raise HoldfastError(
            f"partition.dirichlet: concentration={concentration}; give a number above 0."
        )
    wanted = _even_sizes(n, clients) if sizes is None else np.asarray(sizes)
    if len(wanted) != clients or wanted.min() < 0 or wanted.sum() > n:
        raise HoldfastError(
            f"partition.dirichlet: sizes are {len(wanted)} numbers adding up to {wanted.sum()}; "
            f"give {clients}, not negative, of at most {n} in all."
        )
    rng = np.random.default_rng(seed)
    # In logarithms: at small concentrations gamma variates underflow to zero for every class.
    log_prior = _log_gamma(rng, concentration, (clients, len(classes)))
    left = np.bincount(y, minlength=len(classes))
    stock = np.argsort(y[(shuffled := rng.permutation(n))], kind="stable")
    stock, starts = shuffled[stock], np.concatenate([[0], np.cumsum(left)[:-1]])

    places = rng.permutation(np.repeat(np.arange(clients), wanted))
    owner = np.full(n, -1)
    while len(places):  # every pass but the last uses up a class, so there are at most C + 1
        drawn = _draw_classes(rng, log_prior, places, left)
        refused = []
        for c in np.flatnonzero(np.bincount(drawn, minlength=len(classes))):
            asking = places[drawn == c]
            served = asking[: left[c]]
            owner[stock[starts[c] : starts[c] + len(served)]] = served
            starts[c] += len(served)
            left[c] -= len(served)
            refused.append(asking[len(served) :])
        places = rng.permutation(np.concatenate(refused))
    chosen = np.flatnonzero(owner >= 0)
    chosen = rng.permutation(chosen)
    order = chosen[np.argsort(owner[chosen], kind="stable")]
    return Clients(data, order, np.concatenate([[0], np.cumsum(wanted)]))


@explain_arguments
def by_classes(
    data: Tree, clients: int, classes: int, seed: int = 0, labels: Any = None
) -> Clients:
    """Each client holds examples of so many classes only; 1 is the pathological split.

    Classes are dealt out in turn, so that each is held by equally many clients (differing by one at
    most), and a class's examples are shared evenly among its holders.

    Args:
        data: examples with labels in `.y`, or give `labels`.
        clients: number of clients.
        classes: how many classes each client holds.
        seed: the split is a function of it.
        labels: one integer per example, if not `data.y`.
    """
    _even_sizes(count(data), clients)
    y = np.asarray(data.y if labels is None else labels)
    found = np.unique(y)
    if not 1 <= classes <= len(found):
        raise HoldfastError(
            f"partition.by_classes: classes={classes} of {len(found)}; give 1..{len(found)}."
        )
    if clients * classes < len(found):
        raise HoldfastError(
            f"partition.by_classes: {clients} clients with {classes} each cannot hold all "
            f"{len(found)} classes; give more clients or more classes each."
        )
    rng = np.random.default_rng(seed)
    dealt = rng.permutation(found)[np.arange(clients * classes) % len(found)]
    holder = rng.permutation(clients).repeat(classes)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label in found:
        holders = holder[dealt == label]
        rows = rng.permutation(np.flatnonzero(y == label))
        for i, part in zip(holders, np.array_split(rows, len(holders)), strict=True):
            parts[i].append(part)
    return Clients.from_rows(data, [np.concatenate(p) for p in parts])


def _log_gamma(rng: np.random.Generator, shape: float, size: tuple[int, int]) -> np.ndarray:
    # log Gamma(a) = log Gamma(a + 1) + log(U) / a, exact also where Gamma(a) underflows.
    return np.log(rng.standard_gamma(shape + 1.0, size)) + np.log1p(-rng.random(size)) / shape


def _draw_classes(
    rng: np.random.Generator, log_prior: np.ndarray, places: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """One class per place, from its client's prior restricted to classes that are left."""
    open_ = np.where(left > 0, log_prior, -np.inf)
    weight = np.exp(open_ - open_.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weight, axis=1)
    u = rng.random(len(places)) * cumulative[places, -1]
    drawn = np.empty(len(places), np.int64)
    for begin in range(0, len(places), 65536):  # bounded memory at a million examples
        part = slice(begin, begin + 65536)
        drawn[part] = (cumulative[places[part]] <= u[part, None]).sum(axis=1)
    last_open = int(np.flatnonzero(left > 0)[-1])
    return np.minimum(drawn, last_open)
