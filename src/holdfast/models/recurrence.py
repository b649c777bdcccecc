"""The loops over time of LSTM and GRU, with gradients that are fast on a CPU.

Differentiating a loop, JAX adds up the gradient of the recurrent matrix at every position, and keeps
every intermediate array. Here a position keeps what its gradient is a multiple of, in the place of
the inputs it has used up, and backwards the gradients of the gates take the place of that. What is
left to the loop is one small product; those with all positions are single large ones after it.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from holdfast.errors import HoldfastError

Kernel: TypeAlias = Literal["auto", "fused", "scan"]


def recurrence_by(kernel: Kernel, functions: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The one of two functions that an argument `kernel` of models asks for."""
    if kernel == "auto":
        return functions["fused" if jax.default_backend() == "cpu" else "scan"]
    if kernel not in functions:
        known = ", ".join(repr(name) for name in get_args(Kernel))
        raise HoldfastError(
            f"kernel={kernel!r} is not known; give one of {known}.", about=("kernel",)
        )
    return functions[kernel]


def _scan_lstm(inputs: jax.Array, bias: jax.Array, recurrent: jax.Array) -> jax.Array:
    def step(
        state: tuple[jax.Array, jax.Array], here: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = state
        parts = jnp.split(here + hidden @ recurrent, 4, axis=1)
        let_in, keep, let_out = (jax.nn.sigmoid(parts[i]) for i in (0, 1, 3))
        cell = keep * cell + let_in * jnp.tanh(parts[2])
        hidden = let_out * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((inputs.shape[1], len(recurrent)), inputs.dtype)
    return lax.scan(step, (start, start), inputs + bias[None, None])[1]


def _scan_gru(
    inputs: jax.Array, bias: jax.Array, recurrent: jax.Array, candidate_bias: jax.Array
) -> jax.Array:
    def step(state: jax.Array, here: jax.Array) -> tuple[jax.Array, jax.Array]:
        reset_in, update_in, candidate_in = jnp.split(here, 3, axis=1)
        reset_back, update_back, candidate_back = jnp.split(state @ recurrent, 3, axis=1)
        reset = jax.nn.sigmoid(reset_in + reset_back)
        update = jax.nn.sigmoid(update_in + update_back)
        candidate = jnp.tanh(candidate_in + reset * (candidate_back + candidate_bias[None]))
        state = (1 - update) * candidate + update * state
        return state, state

    start = jnp.zeros((inputs.shape[1], len(recurrent)), inputs.dtype)
    return lax.scan(step, start, inputs + bias[None, None])[1]


def _forward_lstm(
    inputs: jax.Array, bias: jax.Array, recurrent: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    positions, examples, width = inputs.shape[0], inputs.shape[1], len(recurrent)
    # sigma(a) = (1 + tanh(a/2))/2, so one tanh serves all four gates: tanh(s a) s + (1 - s).
    scale = np.where(np.arange(4 * width) // width == 2, 1.0, 0.5)[None].astype(inputs.dtype)
    start = jnp.zeros((examples, width), inputs.dtype)
    nothing = jnp.zeros((positions, examples, width), inputs.dtype)

    def step(t: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        hidden, cell, gates, states, before, keeps, opens = carry
        tanh = jnp.tanh(scale * (_at(gates, t) + hidden @ recurrent + bias[None]))
        let_in, keep, new, let_out = jnp.split(scale * tanh + (1 - scale), 4, axis=1)
        after = keep * cell + let_in * new
        open_cell = jnp.tanh(after)
        # The slope of each gate is the slope of the cell, or of the state, times these.
        factors = jnp.concatenate([new, cell, let_in, open_cell], axis=1)
        gates = _put(gates, factors * (scale**2 * (1 - tanh * tanh)), t)
        before, keeps = _put(before, hidden, t), _put(keeps, keep, t)
        opens = _put(opens, let_out * (1 - open_cell * open_cell), t)
        hidden = let_out * open_cell
        return hidden, after, gates, _put(states, hidden, t), before, keeps, opens

    carry = (start, start, inputs, nothing, nothing, nothing, nothing)
    _, _, factors, states, before, keeps, opens = lax.fori_loop(0, positions, step, carry)
    return states, (factors, before, keeps, opens, recurrent)


def _backward_lstm(kept: tuple[jax.Array, ...], slopes: jax.Array) -> tuple[jax.Array, ...]:
    factors, before, keeps, opens, recurrent = kept

    def step(back: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        hidden, cell, gates = carry
        t = len(slopes) - 1 - back
        hidden = hidden + _at(slopes, t)
        cell = cell + hidden * _at(opens, t)
        here = jnp.concatenate([cell, cell, cell, hidden], axis=1) * _at(gates, t)
        return here @ recurrent.T, cell * _at(keeps, t), _put(gates, here, t)

    start = jnp.zeros_like(slopes[0])
    _, _, gates = lax.fori_loop(0, len(slopes), step, (start, start, factors))
    rows = _rows(gates)
    return gates, jnp.sum(rows, axis=0), _rows(before).T @ rows


def _forward_gru(
    inputs: jax.Array, bias: jax.Array, recurrent: jax.Array, candidate_bias: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    positions, examples, width = inputs.shape[0], inputs.shape[1], len(recurrent)
    start = jnp.zeros((examples, width), inputs.dtype)
    nothing = jnp.zeros((positions, examples, width), inputs.dtype)

    def step(t: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        hidden, gates, states, before, resets, updates = carry
        here, back = _at(gates, t) + bias[None], hidden @ recurrent
        tanh = jnp.tanh(0.5 * (here[:, : 2 * width] + back[:, : 2 * width]))
        reset, update = jnp.split(0.5 * tanh + 0.5, 2, axis=1)
        candidate_back = back[:, 2 * width :] + candidate_bias[None]
        candidate = jnp.tanh(here[:, 2 * width :] + reset * candidate_back)
        # The slope of each gate is the slope of the state times these.
        of_candidate = (1 - update) * (1 - candidate * candidate)
        of_reset = of_candidate * candidate_back * reset * (1 - reset)
        of_update = (hidden - candidate) * update * (1 - update)
        factors = jnp.concatenate([of_reset, of_update, of_candidate], axis=1)
        before, resets = _put(before, hidden, t), _put(resets, reset, t)
        updates = _put(updates, update, t)
        hidden = (1 - update) * candidate + update * hidden
        return hidden, _put(gates, factors, t), _put(states, hidden, t), before, resets, updates

    carry = (start, inputs, nothing, nothing, nothing, nothing)
    _, factors, states, before, resets, updates = lax.fori_loop(0, positions, step, carry)
    return states, (factors, before, resets, updates, recurrent)


def _backward_gru(kept: tuple[jax.Array, ...], slopes: jax.Array) -> tuple[jax.Array, ...]:
    factors, before, resets, updates, recurrent = kept
    width = len(recurrent)

    def step(back: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        hidden, gates, candidates = carry
        t = len(slopes) - 1 - back
        hidden = hidden + _at(slopes, t)
        here = jnp.concatenate([hidden, hidden, hidden], axis=1) * _at(gates, t)
        # The candidate's slope passes the reset gate on its way to the state before.
        candidate = here[:, 2 * width :] * _at(resets, t)
        through = jnp.concatenate([here[:, : 2 * width], candidate], axis=1) @ recurrent.T
        hidden = hidden * _at(updates, t) + through
        return hidden, _put(gates, here, t), _put(candidates, candidate, t)

    start, nothing = jnp.zeros_like(slopes[0]), jnp.zeros_like(slopes)
    _, gates, candidates = lax.fori_loop(0, len(slopes), step, (start, factors, nothing))
    rows, of_candidate, states = _rows(gates), _rows(candidates), _rows(before)
    recurrent_slope = jnp.concatenate(
        [states.T @ rows[:, : 2 * width], states.T @ of_candidate], axis=1
    )
    return gates, jnp.sum(rows, axis=0), recurrent_slope, jnp.sum(of_candidate, axis=0)


@jax.custom_vjp
def _fused_lstm(inputs: jax.Array, bias: jax.Array, recurrent: jax.Array) -> jax.Array:
    return _forward_lstm(inputs, bias, recurrent)[0]


@jax.custom_vjp
def _fused_gru(
    inputs: jax.Array, bias: jax.Array, recurrent: jax.Array, candidate_bias: jax.Array
) -> jax.Array:
    return _forward_gru(inputs, bias, recurrent, candidate_bias)[0]


_fused_lstm.defvjp(_forward_lstm, _backward_lstm)
_fused_gru.defvjp(_forward_gru, _backward_gru)


def _at(stacked: jax.Array, t: Any) -> jax.Array:
    return lax.dynamic_index_in_dim(stacked, t, keepdims=False)


def _put(stacked: jax.Array, value: jax.Array, t: Any) -> jax.Array:
    return lax.dynamic_update_index_in_dim(stacked, value, t, 0)


def _rows(stacked: jax.Array) -> jax.Array:
    return stacked.reshape(-1, stacked.shape[2])


# (inputs at every position, without bias; bias; recurrent matrix) -> the state at every position.
# The first axis is time, the second the examples.
LSTM_BY: dict[str, Callable[..., Any]] = {"fused": _fused_lstm, "scan": _scan_lstm}
# The same with one more bias, of the candidate.
GRU_BY: dict[str, Callable[..., Any]] = {"fused": _fused_gru, "scan": _scan_gru}
