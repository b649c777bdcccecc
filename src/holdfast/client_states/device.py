"""Client states on the device, where copying them to the host costs more than keeping them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.client_states.store import Slots
from holdfast.trees import Tree, nbytes


class DeviceStore:
    """States in one array per leaf, which doubles when it is full and is written to in place."""

    def __init__(self, first: Tree, clients: int) -> None:
        self.row_bytes = nbytes(first)
        self._slots = Slots(clients)
        # The first place holds the first state, for everyone without one of its own.
        self._rows = tree.map(lambda a: jax.device_put(a, _home())[None], first)

    def __len__(self) -> int:
        return self._slots.taken

    def ids(self) -> np.ndarray:
        return self._slots.ids()

    def has(self, ids: np.ndarray) -> np.ndarray:
        return self._slots.of(ids) >= 0

    def read(self, ids: np.ndarray) -> Tree:
        return _gather(self._rows, self._slots.of(ids) + 1)

    def write(self, ids: np.ndarray, rows: Tree, positions: np.ndarray) -> None:
        mine = self._slots.make(ids) + 1
        leaves = tree.leaves(rows)
        if not leaves:
            return
        if self._slots.taken >= len(tree.leaves(self._rows)[0]):
            self._rows = _grow(self._rows, size=1 << self._slots.taken.bit_length())
        # All places of a cohort are written, those of nobody past the end, where they are dropped:
        # cohorts of all makes share one program.
        there = np.full(len(leaves[0]), np.iinfo(np.int32).max, np.int32)
        there[positions] = mine
        # A round's states may come in parts from several devices.
        self._rows = _scatter(self._rows, there, jax.device_put(rows, _home()))


def _home() -> jax.Device:
    """The device that holds all states."""
    return jax.local_devices()[0]


@jax.jit
def _gather(rows: Tree, slots: jax.Array) -> Tree:
    return tree.map(lambda a: a[slots], rows)


@functools.partial(jax.jit, donate_argnums=0)
def _scatter(rows: Tree, slots: jax.Array, new: Tree) -> Tree:
    return tree.map(lambda a, b: a.at[slots].set(b, mode="drop"), rows, new)


@functools.partial(jax.jit, static_argnames="size")
def _grow(rows: Tree, size: int) -> Tree:
    return tree.map(lambda a: jnp.zeros((size, *a.shape[1:]), a.dtype).at[: len(a)].set(a), rows)
