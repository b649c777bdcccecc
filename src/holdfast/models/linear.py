"""Logistic regression and least squares: convex, with constants that can be computed."""

import dataclasses
import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.constructor import rebuildable
from holdfast.models.initial import Init, initialised
from holdfast.models.model import (
    GeneralisedLinear,
    Model,
    Predictor,
    binary_metrics,
    design_matrix,
    regression_metrics,
)
from holdfast.models.regularised import check_l2, penalty
from holdfast.trees import Tree


@explain_arguments
@rebuildable
def logistic_regression(l2: float = 0.0, intercept: bool = True, init: Init = "zeros") -> Model:
    r"""Logistic regression for labels 0 and 1, on flattened inputs.

    With $u = w^\top x + b$ for an example and $y$ its label,

    $$ \ell = \log(1 + e^u) - y u + \tfrac{\lambda}{2} \big(\|w\|^2 + b^2\big) $$

    The penalty acts on the intercept too, so that the loss is $\lambda$-strongly convex. The metric
    `loss` contains it.

    Args:
        l2: $\lambda$, not negative.
        intercept: whether there is a $b$.
        init: how parameters begin: `"zeros"`, `"torch"` (PyTorch's default) or `"flax"` (LeCun normal
            weights, intercept 0).

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> examples = hf.Examples(jnp.array([[2.0], [-1.0], [1.0]]), jnp.array([1, 0, 0]))
        >>> model = hf.models.logistic_regression(l2=0.1, intercept=False)
        >>> found = model.measure({"weights": jnp.array([1.0])}, examples)
        >>> for name, values in found.items():
        ...     print(name, [round(value, 2) for value in values.tolist()])
        loss [0.18, 0.36, 1.36]
        accuracy [1.0, 1.0, 0.0]

    Reference: Gasanov, Khaled, Horváth and Richtárik, "FLIX: a simple and communication-efficient
    alternative to local methods in federated learning", 2022.
    """
    return _begun(_logistic_regression(check_l2(l2, "logistic_regression"), bool(intercept)), init)


@explain_arguments
@rebuildable
def least_squares(l2: float = 0.0, intercept: bool = True, init: Init = "zeros") -> Model:
    r"""Linear regression of one number per example, on flattened inputs.

    $$ \ell = \tfrac{1}{2} (w^\top x + b - y)^2 + \tfrac{\lambda}{2} \big(\|w\|^2 + b^2\big) $$

    The penalty acts on the intercept too. The metric `loss` contains it.

    Args:
        l2: $\lambda$, not negative.
        intercept: whether there is a $b$.
        init: how parameters begin: `"zeros"`, `"torch"` (PyTorch's default) or `"flax"` (LeCun normal
            weights, intercept 0).

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> examples = hf.Examples(jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([3.0, 1.0]))
        >>> model = hf.models.least_squares(l2=0.1, intercept=False)
        >>> losses = model.measure({"weights": jnp.array([1.0, 1.0])}, examples)["loss"]
        >>> [round(loss, 2) for loss in losses.tolist()]
        [2.1, 0.1]
    """
    return _begun(_least_squares(check_l2(l2, "least_squares"), bool(intercept)), init)


@functools.lru_cache(maxsize=64)
def _logistic_regression(l2: float, intercept: bool) -> Model:
    def loss(params: Tree, batch: Tree) -> jax.Array:
        return metrics(params, batch)["loss"]

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        u = _scores(params, batch)
        y = batch.y.astype(u.dtype)
        losses = jax.nn.softplus(u) - y * u + penalty(l2, params)
        correct = (u > 0) == (y == 1)
        return {"loss": losses, "accuracy": correct.astype(losses.dtype)}

    def check(examples: Tree) -> None:
        others = np.setdiff1d(_one_label_each(examples), (0, 1))
        if len(others):
            raise HoldfastError(
                f"labels: found {others[0]}; give 0 or 1 for each example.", about=("data",)
            )

    design = functools.partial(design_matrix, intercept=intercept)
    return Model(
        functools.partial(_zeros, intercept),
        loss,
        metrics,
        check,
        name=f"logistic_regression(l2={l2}, intercept={intercept})",
        linear=GeneralisedLinear(design, max_curvature=0.25, min_curvature=0.0, l2=l2),
        predictor=Predictor(
            lambda p, batch: jax.nn.sigmoid(_scores(p, batch)), binary_metrics, "binary"
        ),
        output=_scores,
        l2=l2,
    )


@functools.lru_cache(maxsize=64)
def _least_squares(l2: float, intercept: bool) -> Model:
    def loss(params: Tree, batch: Tree) -> jax.Array:
        u = _scores(params, batch)
        return (u - batch.y.astype(u.dtype)) ** 2 / 2 + penalty(l2, params)

    def check(examples: Tree) -> None:
        _one_label_each(examples)

    design = functools.partial(design_matrix, intercept=intercept)
    return Model(
        functools.partial(_zeros, intercept),
        loss,
        check=check,
        name=f"least_squares(l2={l2}, intercept={intercept})",
        linear=GeneralisedLinear(design, max_curvature=1.0, min_curvature=1.0, l2=l2),
        predictor=Predictor(_scores, regression_metrics, "numbers"),
        output=_scores,
        l2=l2,
    )


@functools.lru_cache(maxsize=64)
def _begun(model: Model, init: Init) -> Model:
    """The model from another start than the zeros it has."""
    if init == "zeros":
        return model
    if init != "flax":
        return initialised(model, init)

    def begin(key: jax.Array, examples: Tree) -> Tree:
        zeros = model.init(key, examples)
        weights = zeros["weights"]
        drawn = nn.initializers.lecun_normal()(key, (weights.size, 1), jnp.float32)
        return zeros | {"weights": drawn[:, 0].astype(weights.dtype)}

    return dataclasses.replace(model, init=begin, name=f"initialised({model.name}, flax)")


def _zeros(intercept: bool, key: jax.Array, examples: Tree) -> Tree:
    x = jnp.asarray(examples.x[:1])
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32
    weights = {"weights": jnp.zeros(math.prod(x.shape[1:]), dtype)}
    return weights | {"intercept": jnp.zeros((), dtype)} if intercept else weights


def _scores(params: Tree, batch: Tree) -> jax.Array:
    weights = params["weights"]
    x = batch.x.astype(weights.dtype)
    scores = x.reshape(x.shape[0], weights.size) @ weights
    return scores + params["intercept"] if "intercept" in params else scores


def _one_label_each(examples: Tree) -> np.ndarray:
    y = np.asarray(examples.y)
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise HoldfastError(
            f"labels: {y.dtype} of shape {y.shape}; give one number for each example.",
            about=("data",),
        )
    return y
