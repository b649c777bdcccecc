"""Client states divided among the processes of a run."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import tree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import processes
from holdfast.client_states.exchange import exchanged
from holdfast.client_states.store import OwnStore
from holdfast.trees import Tree


class _Ahead(NamedTuple):
    """What was read before its round."""

    ids: np.ndarray
    missing: np.ndarray  # whether each of them was still at work
    states: Tree  # of this process's part


class SharedStore:
    """Every process keeps the states of the clients that it worked on last.

    Who keeps which is known to all. Reading and writing is done by all together.
    """

    def __init__(self, mine: OwnStore, first: Tree, clients: int) -> None:
        self.mine = mine
        self.state_bytes = mine.state_bytes
        # Of states that this process has sent to others for their rounds.
        self.exchanged_bytes = 0
        self._first = first
        # The process that has a client's state, from 1; 0: it has none.
        self._home = np.zeros(clients, np.int32)
        self._held = np.zeros(processes.count(), np.int64)
        self._ahead: _Ahead | None = None

    def __len__(self) -> int:
        return int(self._held.sum())

    @property
    def most_held(self) -> int:
        """States at the process that has most of them."""
        return int(self._held.max())

    def ids(self) -> np.ndarray:
        return np.flatnonzero(self._home)

    def has(self, ids: np.ndarray) -> np.ndarray:
        return self._owner(ids) >= 0

    def _owner(self, ids: np.ndarray) -> np.ndarray:
        """The process that has each state; -1 for who has none, and for -1."""
        return np.where(ids < 0, -1, self._home[ids] - 1)

    def homes_after(self, ids: np.ndarray) -> np.ndarray:
        """For every client the process that has its state when a round of these is over; -1 for none."""
        homes = self._home - 1
        there = np.flatnonzero(ids >= 0)
        homes[ids[there]] = there // (len(ids) // processes.count())
        return homes

    def note(self, ids: np.ndarray, owner: np.ndarray) -> None:
        """These clients have states, at these processes."""
        known = self._home[ids]
        np.subtract.at(self._held, known[known > 0] - 1, 1)
        np.add.at(self._held, owner, 1)
        self._home[ids] = owner + 1

    def read(self, ids: np.ndarray) -> Tree:
        def mine(places: np.ndarray) -> Tree:
            return self.mine.read(np.where(places < 0, -1, ids[places]))

        return self.collect(self._owner(ids), mine)

    def collect(self, owner: np.ndarray, mine: Callable[[np.ndarray], Tree]) -> Tree:
        """States that one process has each, at all of them; the first state for nobody's (-1).

        `mine` gives those of this process at some places; what it gives for -1 is not used.
        """
        held = [np.flatnonzero(owner == k) for k in range(processes.count())]
        most = max(map(len, held))
        leaves, structure = tree.flatten(self._first)
        states = [np.broadcast_to(a, (len(owner), *a.shape)).copy() for a in leaves]
        if not most or not leaves:
            return tree.unflatten(structure, states)
        # A power of two, so that few programs are compiled to exchange them.
        sent = np.full(1 << (most - 1).bit_length(), -1)
        here = held[processes.rank()]
        sent[: len(here)] = here
        found = processes.gathered(tree.map(np.asarray, mine(sent)))
        for out, parts in zip(states, tree.leaves(found), strict=True):
            for places, part in zip(held, parts, strict=True):
                out[places] = part[: len(places)]
        return tree.unflatten(structure, states)

    def read_here(self, ids: np.ndarray, here: slice) -> Tree:
        """States for a round in which this process works on a part of the clients, all on as many.

        Those of its part that are elsewhere come from there, and it sends what others need.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and np.array_equal(ahead.ids, ids):
            return self._brought(ids, here, ahead.missing, ahead.states)
        return self._brought(ids, here, np.ones(len(ids), bool))

    def read_ahead(self, ids: np.ndarray, here: slice, busy: np.ndarray) -> None:
        """What the next `read_here` can have already, while these clients are at work."""
        missing = np.isin(ids, busy[busy >= 0])
        self._ahead = _Ahead(ids, missing, self._brought(ids, here, ~missing))

    def _brought(
        self, ids: np.ndarray, here: slice, wanted: np.ndarray, states: Tree | None = None
    ) -> Tree:
        """States of this process's part, in the wanted places; in the others as given."""
        me = processes.rank()
        owner = np.where(wanted, self._owner(ids), -1)
        worker = np.arange(len(ids)) // (here.stop - here.start)
        mine = owner[here] == me
        if states is None:
            states = self.mine.read(np.where(mine, ids[here], -1))
        elif mine.any():
            states = _put(states, np.flatnonzero(mine), self.mine.read(ids[here][mine]))
        if not self.state_bytes or not ((owner >= 0) & (owner != worker)).any():
            return states
        outgoing, incoming, places = {}, {}, {}
        for k in range(processes.count()):
            out = np.flatnonzero((owner == me) & (worker == k))
            back = np.flatnonzero((owner == k) & (worker == me))
            if k != me and len(out):
                outgoing[k] = tree.map(np.asarray, self.mine.read(ids[out]))
                self.exchanged_bytes += len(out) * self.state_bytes
            if k != me and len(back):
                places[k], incoming[k] = back - here.start, self._room_for(len(back))
        exchanged(outgoing, incoming)
        for k, found in incoming.items():
            states = _put(states, places[k], found)
        return states

    def _room_for(self, number: int) -> Tree:
        return tree.map(lambda a: np.empty((number, *a.shape), a.dtype), self._first)

    def write(self, ids: np.ndarray, states: Tree, positions: np.ndarray) -> None:
        if self._ahead is not None and np.isin(ids, self._ahead.ids[~self._ahead.missing]).any():
            self._ahead = None
        known = self._owner(ids)
        begin = 0
        if any(_is_spread(leaf) for leaf in tree.leaves(states)):
            each = len(tree.leaves(states)[0]) // processes.count()
            owner, begin = positions // each, processes.rank() * each
            states = tree.map(_local, states)
        else:
            # All have them all: who has no home gets one by its number.
            owner = np.where(known < 0, ids % processes.count(), known)
        own = owner == processes.rank()
        self.mine.write(ids[own], states, positions[own] - begin)
        self.mine.drop(ids[(known == processes.rank()) & ~own])
        self.note(ids, owner)


def _put(states: Tree, places: np.ndarray, some: Tree) -> Tree:
    """States, at some places others."""

    def one(a: Any, b: Any) -> np.ndarray:
        out = a if isinstance(a, np.ndarray) and a.flags.writeable else np.array(a)
        out[places] = b
        return out

    return tree.map(one, states, some)


def _is_spread(leaf: Any) -> bool:
    """Whether an array lies in parts at several processes."""
    if not isinstance(leaf, jax.Array):
        return False
    return not leaf.is_fully_addressable and not leaf.is_fully_replicated


def _local(leaf: jax.Array) -> jax.Array:
    """This process's part of an array, where it is."""
    shards = sorted(leaf.addressable_shards, key=lambda s: s.index[0].start or 0)
    if len(shards) == 1:
        return shards[0].data
    mesh = Mesh(np.array([s.device for s in shards]), ("here",))
    shape = (sum(len(s.data) for s in shards), *leaf.shape[1:])
    split = NamedSharding(mesh, PartitionSpec("here"))
    return jax.make_array_from_single_device_arrays(shape, split, [s.data for s in shards])
