"""Several labels per example: one logistic regression for each, and how many of them are found."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from holdfast.errors import HoldfastError, explain_arguments, first_wrong
from holdfast.models.constructor import rebuildable
from holdfast.models.dense import MLP
from holdfast.models.initial import Init, initialised
from holdfast.models.model import GeneralisedLinear, Model, Predictor, classifier, design_matrix
from holdfast.models.regularised import check_l2, regularised
from holdfast.trees import Tree


@explain_arguments
@rebuildable
def multi_label(
    classes: int,
    hidden: Sequence[int] = (),
    k: int = 5,
    l2: float = 0.0,
    init: Init = "flax",
) -> Model:
    r"""Which labels an example has, on flattened inputs: one logistic regression against the rest for each.

    With $u_c$ the logit of label $c$ and $y_c$ 1 where the example has it, else 0,

    $$ \ell = \sum_c \log(1 + e^{u_c}) - y_c u_c + \tfrac{\lambda}{2} \|w\|^2 $$

    Examples: `y` has one column for each label, of zeros and ones, as `hf.data.stack_overflow`.

    Metrics: `loss`, which contains the penalty, and `recall_at_5` (or another `k`): which share of its
    labels is among the 5 of the largest logits. Ties count against the model; so does an example without
    labels, as 0.

    Args:
        classes: number of labels, the width of the layer `classifier`.
        hidden: width of each hidden layer, called `hidden_0`, `hidden_1`, ...; none by default.
        k: how many labels the recall looks at.
        l2: $\lambda$ of a penalty of all parameters, part of the loss.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> model = hf.models.multi_label(classes=3, k=1)
        >>> params = {"classifier": {"kernel": jnp.array([[2.0, 1.0, 0.0]]), "bias": jnp.zeros(3)}}
        >>> post = hf.Examples(jnp.array([[1.0]]), jnp.array([[1.0, 1.0, 0.0]]))
        >>> found = model.measure(params, post)
        >>> # Of its two labels the first is found.
        >>> {name: round(values.item(), 2) for name, values in found.items()}
        {'loss': 1.13, 'recall_at_1': 0.5}

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, which predicts the tags of
    Stack Overflow's posts and measures recall at 5.
    """
    wrong = first_wrong(
        classes=classes >= 1, hidden=all(width >= 1 for width in hidden), k=1 <= k <= classes
    )
    if wrong:
        raise HoldfastError(
            f"multi_label: classes={classes}, hidden={list(hidden)}, k={k}; give at least 1 label, widths "
            f"of at least 1, and as k 1 to the number of labels.",
            about=wrong,
        )
    model = initialised(_multi_label(MLP(tuple(hidden), classes), k), init)
    return regularised(model, check_l2(l2, "multi_label"))


@functools.lru_cache(maxsize=64)
def _multi_label(module: MLP, k: int) -> Model:
    def recall(scores: jax.Array, labels: jax.Array) -> jax.Array:
        found = labels
        if k < module.classes:
            # What is greater than the (k+1)st is among the first k, whatever else is equal to it.
            beyond = lax.top_k(scores, k + 1)[0][:, -1:]
            found = jnp.where(scores > beyond, labels, 0)
        return jnp.sum(found, axis=1) / jnp.maximum(jnp.sum(labels, axis=1), 1)

    def output(params: Tree, batch: Tree) -> jax.Array:
        logits: Any = module.apply({"params": params}, batch.x)
        return logits

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        logits = output(params, batch)
        labels = batch.y.astype(logits.dtype)
        losses = jnp.sum(optax.sigmoid_binary_cross_entropy(logits, labels), axis=1)
        return {"loss": losses, f"recall_at_{k}": recall(logits, labels)}

    def loss(params: Tree, batch: Tree) -> jax.Array:
        return metrics(params, batch)["loss"]

    def of_probabilities(found: jax.Array, batch: Tree) -> dict[str, jax.Array]:
        labels = batch.y.astype(found.dtype)
        right = jnp.where(labels > 0, found, 1 - found)
        losses = -jnp.sum(jnp.log(jnp.maximum(right, jnp.finfo(found.dtype).tiny)), axis=1)
        return {"loss": losses, f"recall_at_{k}": recall(found, labels)}

    def check(examples: Tree) -> None:
        y = np.asarray(examples.y)
        if y.shape != (len(y), module.classes):
            raise HoldfastError(
                f"labels: their shape is {y.shape} but the model has classes={module.classes}; give one "
                f"column of zeros and ones for each label.",
                about=("data",),
            )
        if y.dtype.kind not in "biuf" or not ((y == 0) | (y == 1)).all():
            raise HoldfastError(
                "labels: found other values than 0 and 1; give 1 where an example has the label, else 0.",
                about=("data",),
            )

    design = None if module.hidden else GeneralisedLinear(design_matrix, 0.25, 0.0)
    # It begins as any classifier does.
    return dataclasses.replace(
        classifier(module, module.classes),
        loss=loss,
        metrics=metrics,
        check=check,
        name=f"multi_label(hidden={module.hidden}, classes={module.classes}, k={k})",
        linear=design,
        predictor=Predictor(
            lambda p, batch: jax.nn.sigmoid(output(p, batch)), of_probabilities, "labels"
        ),
        output=output,
    )
