"""A client's round in which PyTorch takes the local steps: between the two halves that JAX computes."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import after_training, before_training, client_round, prepare_cohort
from holdfast.core.keys import Purpose, client_key
from holdfast.core.local import Steps
from holdfast.core.mean import Judged
from holdfast.core.round import Exchange
from holdfast.core.round_types import ClientRound, ClientState, Reply, Shared, Slot
from holdfast.core.rule import Tilt
from holdfast.core.server import Aggregate, accept
from holdfast.models.foreign import ForeignError
from holdfast.torch.bridge import Bridge, bridge_of
from holdfast.torch.steps import solve
from holdfast.trees import Number, Tree, float_type


class Compiled:
    """A function as a program; as it is for methods in which it asks PyTorch for a gradient."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._program = function, jax.jit(function)
        self._asks: set[Hashable] = set()

    def __call__(self, *given: Any) -> Any:
        kind = tree.structure(given)
        if kind not in self._asks:
            try:
                with jax.disable_jit(False):
                    return self._program(*given)
            except ForeignError:
                self._asks.add(kind)
        with jax.disable_jit():
            return self._function(*given)


def _before(
    shared: Shared, mine: Algorithm, state: ClientState, slot: Slot
) -> tuple[Tilt, jax.Array]:
    """The local objective, and for every step the words of its random key."""
    _, tilt, _ = before_training(shared, mine, state, slot)
    key = client_key(shared.key, slot.client, Purpose.LOSS)
    keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(slot.batches.shape[0]))
    return tilt, jax.random.key_data(keys)


def _after(
    shared: Shared, mine: Algorithm, state: ClientState, slot: Slot, y: Tree, path: Number
) -> Reply:
    at, tilt, _ = before_training(shared, mine, state, slot)
    key = client_key(shared.key, slot.client, Purpose.WIRE)
    return after_training(mine, state, at, tilt, y, path, key)


def visit(
    exchange: Exchange, empty: Aggregate, cohort: tuple[ClientState, Slot], shared: Shared
) -> tuple[Aggregate, tuple[ClientState, Judged]]:
    """One client of the cohort after another, by Python; what the server makes of a reply is a program."""
    # On the host, where taking one client's part compiles nothing.
    states, slots = tree.map(np.asarray, cohort)
    so_far, found = empty, []
    for i in range(len(slots.client)):
        state, slot = tree.map(lambda a, i=i: a[i], (states, slots))
        seen = tree.map(np.asarray, shared.algorithm.mean.unseen(so_far.heads.dtype))
        judged: Any = Judged(np.zeros((), bool), seen)
        if slot.steps > 0:
            mine = _numbers(shared.algorithm, slot.client, so_far.heads)
            reply = exchange.reply(shared, mine, state, slot)
            so_far, state, judged = _accepted(mine, so_far, reply, state, slot)
        found.append((state, judged))
    stacked = tree.map(lambda *several: jax.device_put(np.stack(several)), *found)
    return so_far, stacked


def _of_client(algorithm: Algorithm, client: Any, like: jax.Array) -> Algorithm:
    return hyper.of_client(algorithm, client, like.dtype)


_numbers, _accepted = Compiled(_of_client), Compiled(accept)
# What clients do before their first round, by the model of the inputs.
prepare = Compiled(prepare_cohort)
_tilt, _reply, _whole = Compiled(_before), Compiled(_after), Compiled(client_round)


def round_by(model: Any) -> ClientRound:
    """`client_round`, with the losses and gradients of this model in place of the round's own."""

    def run(shared: Shared, mine: Algorithm, state: ClientState, slot: Slot) -> Reply:
        shared = Shared(
            model, shared.algorithm, shared.steps, shared.x, shared.msg, shared.examples, shared.key
        )
        assert isinstance(shared.steps, Steps)
        bridge = bridge_of(model)
        # An optimiser of optax's, or a penalty around the module's loss, is JAX's to compute: the one
        # local loop, with gradients of PyTorch's.
        if bridge is None or shared.steps.optimizer is not None:
            return _whole(shared, mine, state, slot)
        return _by_torch(bridge, shared.steps, shared, mine, state, slot)

    return run


def _by_torch(
    bridge: Bridge,
    steps: Steps,
    shared: Shared,
    mine: Algorithm,
    state: ClientState,
    slot: Slot,
) -> Reply:
    tilt, words = _tilt(shared, mine, state, slot)
    x, y = (np.asarray(a) for a in (shared.examples.x, shared.examples.y))
    rows, seeds, count = np.asarray(slot.batches), np.asarray(words), int(slot.steps)

    def grad(k: int, tensors: list[Any]) -> list[Any]:
        mine = rows[k][rows[k] >= 0]
        bridge.draw_from(seeds[k].tolist())
        return bridge.gradient(tensors, bridge.tensor(x[mine]), bridge.tensor(y[mine]))

    with bridge.mode(training=True):
        found = solve(bridge, steps, grad, shared.x, tilt, count)
    dtype = float_type(shared.x)
    path = steps.learning_rate * jnp.asarray(count, dtype)
    return _reply(shared, mine, state, slot, bridge.parameters.tree(found), path)
