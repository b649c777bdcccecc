"""Examples that change hands: from clients to the server, and from the server to every client."""

import dataclasses

import numpy as np
from jax import tree

from holdfast.data.checks import check_counts, generator
from holdfast.data.clients import Clients, check_clients, concatenated, count
from holdfast.errors import HoldfastError, explain_arguments
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
    check_clients("share", clients, joined=False)
    together = concatenated("share", [clients.examples, examples])
    own, shared = count(clients.examples), count(examples)
    common = np.arange(own, own + shared)
    rows = [np.concatenate([clients.rows(i), common]) for i in range(len(clients))]
    return dataclasses.replace(
        Clients.from_rows(together, rows), names=clients.names, preprocessing=clients.preprocessing
    )


@explain_arguments
def collect(clients: Clients, senders: int, each: int, seed: int = 0) -> Tree:
    """What the server has if a few clients each send it a few of their examples.

    FSL's server data: 20 clients, 50 examples of each, both drawn uniformly without replacement, once
    before training. As in the paper the population stays as it is: senders keep what they send and
    take part like everybody else. A sender that has fewer than `each` sends all it has; clients
    without examples are not drawn. It is sent once, which no ledger of rounds shows.

    Args:
        clients: the population.
        senders: how many clients send.
        each: how many examples each of them sends.
        seed: the choice is a function of it.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=50, concentration=0.1)
        >>> sent = hf.data.collect(clients, senders=20, each=10)
        >>> sent.x.shape
        (200, 64)
        >>> server = hf.Server(sent, hf.Local(learning_rate=0.1, steps=5, batch_size=20))

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    check_clients("collect", clients, joined=False)
    check_counts("collect", senders=senders, each=each)
    able = np.flatnonzero(clients.sizes)
    if senders > len(able):
        raise HoldfastError(
            f"collect: {senders} senders of {len(able)} clients with examples; give at most "
            f"{len(able)}.",
            about=("clients",),
        )
    rng = generator(seed)
    chosen = rng.choice(able, senders, replace=False)
    rows = np.concatenate([rng.permutation(clients.rows(i))[:each] for i in chosen])
    return tree.map(lambda a: np.asarray(a)[rows], clients.examples)
