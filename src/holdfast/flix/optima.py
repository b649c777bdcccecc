"""Every client's own optimum, found once and used for many alphas."""

from typing import NamedTuple

import numpy as np
from jax import tree

from holdfast.core.algorithm import Algorithm
from holdfast.core.hyper import PerClient
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.engine.experiment import Experiment
from holdfast.engine.simulation import Simulation
from holdfast.errors import expect, explain_arguments
from holdfast.models.model import Model
from holdfast.rules import Flix
from holdfast.solvers import LBFGS, Known, Solver
from holdfast.trees import Tree

_FIND = LBFGS()


class Optima(NamedTuple):
    """Local optima along a leading axis, and how steep each client's loss still is there.

    Clients without data have the initial parameters and the norm infinity.
    """

    x: Tree
    gradient_norms: np.ndarray

    def known(self) -> Known:
        """The same as a solver: `hf.algorithms.flix(alpha, solver=optima.known())`."""
        return Known(tree.map(PerClient, self.x))

    def flat(self) -> np.ndarray:
        """One row of numbers per client, in 64 bits."""
        leaves = [np.asarray(leaf, np.float64) for leaf in tree.leaves(self.x)]
        return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


@explain_arguments
def local_optima(
    model: Model,
    clients: Clients,
    solver: Solver = _FIND,
    *,
    seed: int = 0,
    params: Tree = None,
) -> Optima:
    """Find every client's own optimum, as `hf.algorithms.flix` would. Nothing travels.

    Args:
        model: the model.
        clients: the population.
        solver: how, from `hf.solvers`.
        seed: of the initial parameters, from which every search starts.
        params: initial parameters instead.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=2)
        >>> search = hf.solvers.LBFGS(tolerance=0.1)
        >>> optima = hf.flix.local_optima(hf.models.softmax_regression(10), clients, search)
        >>> bool((optima.gradient_norms <= 0.1).all())
        True
    """
    expect("local_optima", "solver", solver, Solver, "hf.solvers.LBFGS()")
    algorithm = Algorithm(Flix(1.0, solver), name="local_optima")
    given = Experiment(algorithm, model, clients, Local(1.0), seed=seed, params=params)
    simulation = Simulation(given)
    start = simulation.begin().client_states
    sizes = clients.sizes
    states = [
        simulation.preparer.state_of(start, i).rule if sizes[i] else start.first.rule
        for i in range(len(clients))
    ]
    found = tree.map(lambda *leaves: np.stack(leaves), *states)
    return Optima(found.x, np.asarray(found.gradient_norm))
