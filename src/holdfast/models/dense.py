"""Softmax regression and multilayer perceptrons."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax

from holdfast.errors import HoldfastError, explain_arguments, first_wrong
from holdfast.models.constructor import rebuildable
from holdfast.models.initial import Init, initialised
from holdfast.models.model import (
    GeneralisedLinear,
    Model,
    Predictor,
    binary_metrics,
    classifier,
    design_matrix,
    regression_metrics,
)
from holdfast.models.product import Dense
from holdfast.models.regularised import check_l2, regularised
from holdfast.trees import Tree


class MLP(nn.Module):
    """Dense layers with ReLU between them; the last is called `classifier`."""

    hidden: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return Dense(self.classes, name="classifier")(_hidden_layers(x, self.hidden))


class BinaryMLP(nn.Module):
    """The same with a single logit per example: positive where label 1 is the likelier."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return Dense(1, name="classifier")(_hidden_layers(x, self.hidden))[:, 0]


def _hidden_layers(x: jax.Array, widths: tuple[int, ...]) -> jax.Array:
    # Called in a module's compact method, so that the layers become the module's own.
    x = x.reshape((x.shape[0], -1))
    for i, width in enumerate(widths):
        x = nn.relu(Dense(width, name=f"hidden_{i}")(x))
    return x


@explain_arguments
@rebuildable
def mlp(hidden: Sequence[int], classes: int, l2: float = 0.0, init: Init = "flax") -> Model:
    r"""A multilayer perceptron on flattened inputs.

    Args:
        hidden: width of each hidden layer, called `hidden_0`, `hidden_1`, ...
        classes: number of classes, the width of the layer `classifier`.
        l2: $\lambda$ of a penalty $\tfrac{\lambda}{2} \|w\|^2$ of all parameters, part of the loss.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> model = hf.models.mlp([32], classes=10)
        >>> train, test = hf.data.digits()
        >>> params = jax.eval_shape(model.init, jax.random.key(0), train)
        >>> for name, layer in params.items():
        ...     print(name, layer["kernel"].shape)
        classifier (32, 10)
        hidden_0 (64, 32)
    """
    wrong = first_wrong(hidden=all(width >= 1 for width in hidden), classes=classes >= 2)
    if wrong:
        raise HoldfastError(
            f"mlp: hidden={list(hidden)}, classes={classes}; give widths of at least 1 and 2 classes.",
            about=wrong,
        )
    model = initialised(classifier(MLP(tuple(hidden), classes), classes), init)
    return regularised(model, check_l2(l2, "mlp"))


@explain_arguments
@rebuildable
def softmax_regression(classes: int, l2: float = 0.0, init: Init = "flax") -> Model:
    r"""Multinomial logistic regression on flattened inputs: an MLP without hidden layers.

    With $u$ the logits of an example and $y$ its label,

    $$ \ell = \log \sum_c e^{u_c} - u_y + \tfrac{\lambda}{2} \|w\|^2 $$

    where $w$ are all parameters, biases too, so that the loss is $\lambda$-strongly convex. The metric
    `loss` contains the penalty.

    Args:
        classes: number of classes, the width of the layer `classifier`.
        l2: $\lambda$, not negative.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> model = hf.models.softmax_regression(classes=10)
        >>> train, test = hf.data.digits()
        >>> params = jax.eval_shape(model.init, jax.random.key(0), train)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        650
    """
    model = initialised(_softmax_regression(classes), init)
    return regularised(model, check_l2(l2, "softmax_regression"))


@functools.lru_cache(maxsize=64)
def _softmax_regression(classes: int) -> Model:
    # diag(p) - p p' has eigenvalues in [0, 1/2]; it nears 1/2 as two classes share all of p.
    linear = GeneralisedLinear(design_matrix, max_curvature=0.5, min_curvature=0.0)
    return dataclasses.replace(mlp([], classes), linear=linear)


