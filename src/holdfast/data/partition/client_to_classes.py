"""Label skew from the clients' side: every client has a distribution over classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.checks import check_counts, generator
from holdfast.data.clients import Clients
from holdfast.data.labels import read_labels
from holdfast.data.partition.common import (
    check_concentration,
    grouped,
    log_gamma,
    lognormal_sizes,
)
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.trees import Tree

_BLOCK = 2**20  # numbers held at once while classes are drawn


@explain_arguments
def dirichlet(
    data: Tree,
    clients: int,
    concentration: float,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
    labels: Any = None,
    sigma: float = 0.0,
) -> Clients:
    """Label skew as in FedDyn: each client draws class priors from Dirichlet(concentration).

    Sizes are exact: equal (differing by one at most), lognormal, or as given. Again and again a random
    client with room left draws a class from its prior, once more if that class is used up, and takes
    an example of it. The published loop never ends once a client's remaining classes have no mass;
    here priors are kept as logarithms, so what is left always has some.

    Args:
        data: examples with labels in `.y`, or give `labels`.
        clients: number of clients.
        concentration: small means few classes per client; 0.3 is the papers' usual value.
        seed: the split is a function of it.
        sizes: examples per client.
        labels: one integer per example, if not `data.y`.
        sigma: above 0 sizes are those of `lognormal`.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> for concentration in (100.0, 0.3):
        ...     clients = hf.data.partition.dirichlet(train, 50, concentration)
        ...     print(hf.data.split.sketch(clients, first=3))
        client  examples  classes
             0        29  ▃ ▄ ▃ ▂ ▆ ▆ ▃ ▂ █ ▆
             1        29  ▄ ▃ ▄ ▆ ▂ ▆ ▄ ▃ ▆ ▄
             2        29  ▃ ▆ ▄ ▄ ▆ ▃ ▄ ▆ ▆ ·
        █ is 21% of a client's examples; 47 more not shown
        client  examples  classes
             0        29  █ ▅ ▁ ▄ ▁ ▁ · ▁ · ▁
             1        29  ▆ · ▆ · ▁ · ▃ · ▃ ▃
             2        29  · █ · · ▂ ▃ · · █ ·
        █ is 41% of a client's examples; 47 more not shown
        >>> hf.data.partition.dirichlet(train, clients=50, concentration=0.3, sigma=0.5)
        Clients(50 with 8 to 65 examples, 1438 in all)

    Reference: Acar et al., "Federated learning based on dynamic regularization", 2021.
    """
    names, y = read_labels(data, labels, "partition.dirichlet")
    classes = len(names)
    check_concentration(concentration, "dirichlet")
    n, rng = len(y), generator(seed)
    wanted = _sizes(rng, n, clients, sizes, sigma)
    # In logarithms: at small concentrations gamma variates underflow to zero for every class.
    log_prior = log_gamma(rng, concentration, (clients, classes))
    left = np.bincount(y, minlength=classes)
    stock = np.argsort(y[(shuffled := rng.permutation(n))], kind="stable")
    stock, starts = shuffled[stock], np.concatenate([[0], np.cumsum(left)[:-1]]).astype(np.int64)

    places = _turns(rng, wanted)
    owner, drawn = np.full(n, -1), np.zeros(len(places), np.int64)
    refused = np.ones(len(places), bool)
    # Every pass but the last uses up a class, so there are at most C + 1.
    while len(places):
        drawn[refused] = _draw_classes(rng, log_prior, places[refused], left)
        by_class = np.argsort(drawn, kind="stable")
        asked = np.bincount(drawn, minlength=classes)
        first = np.cumsum(asked) - asked
        # What was drawn stands until a class is used up. Those who draw that one later draw again.
        full = np.flatnonzero((left > 0) & (asked >= left))
        end = int(by_class[first[full] + left[full] - 1].min(initial=len(places) - 1)) + 1
        turn = np.arange(len(places)) - np.repeat(first, asked)
        served = by_class < end
        row = (starts[drawn[by_class]] + turn)[served]
        owner[stock[row]] = places[by_class[served]]
        given = np.bincount(drawn[:end], minlength=classes)
        starts, left = starts + given, left - given
        places, drawn = places[end:], drawn[end:]
        refused = left[drawn] == 0
    chosen = rng.permutation(np.flatnonzero(owner >= 0))
    return grouped(data, chosen, owner[chosen], wanted)


def _sizes(
    rng: np.random.Generator, n: int, clients: int, sizes: Sequence[int] | None, sigma: float
) -> np.ndarray:
    if sizes is None:
        return lognormal_sizes(rng, n, clients, sigma, "dirichlet")
    if sigma != 0:
        raise HoldfastError(
            f"partition.dirichlet: sizes and sigma={sigma}; give one of them.", about=("sigma",)
        )
    check_counts("partition", clients=clients)
    wanted = np.asarray(sizes)
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
        raise HoldfastError(
            f"partition.dirichlet: sizes={sizes!r}; give {clients} whole numbers.", about=("sizes",)
        )
    if len(wanted) != clients or wanted.min() < 0 or wanted.sum() > n:
        raise HoldfastError(
            f"partition.dirichlet: sizes are {len(wanted)} numbers adding up to {wanted.sum()}; "
            f"give {clients}, not negative, of at most {n} in all.",
            about=("sizes",),
        )
    return wanted


def _turns(rng: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
    """The clients in the order of their draws: each next one is any client with room, all equally likely."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    # Clocks that tick alike for everybody and stop at a client's last example: who ticks next is
    # equally likely any of those that have not stopped.
    ticks = np.cumsum(rng.standard_exponential(len(owner)))
    begun = np.concatenate([[0.0], ticks])[np.cumsum(sizes) - sizes]
    return owner[np.argsort(ticks - np.repeat(begun, sizes), kind="stable")]


def _draw_classes(
    rng: np.random.Generator, log_prior: np.ndarray, places: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """One class per place, from its client's prior restricted to classes that are left."""
    u = rng.random(len(places))
    by_client = np.argsort(places, kind="stable")
    asking, first = np.unique(places[by_client], return_index=True)
    ends = np.append(first[1:], len(places))
    drawn = np.empty(len(places), np.int64)
    step = max(1, _BLOCK // len(left))
    for begin in range(0, len(asking), step):
        block = asking[begin : begin + step]
        own = by_client[first[begin] : ends[begin + len(block) - 1]]
        open_ = np.where(left > 0, log_prior[block], -np.inf)
        weight = np.exp(open_ - open_.max(axis=1, keepdims=True))
        cumulative = np.cumsum(weight, axis=1)
        row = np.searchsorted(block, places[own])
        drawn[own] = _first_above(cumulative, row, u[own] * cumulative[row, -1])
    last_open = int(np.flatnonzero(left > 0)[-1])
    return np.minimum(drawn, last_open)


def _first_above(cumulative: np.ndarray, row: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The first column of its row above each value, by bisection."""
    low = np.zeros(len(row), np.int64)
    high = np.full(len(row), cumulative.shape[1])
    for _ in range(int(cumulative.shape[1]).bit_length()):
        middle = (low + high) // 2
        searching = low < high
        at_most = cumulative[row, np.minimum(middle, cumulative.shape[1] - 1)] <= value
        low = np.where(searching & at_most, middle + 1, low)
        high = np.where(searching & ~at_most, middle, high)
    return low
