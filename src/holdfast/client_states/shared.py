"""Client states divided among the processes of a run."""

import functools
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast import processes
from holdfast.client_states.store import Index, Store
from holdfast.trees import Tree


class SharedStore:
    """Every process keeps the states of its own clients; reading and writing is done by all together."""

    def __init__(self, mine: Store, first: Tree, clients: int) -> None:
        self.mine = mine
        self.state_bytes = mine.state_bytes
        self._first = first
        self._seen = Index(clients)

    def __len__(self) -> int:
        return self._seen.taken

    def ids(self) -> np.ndarray:
        return self._seen.ids()

    def has(self, ids: np.ndarray) -> np.ndarray:
        return self._seen.of(ids) >= 0

    def note(self, ids: np.ndarray) -> None:
        """These clients have states."""
        self._seen.make(ids)

    def read(self, ids: np.ndarray) -> Tree:
        known = self.has(ids)
        owner = np.where(known, ids % processes.count(), -1)
        held = [np.flatnonzero(owner == k) for k in range(processes.count())]
        most = max(map(len, held))
        leaves, structure = tree.flatten(self._first)
        states = [np.broadcast_to(a, (len(ids), *a.shape)).copy() for a in leaves]
        if not most or not leaves:
            return tree.unflatten(structure, states)
        here = held[processes.rank()]
        # A power of two, so that few programs are compiled to exchange them.
        sent = np.full(1 << (most - 1).bit_length(), -1)
        sent[: len(here)] = ids[here]
        found = processes.gathered(tree.map(np.asarray, self.mine.read(sent)))
        for out, parts in zip(states, tree.leaves(found), strict=True):
            for places, part in zip(held, parts, strict=True):
                out[places] = part[: len(places)]
        return tree.unflatten(structure, states)

    def write(self, ids: np.ndarray, states: Tree, positions: np.ndarray) -> None:
        self._seen.make(ids)
        own = ids % processes.count() == processes.rank()
        self.mine.write(ids[own], tree.map(_everywhere, states), positions[own])


def _everywhere(leaf: Any) -> Any:
    """All of an array that lies in parts at several processes."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return leaf
    whole = jax.sharding.NamedSharding(leaf.sharding.mesh, jax.sharding.PartitionSpec())  # type: ignore[attr-defined]
    return np.asarray(_moved_to(whole)(leaf))


@functools.lru_cache(maxsize=8)
def _moved_to(sharding: Any) -> Any:
    """One function for all rounds, so that it is compiled once for a shape."""
    return jax.jit(lambda a: a, out_shardings=sharding)
