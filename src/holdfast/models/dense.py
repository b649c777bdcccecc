"""Softmax regression and multilayer perceptrons."""

from collections.abc import Sequence

import flax.linen as nn
import jax

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.model import Model, classifier


class MLP(nn.Module):
    """Dense layers with ReLU between them; the last is called `classifier`."""

    hidden: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape((x.shape[0], -1))
        for i, width in enumerate(self.hidden):
            x = nn.relu(nn.Dense(width, name=f"hidden_{i}")(x))
        return nn.Dense(self.classes, name="classifier")(x)


@explain_arguments
def mlp(hidden: Sequence[int], classes: int) -> Model:
    """A multilayer perceptron on flattened inputs.

    Args:
        hidden: width of each hidden layer, called `hidden_0`, `hidden_1`, ...
        classes: number of classes, the width of the layer `classifier`.

    Example:
        >>> import holdfast as hf
        >>> model = hf.models.mlp([64], classes=10)
    """
    if classes < 2 or any(width < 1 for width in hidden):
        raise HoldfastError(
            f"mlp: hidden={list(hidden)}, classes={classes}; give widths of at least 1 and 2 classes."
        )
    return classifier(MLP(tuple(hidden), classes), classes)


@explain_arguments
def softmax_regression(classes: int) -> Model:
    """Multinomial logistic regression on flattened inputs: an MLP without hidden layers."""
    return mlp([], classes)
