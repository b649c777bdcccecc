"""Clients with little data share the optimum of a group."""

from typing import Any, NamedTuple

import numpy as np
from jax import tree

from holdfast.algorithms import fedavg
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.engine.simulate import simulate
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.flix.optima import Optima
from holdfast.models.model import Model
from holdfast.trees import Tree


class Shared(NamedTuple):
    """The optima of groups, one per client, and the bytes it took to find them."""

    optima: Optima
    bytes: int


@explain_arguments
def cluster(optima: Optima, groups: int, seed: int = 0) -> np.ndarray:
    """Group clients whose optima are near each other, by k-means: one label per client.

    To know which optima are near, somebody must see them: each client sends its own once. A client
    without data has none, and joins the largest group.

    Args:
        optima: `hf.flix.local_optima`.
        groups: how many.
        seed: of the first centres.

    Example:
        >>> import holdfast as hf, numpy as np
        >>> two_kinds = hf.flix.Optima(np.array([[0.0], [5.0], [0.1], [5.1]]), np.zeros(4))
        >>> labels = hf.flix.cluster(two_kinds, groups=2)
        >>> bool(labels[0] == labels[2] != labels[1] == labels[3])
        True
    """
    from sklearn.cluster import KMeans

    points = optima.flat()
    # Clients without data have no optimum that could be near to anything.
    able = ~np.isposinf(optima.gradient_norms)
    if not np.isfinite(points[able]).all():
        wrong = int(np.flatnonzero(able)[~np.isfinite(points[able]).all(axis=1)][0])
        raise HoldfastError(
            f"cluster: the optimum of client {wrong} is not finite; find it with a smaller step.",
            about=("optima",),
        )
    whole = isinstance(groups, int | np.integer)
    if not (whole and 1 <= groups <= able.sum()):
        raise HoldfastError(
            f"cluster: groups={groups}; give a whole number in 1..{able.sum()}, the clients that have data.",
            about=("groups",),
        )
    found = KMeans(int(groups), n_init=10, random_state=seed).fit_predict(points[able])
    labels = np.full(len(points), np.bincount(found).argmax())
    labels[able] = found
    return labels


@explain_arguments
def cluster_optima(
    model: Model,
    clients: Clients,
    labels: Any,
    local: Local,
    rounds: int,
    *,
    algorithm: Algorithm | None = None,
    seed: int = 0,
    params: Tree = None,
) -> Shared:
    """Let each group train a model together, and give it to all its members as their optimum.

    The authors' answer to clients with too little data for an optimum of their own. Within a group
    training is federated like any other: data stay where they are and every byte is counted.

    Args:
        model: the model.
        clients: the population.
        labels: the group of each client, from `hf.flix.cluster` or from what you know about them.
        local: what a client does in a round of its group.
        rounds: of each group.
        algorithm: how a group trains; FedAvg unless given.
        seed: all randomness is a function of it.
        params: initial parameters; the model's own unless given.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=4)
        >>> model, local = hf.models.softmax_regression(10), hf.Local(0.5, steps=5, batch_size=20)
        >>> shared = hf.flix.cluster_optima(model, clients, [0, 0, 1, 1], local, rounds=2)
        >>> personal = hf.algorithms.flix(alpha=0.5, solver=shared.optima.known())
    """
    groups = np.asarray(labels)
    if groups.shape != (len(clients),):
        raise HoldfastError(
            f"cluster_optima: labels of shape {groups.shape} for {len(clients)} clients; "
            f"give one label per client.",
            about=("labels",),
        )
    method = fedavg() if algorithm is None else algorithm
    models: list[Any] = [None] * len(clients)
    travelled = 0
    for label in np.unique(groups):
        members = np.flatnonzero(groups == label)
        own = clients.subset(members)
        if not own.sizes.any():
            raise HoldfastError(
                f"cluster_optima: group {label} has no data, so it can train no model; give its clients "
                f"({', '.join(map(str, members[:5]))}) the label of another group.",
                about=("labels",),
            )
        run = simulate(method, model, own, local, rounds, seed=seed, params=params, progress=False)
        travelled += run.ledger.total
        for i in members:
            models[i] = run.params
    stacked = tree.map(lambda *leaves: np.stack(leaves), *models)
    return Shared(Optima(stacked, np.full(len(clients), np.nan)), travelled)
