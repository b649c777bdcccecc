"""The problems' models in plain JAX, for the peers that take a loss function."""

import jax
import jax.numpy as jnp
from jax import lax
from problems import Problem

Params = dict[str, jax.Array]


def _dense(params: Params, name: str, x: jax.Array) -> jax.Array:
    return x @ params[f"{name}/kernel"] + params[f"{name}/bias"]


def _mlp(params: Params, x: jax.Array, names: list[str]) -> jax.Array:
    for name in names[:-1]:
        x = jax.nn.relu(_dense(params, name, x))
    return _dense(params, names[-1], x)


def _convolve(x: jax.Array, kernel: jax.Array, by_patches: bool) -> jax.Array:
    if not by_patches:
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=layout)
    side = x.shape[1] - kernel.shape[0] + 1
    window = range(kernel.shape[0])
    shifted = [x[:, i : i + side, j : j + side] for i in window for j in window]
    return jnp.concatenate(shifted, 3) @ kernel.reshape(-1, kernel.shape[3])


def _cnn(params: Params, x: jax.Array, by_patches: bool) -> jax.Array:
    for i in range(2):
        name = f"convolution_{i}"
        x = _convolve(x, params[f"{name}/kernel"], by_patches) + params[f"{name}/bias"]
        b, side, _, channels = x.shape
        x = jax.nn.relu(x).reshape(b, side // 2, 2, side // 2, 2, channels).max((2, 4))
    return _mlp(params, x.reshape(x.shape[0], -1), ["dense_0", "dense_1", "classifier"])


def _lstm(params: Params, x: jax.Array) -> jax.Array:
    states = params["characters/embedding"][x]
    for i in range(2):
        inputs = jnp.swapaxes(_dense(params, f"lstm_{i}/input", states), 0, 1)
        recurrent = params[f"lstm_{i}/recurrent"]

        def step(state, here, recurrent=recurrent):
            hidden, cell = state
            let_in, keep, new, let_out = jnp.split(here + hidden @ recurrent, 4, axis=1)
            cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(let_in) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(let_out) * jnp.tanh(cell)
            return (hidden, cell), hidden

        start = jnp.zeros((inputs.shape[1], recurrent.shape[0]), inputs.dtype)
        states = jnp.swapaxes(lax.scan(step, (start, start), inputs)[1], 0, 1)
    return _dense(params, "classifier", states[:, -1])


def loss_of(problem: Problem, by_patches: bool):
    """(params, x, y, keep) -> mean cross-entropy over the examples to keep.

    `by_patches`: convolutions as matrix products over patches. XLA's own is very slow on a CPU inside a
    compiled loop, so a round that is one program uses patches, as anybody would after a first try.
    """
    names = [n.removesuffix("/kernel") for n in problem.layers if n.endswith("kernel")]

    def loss(params: Params, x: jax.Array, y: jax.Array, keep: jax.Array) -> jax.Array:
        if problem.name == "cnn":
            logits = _cnn(params, x, by_patches)
        elif problem.words:
            logits = _lstm(params, x)
        else:
            logits = _mlp(params, x, names)
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)[:, 0]
        return jnp.sum(losses * keep) / jnp.maximum(jnp.sum(keep), 1)

    return loss
