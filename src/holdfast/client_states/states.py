"""What every client remembers between rounds. A value: writing gives new states and leaves the old."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import tree

from holdfast.client_states.memory import Kept, MemoryStore
from holdfast.client_states.shared import SharedStore
from holdfast.client_states.storage import Storage
from holdfast.client_states.store import Store
from holdfast.core.round_types import ClientState

_COPIED_TOGETHER = 1 << 26  # bytes of states on their way from one store to another


class _Before(NamedTuple):
    """What the next version has overwritten."""

    ids: np.ndarray
    had: np.ndarray  # whether they had a state of their own
    states: Any  # along a leading axis, or `Kept`
    positions: np.ndarray  # of theirs among those states, if they had one
    here: slice | None  # the part of those states that this process has; None: all of them
    next: "ClientStates"


class ClientStates:
    """States of a population's clients; those never touched are all the first one and cost nothing.

    There is one store for all versions, and it holds the newest. A write hands it on, and the older
    version keeps just what was overwritten: for as long as somebody keeps the version.
    """

    def __init__(
        self,
        first: ClientState,
        clients: int,
        storage: Storage | None = None,
        store: Store | None = None,
    ) -> None:
        self.first = first
        self.clients = clients
        self.storage = Storage() if storage is None else storage
        self.store = self.storage.open(first, clients, 0) if store is None else store
        self._before: _Before | None = None
        self._read: tuple[np.ndarray, Any, slice | None] | None = None

    def __repr__(self) -> str:
        return f"ClientStates({self.clients} clients, {len(self.touched)} of them touched)"

    def __len__(self) -> int:
        return self.clients

    def __reduce__(self) -> tuple[Any, ...]:
        """Of one version, by the states in it: other processes have stores of their own."""
        ids = np.fromiter(self.touched, np.int64)
        return _in_memory, (self.first, self.clients, ids, jax.device_get(self.read(ids)))

    def __getitem__(self, client: int) -> ClientState:
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} of {self.clients}")
        state = self.read(np.array([client]))
        return tree.map(lambda a: np.asarray(a)[0], state)

    @property
    def touched(self) -> Mapping[int, ClientState]:
        """The clients with a state of their own, and the states."""
        return _Touched(self)

    def has(self, ids: np.ndarray) -> np.ndarray:
        """Whether each of these clients has a state of its own; -1 is nobody."""
        found = self.store.has(ids)
        for before in reversed(self._overwritten()):
            place = _places(before.ids, ids)
            found = np.where(place < 0, found, before.had[place])
        return found

    @property
    def exchanged_bytes(self) -> int:
        """Of states that this process has sent to others for their rounds."""
        return self.store.exchanged_bytes if isinstance(self.store, SharedStore) else 0

    def stack(self, places: np.ndarray, here: slice | None = None) -> ClientState:
        """The states of a cohort along a leading axis; empty slots (-1) hold the first state.

        Of several processes, each asks for the part it works `here` on.
        """
        part = None if here == slice(0, len(places)) else here
        if part is None:
            states = self.read(places)
        elif isinstance(self.store, SharedStore) and self._before is None:
            states = self.store.read_here(places, part)
        else:
            states = tree.map(lambda a: a[part], self.read(places))
        self._read = (places, states, part)  # what a write of the same cohort overwrites
        return states

    def homes_after(self, places: np.ndarray, here: slice) -> np.ndarray | None:
        """Of several processes, for every client the one with its state when this cohort is done."""
        store = self.store
        if not isinstance(store, SharedStore) or here == slice(0, len(places)):
            return None
        return store.homes_after(places) if store.state_bytes else None

    def read_ahead(self, places: np.ndarray, here: slice, busy: np.ndarray) -> None:
        """Of several processes, exchange states of the coming cohort while these clients are at work."""
        if isinstance(self.store, SharedStore) and here != slice(0, len(places)):
            self.store.read_ahead(places, here, busy)

    def read(self, ids: np.ndarray) -> ClientState:
        """States of any clients along a leading axis; the first state for -1."""
        overwritten = self._overwritten()
        # Not asked for: a write that was stopped halfway may have lost them.
        covered = [_places(before.ids, ids) >= 0 for before in overwritten]
        states = self.store.read(np.where(np.any(covered, 0), -1, ids) if covered else ids)
        for before in reversed(overwritten):
            place = _places(before.ids, ids)
            had = (place >= 0) & before.had[place]
            if had.any():
                states = _overlaid(states, had, self._kept(before, before.positions[place[had]]))
            new = (place >= 0) & ~before.had[place]
            if new.any():
                states = _overlaid(states, new, self.first)
        return states

    def look(self, client: int) -> ClientState:
        """The state of one client, to be used before the next write and not to be changed."""
        if self._before is None and isinstance(self.store, MemoryStore):
            return self.store.look(client)
        return self[client]

    def _kept(self, before: _Before, positions: np.ndarray) -> Any:
        """What was overwritten at these positions."""
        if isinstance(before.states, Kept):
            return before.states.read(positions)
        if before.here is None:
            return tree.map(lambda a: np.asarray(a)[positions], before.states)
        assert isinstance(self.store, SharedStore)
        begin, each = before.here.start, before.here.stop - before.here.start

        def mine(places: np.ndarray) -> Any:
            inside = np.where(places < 0, 0, positions[places] - begin)
            return tree.map(lambda a: np.asarray(a)[inside], before.states)

        return self.store.collect(positions // each, mine)

    def _overwritten(self) -> list[_Before]:
        """From this version to the newest."""
        found, version = [], self
        while version._before is not None:
            found.append(version._before)
            version = version._before.next
        return found

    def write(self, places: np.ndarray, stacked: Any, accepted: np.ndarray) -> "ClientStates":
        """With the states of the accepted clients replaced."""
        if self._before is not None:  # somebody else has gone on from here
            return self._copied(self.storage).write(places, stacked, accepted)
        positions = np.flatnonzero(accepted)
        ids = places[positions]
        had = self.store.has(ids)
        known = self._read
        where, here = np.cumsum(had) - 1, None
        kept = self.store.keep(ids[had]) if isinstance(self.store, MemoryStore) else None
        if kept is not None:
            old: Any = kept
        elif known is not None and np.array_equal(known[0], places):
            (_, old, here), where = known, positions
        else:
            old = self.store.read(ids[had])
        new = ClientStates(self.first, self.clients, self.storage, self.store)
        # Known before the store changes: stopped halfway (Ctrl-C, a full disk), this version is what it was.
        self._before = _Before(ids, had, old, where, here, new)
        self._read = None
        self.store.write(ids, stacked, positions)
        return new._with_room()

    def newest(self) -> "ClientStates":
        """The same states as the newest version of a store: of one of their own, if theirs has gone on."""
        return self if self._before is None else self._copied(self.storage)

    def _with_room(self) -> "ClientStates":
        """These states where there is room for them."""
        return self if self.storage.fits(self.store) else self._copied(self.storage)

    def kept_by(self, storage: Storage) -> "ClientStates":
        """The same states, from now on under these limits and in this folder."""
        return self if storage == self.storage else self._copied(storage)

    def _copied(self, storage: Storage) -> "ClientStates":
        """The same states in a store of their own."""
        ids = np.fromiter(self.touched, np.int64)
        now = self.store
        held = now.most_held if isinstance(now, SharedStore) else len(now)
        store = storage.open(self.first, self.clients, held)
        if isinstance(store, SharedStore):
            store.exchanged_bytes = self.exchanged_bytes
        some = max(1, _COPIED_TOGETHER // max(1, store.state_bytes))
        for begin in range(0, len(ids), some):
            part = ids[begin : begin + some]
            store.write(part, self.read(part), np.arange(len(part)))
        return ClientStates(self.first, self.clients, storage, store)


def _in_memory(first: ClientState, clients: int, ids: np.ndarray, states: Any) -> ClientStates:
    storage = Storage(memory=1 << 62)
    store = storage.open(first, clients, len(ids))
    store.write(ids, states, np.arange(len(ids)))
    return ClientStates(first, clients, storage, store)


class _Touched(Mapping[int, ClientState]):
    """The clients with a state of their own; states are read when they are looked at."""

    def __init__(self, states: ClientStates) -> None:
        self._states = states

    def _ids(self) -> np.ndarray:
        now = self._states.store.ids()
        return now[self._states.has(now)]

    def __contains__(self, client: object) -> bool:
        return bool(self._states.has(np.array([client]))[0])

    def __getitem__(self, client: int) -> ClientState:
        if client not in self:
            raise KeyError(client)
        return self._states[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids().tolist())

    def __len__(self) -> int:
        return len(self._ids())


def _places(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each wanted client is among these; -1 where it is not."""
    if not len(ids):
        return np.full(len(wanted), -1)
    order = np.argsort(ids)
    near = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[near] == wanted, near, -1)


def _overlaid(states: Any, here: np.ndarray, others: Any) -> Any:
    """States, in some places others."""

    def one(a: Any, b: Any) -> np.ndarray:
        out = np.array(a)
        out[here] = b
        return out

    return tree.map(one, states, others)
