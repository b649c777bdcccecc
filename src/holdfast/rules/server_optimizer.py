"""FedAdam, FedYogi, FedAvgM: an optimiser at the server."""

import dataclasses
from collections.abc import Callable

import jax
import optax

from holdfast.core.hyper import Hyper
from holdfast.core.rule import Rule, ServerView, State
from holdfast.core.struct import static
from holdfast.trees import Tree, neg


class ServerOptimizer(Rule):
    r"""The mean delta is a pseudo-gradient for any optax optimiser.

    $$ x \leftarrow x + \mathrm{update}(-\overline{d}) $$

    Travels: nothing more than without it.

    Args:
        optimizer: an optax optimiser (`optax.adam(0.1)`), or the function that makes one
            (`optax.adam`) with its numbers in `settings`: these may then change without compiling
            anew, and follow schedules over rounds.
        settings: keyword arguments of that function.

    Reduces to: no server optimiser with `optax.sgd` and `learning_rate=1`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> import optax
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> falling = hf.schedules.exponential(0.5, 0.5)
        >>> rule = hf.rules.ServerOptimizer(optax.adam, {"learning_rate": falling})
        >>> states = hf.rounds(hf.Algorithm(rule), model, clients, local)
        >>> [round(next(states).params["weights"].item(), 2) for _ in range(5)]
        [0.5, 0.74, 0.86, 0.92, 0.95]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """

    optimizer: Callable[..., optax.GradientTransformation] | optax.GradientTransformation = static()
    settings: dict[str, Hyper] = dataclasses.field(default_factory=dict)

    def _transform(self) -> optax.GradientTransformation:
        if isinstance(self.optimizer, optax.GradientTransformation):
            return self.optimizer
        return self.optimizer(**self.settings)

    def init(self, params: Tree) -> State:
        return State(server=self._transform().init(params))

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        # Optax mixes counters and decay rates.
        with jax.numpy_dtype_promotion("standard"):
            return self._transform().update(neg(delta), at.state, at.x)
