"""Splits that do not look at labels."""

from typing import Any

import numpy as np

from holdfast.data.checks import check_counts, generator
from holdfast.data.clients import Clients, count
from holdfast.data.labels import classes_of
from holdfast.data.partition.common import even_sizes, lognormal_sizes
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.trees import Tree


@explain_arguments
def iid(data: Tree, clients: int, seed: int = 0) -> Clients:
    """Shuffle, then equal sizes (differing by one at most).

    Args:
        data: examples, with or without labels.
        clients: number of clients.
        seed: the split is a function of it.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=10)
        >>> clients
        Clients(10 with 143 to 144 examples, 1438 in all)
        >>> print(hf.data.split.sketch(clients, first=4))
        client  examples  classes
             0       144  ▆ ▇ ▅ ▆ ▆ ▅ ▅ ▆ ▅ ▆
             1       144  ▄ ▄ █ ▆ ▆ ▆ ▆ ▆ ▇ ▅
             2       144  ▇ ▄ ▄ ▆ ▇ ▆ ▆ ▄ ▄ █
             3       144  ▅ ▆ ▄ ▆ ▆ ▆ ▆ █ ▆ ▆
        █ is 15% of a client's examples; 6 more not shown
    """
    n = count(data)
    sizes = even_sizes(n, clients)
    order = generator(seed).permutation(n)
    return Clients(data, order, np.concatenate([[0], np.cumsum(sizes)]))


@explain_arguments
def lognormal(data: Tree, clients: int, sigma: float, seed: int = 0) -> Clients:
    r"""Shuffle, then lognormal sizes: client $i$ owns a share proportional to $e^{\sigma z_i}$.

    With $z_i \sim N(0, 1)$, FedDyn's unbalanced data. The authors' code gives what rounding leaves to
    the first client; here it goes, one each, to the clients that rounding cost most, since with many
    clients it is much.

    Args:
        data: examples, with or without labels.
        clients: number of clients.
        sigma: deviation of the logarithm of a size; 0 is `iid`'s sizes, the paper has 0.3.
        seed: the split is a function of it.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.lognormal(train, clients=10, sigma=1.0)
        >>> clients
        Clients(10 with 29 to 376 examples, 1438 in all)
        >>> sorted(clients.sizes.tolist())
        [29, 51, 60, 89, 113, 116, 147, 194, 263, 376]

    Reference: Acar et al., "Federated learning based on dynamic regularization", 2021.
    """
    rng = generator(seed)
    n = count(data)
    sizes = lognormal_sizes(rng, n, clients, sigma, "lognormal")
    return Clients(data, rng.permutation(n), np.concatenate([[0], np.cumsum(sizes)]))


@explain_arguments
def in_order(data: Tree, clients: int) -> Clients:
    r"""Stored order, cut into equal sizes (differing by one at most), as studies of convex problems do.

    Of $r$ examples, client $i = 0, \dots, n - 1$ owns rows
    $\lfloor i r / n \rfloor, \dots, \lfloor (i + 1) r / n \rfloor - 1$.

    Args:
        data: examples in their stored order.
        clients: number of clients.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> split = hf.data.partition.in_order(hf.Examples(np.zeros((7, 1)), np.arange(7)), clients=3)
        >>> [part.y.tolist() for part in split]
        [[0, 1], [2, 3], [4, 5, 6]]
    """
    n = count(data)
    check_counts("partition", clients=clients)
    return Clients(data, np.arange(n), np.arange(clients + 1) * n // clients)


@explain_arguments
def by(data: Tree, client_of_row: Any) -> Clients:
    """A natural split: rows with the same value belong together, in stored order.

    Clients are numbered by sorted value.

    Args:
        data: examples, with or without labels.
        client_of_row: whose each example is: names, numbers or anything else that can be sorted.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> data = hf.Examples(np.zeros((4, 1)), np.arange(4))
        >>> [part.y.tolist() for part in hf.data.partition.by(data, ["b", "a", "b", "c"])]
        [[1], [0, 2], [3]]
    """
    owner = np.asarray(client_of_row)
    if owner.shape != (count(data),):
        raise HoldfastError(
            f"partition.by: owners of shape {owner.shape} for {count(data)} examples; give one per "
            f"example.",
            about=("client_of_row",),
        )
    names, owner = classes_of(owner, "partition.by", "client_of_row")
    sizes = np.bincount(owner, minlength=len(names))
    order = np.argsort(owner, kind="stable")
    return Clients(data, order, np.concatenate([[0], np.cumsum(sizes)]))
