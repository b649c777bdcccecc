"""A penalty of the parameters in the loss of any model."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.constructor import rebuildable
from holdfast.models.model import Model
from holdfast.trees import Tree


@explain_arguments
@rebuildable
def regularised(model: Model, l2: float) -> Model:
    r"""The model with a penalty of all its parameters, biases too, in loss and metric `loss`.

    $$ \ell(w) + \tfrac{\lambda}{2} \|w\|^2 $$

    Where $\ell$ is convex the sum is $\lambda$-strongly convex, which budgets of FLIX rest on. The
    gradient is that of `hf.Local(weight_decay=...)`; there it is no part of what is measured. Rows of
    a table that a client does not use are penalised too, so such a model takes no `select`.

    Args:
        model: any model.
        l2: $\lambda$, not negative; 0 is the model itself.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> model = hf.Model(lambda key, examples: jnp.zeros(2), lambda w, batch: batch.x @ w)
        >>> batch = hf.Examples(jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.zeros(2))
        >>> hf.models.regularised(model, l2=0.1).loss(jnp.array([1.0, 3.0]), batch).tolist()
        [1.5, 3.5]
    """
    return _regularised(model, check_l2(l2, "regularised")) if l2 else model


@functools.lru_cache(maxsize=64)
def _regularised(model: Model, l2: float) -> Model:
    def loss(params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        return model.loss(params, batch, key) + penalty(l2, params)

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        found = model.measure(params, batch)
        return found | {"loss": found["loss"] + penalty(l2, params)} if "loss" in found else found

    linear = model.linear
    return dataclasses.replace(
        model,
        loss=loss,
        metrics=metrics,
        name=f"regularised({model.name}, l2={l2})",
        tables=(),
        l2=model.l2 + l2,
        linear=linear and dataclasses.replace(linear, l2=linear.l2 + l2),
    )


def penalty(l2: float, params: Tree) -> Any:
    """Half the sum of squares of all parameters, times `l2`."""
    return l2 / 2 * sum(jnp.vdot(p, p) for p in tree.leaves(params)) if l2 else 0


def check_l2(l2: float, owner: str) -> float:
    """A penalty's weight as a number; refuses a negative one."""
    if not 0 <= l2 < math.inf:
        raise HoldfastError(f"{owner}: l2={l2}; give a number of at least 0.", about=("l2",))
    return float(l2)
