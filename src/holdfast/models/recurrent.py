"""A character language model: a gated recurrent unit."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.model import Model, classifier
from holdfast.trees import Tree


class GRU(nn.Module):
    """Logits of the next character at every position; its equations are those of `gru`."""

    vocabulary: int
    embedding: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        characters = nn.Embed(self.vocabulary, self.embedding, name="characters")(x)
        # One product for all time steps: the loop is left with what depends on the state.
        inputs = nn.Dense(3 * self.width, name="input")(characters)
        gates = (self.width, 3 * self.width)
        # In 32 bits, as flax draws its own layers, also where 64 are enabled.
        recurrent = self.param("recurrent", nn.initializers.orthogonal(), gates, jnp.float32)
        bias = self.param("candidate_bias", nn.initializers.zeros, (self.width,), jnp.float32)

        def step(state: jax.Array, here: jax.Array) -> tuple[jax.Array, jax.Array]:
            reset_in, update_in, candidate_in = jnp.split(here, 3, axis=1)
            reset_back, update_back, candidate_back = jnp.split(state @ recurrent, 3, axis=1)
            reset = nn.sigmoid(reset_in + reset_back)
            update = nn.sigmoid(update_in + update_back)
            candidate = jnp.tanh(candidate_in + reset * (candidate_back + bias[None]))
            state = (1 - update) * candidate + update * state
            return state, state

        start = jnp.zeros((len(x), self.width), inputs.dtype)
        _, states = lax.scan(step, start, jnp.swapaxes(inputs, 0, 1))
        return nn.Dense(self.vocabulary, name="classifier")(jnp.swapaxes(states, 0, 1))


@explain_arguments
def gru(
    vocabulary: int, embedding: int = 96, width: int = 128, padding: int | None = None
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

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> text = np.array([[0, 1, 2, 0, 1, 2]])
        >>> examples = hf.Examples(x=text[:, :-1], y=text[:, 1:])
        >>> model = hf.models.gru(vocabulary=3)
        >>> model.check(examples)
        >>> model
        Model(GRU(vocabulary=3, embedding=96, width=128))

    Reference: Cho et al., "Learning phrase representations using RNN encoder-decoder", EMNLP 2014,
    with the reset gate after the product, as in cuDNN.
    """
    if vocabulary < 2 or embedding < 1 or width < 1:
        raise HoldfastError(
            f"gru: vocabulary={vocabulary}, embedding={embedding}, width={width}; give at least 2 "
            f"characters and widths of at least 1."
        )
    if padding is not None and not 0 <= padding < vocabulary:
        raise HoldfastError(
            f"gru: padding={padding}; give one of the characters 0..{vocabulary - 1}, or None."
        )
    return _gru(GRU(vocabulary, embedding, width), padding)


@functools.lru_cache(maxsize=64)
def _gru(module: GRU, padding: int | None) -> Model:
    def mean_over_positions(values: jax.Array, targets: jax.Array) -> jax.Array:
        if padding is None:
            return jnp.mean(values, axis=1)
        counted = targets != padding
        number = jnp.maximum(jnp.sum(counted, axis=1), 1)  # an example may be padding throughout
        return jnp.sum(values, axis=1, where=counted) / number.astype(values.dtype)

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        logits: Any = module.apply({"params": params}, batch.x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
        correct = (jnp.argmax(logits, axis=-1) == batch.y).astype(losses.dtype)
        return {
            "loss": mean_over_positions(losses, batch.y),
            "accuracy": mean_over_positions(correct, batch.y),
        }

    def loss(params: Tree, batch: Tree) -> jax.Array:
        return metrics(params, batch)["loss"]

    def check(examples: Tree) -> None:
        for what, given in (("x", examples.x), ("y", examples.y)):
            ids, last = np.asarray(given), module.vocabulary - 1
            if not np.issubdtype(ids.dtype, np.integer):
                raise HoldfastError(
                    f"{what}: its type is {ids.dtype}; give characters as whole numbers 0..{last}."
                )
            if ids.size and (ids.min() < 0 or ids.max() > last):
                raise HoldfastError(
                    f"{what}: found characters {ids.min()}..{ids.max()} but they must lie in "
                    f"0..{last}; renumber them or raise `vocabulary`."
                )

    # It begins and is called as any classifier; only its labels are many per example.
    one_label = classifier(module, module.vocabulary)
    return dataclasses.replace(one_label, loss=loss, metrics=metrics, check=check)
