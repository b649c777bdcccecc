"""The FLIX objective of any model, minimised by a solver at the server."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

import holdfast as hf


def stack(clients: hf.Clients) -> Any:
    """Examples along a leading axis of clients, who all have equally many."""
    return tree.map(lambda *parts: np.stack(parts), *clients)


def initial(model: hf.Model, clients: hf.Clients, seed: int) -> Any:
    """Where every search begins: `hf.flix.local_optima` with this seed starts there too."""
    nothing = hf.Local(1.0, steps=1)
    run = hf.simulate(hf.algorithms.fedavg(), model, clients, nothing, 0, seed=seed, progress=False)
    return run.params


def _objective(model: hf.Model, alpha: Any, own: Any, examples: Any, x: Any) -> jax.Array:
    def of_one(mine: Any, some: Any) -> jax.Array:
        deployed = tree.map(lambda g, i: alpha * g + (1 - alpha) * i, x, mine)
        return model.loss(deployed, some)

    return jnp.mean(jax.vmap(of_one)(own, examples))


@functools.partial(jax.jit, static_argnames="model")
def objective(model: hf.Model, alpha: Any, own: Any, examples: Any, x: Any) -> jax.Array:
    r"""$\frac1n \sum_i f_i(\alpha x + (1 - \alpha) x_i)$ for stacked optima and examples.

    For an ensemble give `alpha=1`: its examples know their own alpha.
    """
    return _objective(model, alpha, own, examples, x)


@functools.partial(jax.jit, static_argnames="model")
def minimise(
    model: hf.Model, alpha: Any, own: Any, examples: Any, start: Any, search: hf.solvers.Solver
) -> hf.solvers.Optimum:
    """The objective's minimum near `start`, by one of `hf.solvers`."""

    def loss(x: Any) -> jax.Array:
        return _objective(model, alpha, own, examples, x)

    return search.minimise(loss, jax.grad(loss), start)