@explain_arguments
@rebuildable
def binary_mlp(hidden: Sequence[int], l2: float = 0.0, init: Init = "flax") -> Model:
    r"""A multilayer perceptron for labels 0 and 1, trained by sigmoid cross-entropy.

    With $s$ the logit of an example and $y$ its label,

    $$ \ell = -y \log \sigma(s) - (1 - y) \log\big(1 - \sigma(s)\big) $$

    Logits, for instance for `auc`, are `model.logits(params, examples)`.

    Args:
        hidden: width of each hidden layer, called `hidden_0`, `hidden_1`, ...
        l2: $\lambda$ of a penalty $\tfrac{\lambda}{2} \|w\|^2$ of all parameters, part of the loss.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> model = hf.models.binary_mlp([16])
        >>> train, test = hf.data.breast_cancer()
        >>> params = jax.eval_shape(model.init, jax.random.key(0), train)
        >>> for name, layer in params.items():
        ...     print(name, layer["kernel"].shape)
        classifier (16, 1)
        hidden_0 (30, 16)
    """
    if any(width < 1 for width in hidden):
        raise HoldfastError(
            f"binary_mlp: hidden={list(hidden)}; give widths of at least 1.", about=("hidden",)
        )
    model = initialised(_binary(BinaryMLP(tuple(hidden))), init)
    return regularised(model, check_l2(l2, "binary_mlp"))


@functools.lru_cache(maxsize=64)
def _binary(module: BinaryMLP) -> Model:
    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        logits: Any = module.apply({"params": params}, batch.x)
        labels = batch.y.astype(logits.dtype)
        correct = (logits > 0) == (labels == 1)
        losses = optax.sigmoid_binary_cross_entropy(logits, labels)
        return {"loss": losses, "accuracy": correct.astype(losses.dtype)}

    def loss(params: Tree, batch: Tree) -> jax.Array:
        return metrics(params, batch)["loss"]

    def check(examples: Tree) -> None:
        others = np.setdiff1d(examples.y, (0, 1))
        if len(others):
            raise HoldfastError(
                f"labels: found {others[0]}; give 0 or 1 for each example.", about=("data",)
            )

    # It begins and is called as any classifier; only its two classes share one logit.
    two_logits = classifier(module, classes=2)
    predictor = Predictor(
        lambda params, batch: jax.nn.sigmoid(_apply(module, params, batch)),
        binary_metrics,
        "binary",
    )
    return dataclasses.replace(
        two_logits,
        loss=loss,
        metrics=metrics,
        check=check,
        predictor=predictor,
        output=functools.partial(_apply, module),
    )


class RegressionMLP(nn.Module):
    """Dense layers with tanh between them, and one number out."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape((x.shape[0], -1))
        for i, width in enumerate(self.hidden):
            x = nn.tanh(Dense(width, name=f"hidden_{i}")(x))
        return Dense(1, name="output")(x)[:, 0]


@explain_arguments
@rebuildable
def mlp_regression(hidden: Sequence[int], l2: float = 0.0, init: Init = "flax") -> Model:
    r"""A multilayer perceptron with tanh that predicts one number, trained by squared error.

    $$ \ell = \tfrac12 (h(x) - y)^2 $$

    Args:
        hidden: width of each hidden layer, called `hidden_0`, `hidden_1`, ...
        l2: $\lambda$ of a penalty $\tfrac{\lambda}{2} \|w\|^2$ of all parameters, part of the loss.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> model = hf.models.mlp_regression([40, 40])
        >>> train, test = hf.data.sine(clients=2)
        >>> params = jax.eval_shape(model.init, jax.random.key(0), train)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        1761
    """
    if any(width < 1 for width in hidden):
        raise HoldfastError(
            f"mlp_regression: hidden={list(hidden)}; give widths of at least 1.", about=("hidden",)
        )
    model = initialised(_regression(RegressionMLP(tuple(hidden))), init)
    return regularised(model, check_l2(l2, "mlp_regression"))


@functools.lru_cache(maxsize=64)
def _regression(module: RegressionMLP) -> Model:
    def loss(params: Tree, batch: Tree) -> jax.Array:
        return regression_metrics(_apply(module, params, batch), batch)["loss"]

    output = functools.partial(_apply, module)
    # It begins as any module does.
    begun = classifier(module, classes=2)
    return dataclasses.replace(
        begun,
        loss=loss,
        metrics=None,
        check=None,
        predictor=Predictor(output, regression_metrics, "numbers"),
        output=output,
    )


def _apply(module: nn.Module, params: Tree, batch: Tree) -> Any:
    return module.apply({"params": params}, batch.x)
