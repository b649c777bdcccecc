"""What every client remembers between rounds. A value: writing gives a new one and leaves the old."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import tree

from holdfast.client_states.storage import Storage
from holdfast.client_states.store import Store
from holdfast.core.round import ClientState

_COPIED_TOGETHER = 1 << 26  # bytes of states on their way from one store to another


class _Before(NamedTuple):
    """What the next version has overwritten."""

    ids: np.ndarray
    had: np.ndarray  # whether they had a state of their own
    rows: Any
    positions: np.ndarray  # of theirs among those states
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
        self._read: tuple[np.ndarray, Any] | None = None

    def __repr__(self) -> str:
        return f"ClientStates({self.clients} clients, {len(self.touched)} of them touched)"

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: int) -> ClientState:
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} of {self.clients}")
        row = self.read(np.array([client]))
        return tree.map(lambda a: np.asarray(a)[0], row)

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

    def stack(self, places: np.ndarray) -> ClientState:
        """The states of a cohort along a leading axis; empty places (-1) hold the first one."""
        rows = self.read(places)
        self._read = (places, rows)  # what a write of the same cohort overwrites
        return rows

    def read(self, ids: np.ndarray) -> ClientState:
        """States of any clients along a leading axis; the first one for -1."""
        rows = self.store.read(ids)
        for before in reversed(self._overwritten()):
            place = _places(before.ids, ids)
            here = place >= 0
            if here.any():
                rows = _overlaid(rows, here, before.rows, before.positions[place[here]])
        return rows

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
        same = known is not None and np.array_equal(known[0], places)
        old = known[1] if known is not None and same else self.store.read(places)
        self.store.write(ids, stacked, positions)
        new = ClientStates(self.first, self.clients, self.storage, self.store)
        self._before = _Before(ids, had, old, positions, new)
        self._read = None
        return new._with_room()

    def _with_room(self) -> "ClientStates":
        """These states where there is room for them."""
        return self if self.storage.fits(self.store) else self._copied(self.storage)

    def kept_by(self, storage: Storage) -> "ClientStates":
        """The same states, from now on under these limits and in this folder."""
        return self if storage == self.storage else self._copied(storage)

    def _copied(self, storage: Storage) -> "ClientStates":
        """The same states in a store of their own."""
        ids = np.fromiter(self.touched, np.int64)
        store = storage.open(self.first, self.clients, len(ids))
        some = max(1, _COPIED_TOGETHER // max(1, store.row_bytes))
        for begin in range(0, len(ids), some):
            part = ids[begin : begin + some]
            store.write(part, self.read(part), np.arange(len(part)))
        return ClientStates(self.first, self.clients, storage, store)


class _Touched(Mapping[int, ClientState]):
    """The clients with a state of their own; states are read when they are looked at."""

    def __init__(self, rows: ClientStates) -> None:
        self._rows = rows

    def _ids(self) -> np.ndarray:
        now = self._rows.store.ids()
        return now[self._rows.has(now)]

    def __contains__(self, client: object) -> bool:
        return bool(self._rows.has(np.array([client]))[0])

    def __getitem__(self, client: int) -> ClientState:
        if client not in self:
            raise KeyError(client)
        return self._rows[client]

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


def _overlaid(rows: Any, here: np.ndarray, others: Any, positions: np.ndarray) -> Any:
    """States, in some places those at these positions of others."""

    def one(a: Any, b: Any) -> np.ndarray:
        out = np.array(a)
        out[here] = np.asarray(b)[positions]
        return out

    return tree.map(one, rows, others)
