"""Weights of classes in the loss of any classifier."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.constructor import rebuildable
from holdfast.models.model import Model
from holdfast.models.regularised import penalty
from holdfast.trees import Tree


@explain_arguments
@rebuildable
def class_weighted(model: Model, weights: Sequence[float]) -> Model:
    r"""The model with the loss of each example multiplied by the weight of its class.

    $$ w_y\, \ell(x, y) + \tfrac{\lambda}{2} \|w\|^2 $$

    As scikit-learn's `class_weight`: the penalty `l2` of the model, if it has one, is not multiplied. What
    is measured stays as it was: every example counts once, also in the metric `loss`. In an experiment
    file `class_weight = "balanced"` in `[data]` with a table.

    Args:
        model: a classifier, with one whole-numbered label per example.
        weights: one above 0 for each class.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> model = hf.models.logistic_regression(intercept=False)
        >>> batch = hf.Examples(jnp.array([[1.0], [1.0]]), jnp.array([0, 1]))
        >>> params = {"weights": jnp.array([0.0])}
        >>> model.loss(params, batch).round(2).tolist()
        [0.6899999976158142, 0.6899999976158142]
        >>> hf.models.class_weighted(model, [1.0, 3.0]).loss(params, batch).round(2).tolist()
        [0.6899999976158142, 2.0799999237060547]
    """
    given = tuple(float(weight) for weight in weights)
    if len(given) < 2 or not all(0 < weight < np.inf for weight in given):
        raise HoldfastError(
            f"class_weighted: weights={list(given)}; give a number above 0 for each class.",
            about=("weights",),
        )
    return _class_weighted(model, given)


@functools.lru_cache(maxsize=64)
def _class_weighted(model: Model, weights: tuple[float, ...]) -> Model:
    table = np.asarray(weights)

    def loss(params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        losses = model.loss(params, batch, key)
        weight = jnp.asarray(table, losses.dtype)[batch.y.astype(jnp.int32)]
        return weight * losses - (weight - 1) * penalty(model.l2, params)

    def check(examples: Tree) -> None:
        if model.check is not None:
            model.check(examples)
        labels = np.asarray(examples.y)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise HoldfastError(
                f"class_weight: labels are {labels.dtype} of shape {labels.shape}; give one class for each "
                f"example, or no weights.",
                about=("data",),
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(weights):
            raise HoldfastError(
                f"class_weight: labels from {labels.min()} to {labels.max()} and {len(weights)} weights; "
                f"give one for each class.",
                about=("data",),
            )

    def design(examples: Tree) -> np.ndarray:
        assert model.linear is not None
        # Curvature is quadratic in the rows.
        return model.linear.design(examples) * np.sqrt(table[np.asarray(examples.y)])[:, None]

    linear = model.linear
    if linear is not None:
        linear = dataclasses.replace(linear, design=design)
    return dataclasses.replace(
        model,
        loss=loss,
        metrics=model.measure,
        check=check,
        name=f"class_weighted({model.name}, {list(weights)})",
        linear=linear,
        class_weights=weights,
    )
