"""What all places for states have in common."""

from typing import Protocol

import numpy as np

from holdfast.trees import Tree


class Store(Protocol):
    """States of the clients that took part so far; those of all others are the first state."""

    state_bytes: int  # of one client

    def __len__(self) -> int:
        """How many clients have a state of their own."""

    def ids(self) -> np.ndarray:
        """Who they are, in order."""

    def has(self, ids: np.ndarray) -> np.ndarray:
        """Whether each of these clients is one of them; -1 is nobody."""

    def read(self, ids: np.ndarray) -> Tree:
        """States along a leading axis, a copy; the first state for -1 and for who has none."""

    def write(self, ids: np.ndarray, states: Tree, positions: np.ndarray) -> None:
        """Replace the states of these clients by those at these positions of a leading axis."""


class OwnStore(Store, Protocol):
    """One process's part of them."""

    def drop(self, ids: np.ndarray) -> None:
        """Forget the states of these clients, which have one: another process keeps them from now on."""


class Index:
    """A number for every client that has a state, in the order in which they came."""

    def __init__(self, clients: int) -> None:
        # Zeros, 0 for nobody: memory that was never written to is not taken from the machine.
        self._next = np.zeros(clients, np.int32)
        self.taken = 0  # numbers in use, and those given back
        self._free: list[int] = []

    def __len__(self) -> int:
        return self.taken - len(self._free)

    def ids(self) -> np.ndarray:
        """Clients that have one."""
        return np.flatnonzero(self._next)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """Their numbers; -1 for who has none, and for -1."""
        return np.where(ids < 0, -1, self._next[ids] - 1)

    def make(self, ids: np.ndarray) -> np.ndarray:
        """Their numbers, new ones where there are none."""
        new = ids[self._next[ids] == 0]
        again = [self._free.pop() for _ in range(min(len(new), len(self._free)))]
        self._next[new[: len(again)]] = again
        new = new[len(again) :]
        self._next[new] = self.taken + 1 + np.arange(len(new))
        self.taken += len(new)
        return self._next[ids] - 1

    def drop(self, ids: np.ndarray) -> None:
        """Their numbers are free for others."""
        self._free += self._next[ids].tolist()
        self._next[ids] = 0
