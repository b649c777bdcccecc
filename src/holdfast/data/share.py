"""Data sharing: the server's examples handed to every client."""

import numpy as np
from jax import tree

from holdfast.data.clients import Clients, count
from holdfast.trees import Tree


def share(clients: Clients, examples: Tree) -> Clients:
    """Every client's data with the server's examples appended: a baseline of server learning.

    Costs every client the server's data once, which no ledger of rounds shows.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=10)
        >>> hf.data.share(clients, test).sizes.max() - clients.sizes.max()
        np.int64(359)
    """
    own, shared = count(clients.examples), count(examples)
    together = tree.map(
        lambda a, b: np.concatenate([np.asarray(a), np.asarray(b)]), clients.examples, examples
    )
    common = np.arange(own, own + shared)
    rows = [np.concatenate([clients.rows(i), common]) for i in range(len(clients))]
    return Clients.from_rows(together, rows)
