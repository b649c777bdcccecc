"""Client states on the device, where copying them to the host costs more than keeping them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.client_states.store import Index
from holdfast.trees import Tree, nbytes


class DeviceStore:
    """States in one array per leaf, which doubles when it is full and is written to in place."""

    def __init__(self, first: Tree, clients: int) -> None:
        self.state_bytes = nbytes(first)
        self._index = Index(clients)
        # The first place holds the first state, for everyone without one of its own.
        self._states = tree.map(lambda a: jax.device_put(a, _home())[None], first)

    def __len__(self) -> int:
        return len(self._index)

    def ids(self) -> np.ndarray:
        return self._index.ids()

    def has(self, ids: np.ndarray) -> np.ndarray:
        return self._index.of(ids) >= 0

    def read(self, ids: np.ndarray) -> Tree:
        return _gather(self._states, self._index.of(ids) + 1)

    def write(self, ids: np.ndarray, states: Tree, positions: np.ndarray) -> None:
        mine = self._index.make(ids) + 1
        leaves = tree.leaves(states)
        if not leaves:
            return
        if self._index.taken >= len(tree.leaves(self._states)[0]):
            self._states = _grow(self._states, size=1 << self._index.taken.bit_length())
        # All places of a cohort are written, those of nobody past the end, where they are dropped:
        # cohorts of all makes share one program.
        there = np.full(len(leaves[0]), np.iinfo(np.int32).max, np.int32)
        there[positions] = mine
        # A round's states may come in parts from several devices.
        self._states = _scatter(self._states, there, jax.device_put(states, _home()))

    def drop(self, ids: np.ndarray) -> None:
        self._index.drop(ids)


def _home() -> jax.Device:
    """The device that holds all states."""
    return jax.local_devices()[0]


@jax.jit
def _gather(states: Tree, indices: jax.Array) -> Tree:
    return tree.map(lambda a: a[indices], states)


@functools.partial(jax.jit, donate_argnums=0)
def _scatter(states: Tree, indices: jax.Array, new: Tree) -> Tree:
    return tree.map(lambda a, b: a.at[indices].set(b, mode="drop"), states, new)


@functools.partial(jax.jit, static_argnames="size")
def _grow(states: Tree, size: int) -> Tree:
    return tree.map(lambda a: jnp.zeros((size, *a.shape[1:]), a.dtype).at[: len(a)].set(a), states)
