"""Character language models: a gated recurrent unit, and stacked LSTMs."""

import dataclasses
import functools
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from holdfast.errors import HoldfastError, explain_arguments, first_wrong
from holdfast.models.constructor import rebuildable
from holdfast.models.initial import Init, initialised
from holdfast.models.model import (
    Model,
    Predictor,
    classifier,
    cross_entropy,
    probability_metrics,
)
from holdfast.models.recurrence import GRU_BY, LSTM_BY, Kernel, recurrence_by
from holdfast.trees import Tree


class Projection(nn.Module):
    """A dense layer on (positions, examples, width); its bias is left to be added in the loop."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        # In 32 bits, as flax draws its own layers, also where 64 are enabled.
        shape = (x.shape[-1], self.width)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        # Flat, because XLA would transpose three axes for the gradient of the kernel.
        rows = x.reshape(-1, x.shape[2]) @ kernel
        return rows.reshape(*x.shape[:2], self.width), bias


def _embedded(x: jax.Array, vocabulary: int, width: int) -> jax.Array:
    # Called in a module's compact method. Time comes first from here on.
    return nn.Embed(vocabulary, width, name="characters")(jnp.swapaxes(x, 0, 1))


class GRU(nn.Module):
    """Logits of the next character at every position; its equations are those of `gru`."""

    vocabulary: int
    embedding: int
    width: int
    kernel: Kernel = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        characters = _embedded(x, self.vocabulary, self.embedding)
        # One product for all time steps: the loop is left with what depends on the state.
        inputs, bias = Projection(3 * self.width, name="input")(characters)
        gates = (self.width, 3 * self.width)
        recurrent = self.param("recurrent", nn.initializers.orthogonal(), gates, jnp.float32)
        candidate = self.param("candidate_bias", nn.initializers.zeros, (self.width,), jnp.float32)
        states = recurrence_by(self.kernel, GRU_BY)(inputs, bias, recurrent, candidate)
        return nn.Dense(self.vocabulary, name="classifier")(jnp.swapaxes(states, 0, 1))


@explain_arguments
@rebuildable
def gru(
    vocabulary: int,
    embedding: int = 96,
    width: int = 128,
    padding: int | None = None,
    kernel: Kernel = "auto",
    init: Init = "flax",
) -> Model:
    r"""A gated recurrent unit that predicts the next character at every position.

    With $e_t$ the embedding of the character at $t$, $h_0 = 0$ and $\odot$ the product by element,

    $$ r_t = \sigma(W_r^\top e_t + b_r + U_r^\top h_{t-1}), \quad
       z_t = \sigma(W_z^\top e_t + b_z + U_z^\top h_{t-1}) $$
    $$ n_t = \tanh\big(W_n^\top e_t + b_n + r_t \odot (U_n^\top h_{t-1} + c)\big), \quad
       h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1} $$

    and logits $V^\top h_t + a$. Leaves: `characters/embedding`; `input/kernel` $[W_r\,W_z\,W_n]$ and
    `input/bias`; `recurrent` $[U_r\,U_z\,U_n]$; `candidate_bias` $c$; `classifier/kernel` $V$ and
    `classifier/bias` $a$.

    Examples: `x` holds ids of characters, `y` those that follow, both of shape (examples, positions).
    An example's loss and accuracy are means over its positions.

    Args:
        vocabulary: number of different characters, padding included.
        embedding: width of the embedding.
        width: of the state.
        padding: a character that is not counted where it is the one to predict.
        kernel: `"fused"` (fast on a CPU; no forward-mode derivative), `"scan"`, or `"auto"` for what
            suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> text = np.array([[0, 1, 2, 0, 1, 2]])
        >>> examples = hf.Examples(x=text[:, :-1], y=text[:, 1:])
        >>> model = hf.models.gru(vocabulary=3)
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        87203

    Reference: Cho et al., "Learning phrase representations using RNN encoder-decoder", EMNLP 2014,
    with the reset gate after the product, as in cuDNN.
    """
    wrong = first_wrong(vocabulary=vocabulary >= 2, embedding=embedding >= 1, width=width >= 1)
    if wrong:
        raise HoldfastError(
            f"gru: vocabulary={vocabulary}, embedding={embedding}, width={width}; give at least 2 "
            f"characters and widths of at least 1.",
            about=wrong,
        )
    if padding is not None and not 0 <= padding < vocabulary:
        raise HoldfastError(
            f"gru: padding={padding}; give one of the characters 0..{vocabulary - 1}, or None.",
            about=("padding",),
        )
    # Refuses what it does not know.
    recurrence_by(kernel, GRU_BY)
    return initialised(_gru(GRU(vocabulary, embedding, width, kernel), padding), init)


@functools.lru_cache(maxsize=64)
def _gru(module: GRU, padding: int | None) -> Model:
    def mean_over_positions(values: jax.Array, targets: jax.Array) -> jax.Array:
        if padding is None:
            return jnp.mean(values, axis=1)
        counted = targets != padding
        # An example may be padding throughout.
        number = jnp.maximum(jnp.sum(counted, axis=1), 1)
        return jnp.sum(values, axis=1, where=counted) / number.astype(values.dtype)

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        logits: Any = module.apply({"params": params}, batch.x)
        losses = cross_entropy(logits, batch.y)
        correct = (jnp.argmax(logits, axis=-1) == batch.y).astype(losses.dtype)
        return {
            "loss": mean_over_positions(losses, batch.y),
            "accuracy": mean_over_positions(correct, batch.y),
        }

    def loss(params: Tree, batch: Tree) -> jax.Array:
        return metrics(params, batch)["loss"]

    def of_probabilities(found: jax.Array, batch: Tree) -> dict[str, jax.Array]:
        flat = batch._replace(x=batch.x.reshape(-1), y=batch.y.reshape(-1))
        each = probability_metrics(found.reshape(-1, module.vocabulary), flat)
        return {
            name: mean_over_positions(values.reshape(batch.y.shape), batch.y)
            for name, values in each.items()
        }

    def check(examples: Tree) -> None:
        for what, given in (("x", examples.x), ("y", examples.y)):
            _check_characters(what, np.asarray(given), module.vocabulary)

    # It begins and is called as any classifier; only its labels are many per example.
    one_label = classifier(module, module.vocabulary)
    predictor = Predictor(cast(Predictor, one_label.predictor).predict, of_probabilities, "classes")
    return dataclasses.replace(
        one_label, loss=loss, metrics=metrics, check=check, predictor=predictor
    )


def _check_characters(what: str, ids: np.ndarray, vocabulary: int) -> None:
    last = vocabulary - 1
    if not np.issubdtype(ids.dtype, np.integer):
        raise HoldfastError(
            f"{what}: its type is {ids.dtype}; give characters as whole numbers 0..{last}.",
            about=("data",),
        )
    if ids.size and (ids.min() < 0 or ids.max() > last):
        raise HoldfastError(
            f"{what}: found characters {ids.min()}..{ids.max()} but they must lie in "
            f"0..{last}; renumber them or raise `vocabulary`.",
            about=("model", "vocabulary"),
        )


class LSTMLayer(nn.Module):
    """The states of one LSTM at every position; its equations are those of `lstm`.

    Inputs and states have shape (positions, examples, width).
    """

    width: int
    kernel: Kernel = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # One product for all time steps: the loop is left with what depends on the state.
        inputs, bias = Projection(4 * self.width, name="input")(x)
        gates = (self.width, 4 * self.width)
        recurrent = self.param("recurrent", nn.initializers.orthogonal(), gates, jnp.float32)
        states: jax.Array = recurrence_by(self.kernel, LSTM_BY)(inputs, bias, recurrent)
        return states


class LSTM(nn.Module):
    """Logits of the character that follows a text, from the last state of stacked LSTMs."""

    vocabulary: int
    embedding: int
    width: int
    layers: int
    kernel: Kernel = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        states = _embedded(x, self.vocabulary, self.embedding)
        for i in range(self.layers):
            states = LSTMLayer(self.width, self.kernel, name=f"lstm_{i}")(states)
        return nn.Dense(self.vocabulary, name="classifier")(states[-1])


@explain_arguments
@rebuildable
def lstm(
    vocabulary: int,
    embedding: int = 8,
    width: int = 100,
    layers: int = 2,
    kernel: Kernel = "auto",
    init: Init = "flax",
) -> Model:
    r"""Stacked LSTMs that predict the character after a text, by default FedDyn's for Shakespeare.

    With $e_t$ the embedding of the character at $t$, or above the first layer the state of the
    one beneath, $h_0 = c_0 = 0$ and $\odot$ the product by element,

    $$ [i_t\; f_t\; g_t\; o_t] = W^\top e_t + b + U^\top h_{t-1} $$
    $$ c_t = \sigma(f_t) \odot c_{t-1} + \sigma(i_t) \odot \tanh g_t, \qquad
       h_t = \sigma(o_t) \odot \tanh c_t $$

    and logits $V^\top h_T + a$ of the last state of the last layer. Leaves: `characters/embedding`;
    for each layer `lstm_0/input/kernel` $W$, `lstm_0/input/bias` $b$ and `lstm_0/recurrent` $U$;
    `classifier/kernel` $V$ and `classifier/bias` $a$. PyTorch has two biases with the sum $b$.

    Examples: `x` holds ids of characters, of shape (examples, positions), and `y` one each: the
    character that follows.

    Args:
        vocabulary: number of different characters.
        embedding: width of the embedding.
        width: of each layer's state.
        layers: number of LSTMs, one on top of the other.
        kernel: `"fused"` (fast on a CPU; no forward-mode derivative), `"scan"`, or `"auto"` for what
            suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> examples = hf.Examples(x=np.array([[0, 1, 2, 0, 1]]), y=np.array([2]))
        >>> model = hf.models.lstm(vocabulary=80)
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        132720

    Reference: Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 1997, with
    the forget gate of Gers et al. 2000; Acar et al., "Federated learning based on dynamic
    regularization", ICLR 2021.
    """
    wrong = first_wrong(
        vocabulary=vocabulary >= 2, embedding=embedding >= 1, width=width >= 1, layers=layers >= 1
    )
    if wrong:
        raise HoldfastError(
            f"lstm: vocabulary={vocabulary}, embedding={embedding}, width={width}, layers={layers}; "
            f"give at least 2 characters, 1 layer and widths of at least 1.",
            about=wrong,
        )
    # Refuses what it does not know.
    recurrence_by(kernel, LSTM_BY)
    return initialised(_lstm(LSTM(vocabulary, embedding, width, layers, kernel)), init)


@functools.lru_cache(maxsize=64)
def _lstm(module: LSTM) -> Model:
    def check(examples: Tree) -> None:
        x, y = np.asarray(examples.x), np.asarray(examples.y)
        if x.ndim != 2 or y.ndim != 1:
            raise HoldfastError(
                f"lstm: x has shape {x.shape} and y {y.shape}; give x of shape (examples, positions) "
                f"and for each example one y, or take `gru`, which predicts at every position.",
                about=("data",),
            )
        _check_characters("x", x, module.vocabulary)
        _check_characters("y", y, module.vocabulary)

    return dataclasses.replace(classifier(module, module.vocabulary), check=check)
