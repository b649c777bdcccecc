"""Client states on disk, in an LMDB database: as many clients as the disk holds, in bounded memory."""

import contextlib
import itertools
import os
import shutil
import struct
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from jax import tree

from holdfast import processes
from holdfast.client_states.inspect import DATA, DamagedStatesError, inspect
from holdfast.errors import FileAccessError, HoldfastError
from holdfast.trees import Tree, nbytes

_KEY = struct.Struct(">QQ")  # client, version: sorted by both
_CHECK = struct.Struct("<I")
# A name on disk, which saves of any version speak of.
FOLDER = "rows-"
_UNCOMMITTED = 1 << 26  # bytes in memory before they are written out


class DiskStore:
    """States with versions, so that a checkpoint and the states it belongs to agree whenever it is killed.

    A write is of the next version. What an earlier one held is kept as long as it is pinned by a
    checkpoint; `open_at` goes back to it and drops whatever came later. A state that went to another
    process is an empty one of its version.
    """

    def __init__(self, first: Tree, clients: int, folder: Path) -> None:
        self.state_bytes = nbytes(first)
        self.clients = clients
        self.folder = folder
        self._leaves, self._structure = tree.flatten(first)
        # An upper limit that costs nothing until it is used: the file is sparse.
        self._database = _database(self.folder, (1 << 30) + 8 * clients * (self.state_bytes + 8192))
        self._count = 0
        self._fingerprint = 0
        # Versions begin with 1: 0 is none, and memory never written to is not taken from the machine.
        self._version_of = np.zeros(clients, np.int64)
        # Clients that went to another process, of whom something may still be stored.
        self._gone: set[int] = set()
        self.version = 0
        self.pinned: tuple[int, ...] = ()

    @classmethod
    def new(cls, first: Tree, clients: int, parent: str | Path | None) -> "DiskStore":
        """In a new folder of that one; without one, in a temporary folder that goes with the store."""
        if parent is not None:
            return cls(first, clients, _new_folder(Path(parent)))
        folder = tempfile.mkdtemp(prefix="holdfast-rows-")
        store = cls(first, clients, Path(folder))
        weakref.finalize(store, shutil.rmtree, folder, ignore_errors=True)
        return store

    def __len__(self) -> int:
        return self._count

    @property
    def contents(self) -> tuple[int, int]:
        """How many states there are, and a number that depends on whose and of which versions."""
        return self._count, self._fingerprint

    def ids(self) -> np.ndarray:
        return np.flatnonzero(self._version_of)

    def has(self, ids: np.ndarray) -> np.ndarray:
        return (ids >= 0) & (self._version_of[ids] > 0)

    def read(self, ids: np.ndarray) -> Tree:
        leaves = [np.empty((len(ids), *a.shape), a.dtype) for a in self._leaves]
        for place, client in enumerate(ids.tolist()):
            version = int(self._version_of[client]) if client >= 0 else 0
            if version == 0:
                for out, first in zip(leaves, self._leaves, strict=True):
                    out[place] = first
                continue
            self._fill(leaves, place, client, version)
        return tree.unflatten(self._structure, leaves)

    def _fill(self, leaves: list[np.ndarray], place: int, client: int, version: int) -> None:
        content = self._database.transaction.get(_KEY.pack(client, version))
        if content is None or len(content) != self.state_bytes + _CHECK.size:
            raise HoldfastError(
                f"states: {self.folder} has lost the state of client {client}; {_AGAIN}"
            )
        body = memoryview(content)[: self.state_bytes]
        if _CHECK.unpack_from(content, self.state_bytes)[0] != zlib.crc32(body):
            raise HoldfastError(
                f"states: the state of client {client} in {self.folder} is damaged (its checksum does not "
                f"fit); {_AGAIN}"
            )
        begin = 0
        for out in leaves:
            size = out[place].size
            out[place] = np.frombuffer(body, out.dtype, size, begin).reshape(out.shape[1:])
            begin += size * out.itemsize

    def write(self, ids: np.ndarray, states: Tree, positions: np.ndarray) -> None:
        with _errors_said(self.folder):
            self._write(ids, states, positions)

    def _write(self, ids: np.ndarray, states: Tree, positions: np.ndarray) -> None:
        self.version += 1
        leaves = [np.asarray(a) for a in tree.leaves(states)]
        before = self._version_of[ids]
        for client, place in zip(ids.tolist(), positions.tolist(), strict=True):
            content = b"".join([np.ascontiguousarray(a[place]).tobytes() for a in leaves])
            self._drop_unpinned(client)
            self._database.transaction.put(
                _KEY.pack(client, self.version), content + _CHECK.pack(zlib.crc32(content))
            )
            self._gone.discard(client)
            self._version_of[client] = self.version
            self._database.uncommitted += len(content)
        self._count += int((before == 0).sum())
        known = before > 0
        self._fingerprint ^= _mixed(ids[known], before[known]) ^ _mixed(ids, self._version_of[ids])
        if self._database.uncommitted > _UNCOMMITTED:
            self._database.commit()

    def drop(self, ids: np.ndarray) -> None:
        with _errors_said(self.folder):
            for client in ids.tolist():
                self._drop_unpinned(client)
                if self._versions(client):
                    self._database.transaction.put(_KEY.pack(client, self.version), b"")
                    self._gone.add(client)
        self._fingerprint ^= _mixed(ids, self._version_of[ids])
        self._version_of[ids] = 0
        self._count -= len(ids)

    def _drop_unpinned(self, client: int) -> None:
        """Earlier versions that no checkpoint would go back to."""
        if self._version_of[client] == 0 and client not in self._gone:
            return
        versions = self._versions(client)
        needed = {max((v for v in versions if v <= pin), default=-1) for pin in self.pinned}
        for version in versions:
            if version not in needed:
                self._database.transaction.delete(_KEY.pack(client, version))

    def _versions(self, client: int) -> list[int]:
        """Versions of a client that are stored."""
        stored = itertools.takewhile(lambda entry: entry[0] == client, self._entries(client))
        return [version for _, version, _ in stored]

    def _entries(self, client: int = 0) -> Iterator[tuple[int, int, bool]]:
        """Clients and versions stored, from this client on, and whether they are empty."""
        with self._database.transaction.cursor() as cursor:
            found = cursor.set_range(_KEY.pack(client, 0))
            while found:
                # A view: the state itself is not read.
                yield *_KEY.unpack(cursor.key()), len(cursor.value()) == 0
                found = cursor.next()

    def commit(self) -> None:
        """All that was written is on the disk."""
        with _errors_said(self.folder):
            self._database.commit()

    @classmethod
    def open_at(
        cls, first: Tree, clients: int, folder: Path, version: int, contents: tuple[int, int]
    ) -> "DiskStore":
        """Go back to a pinned version, if all of it is there; forget what came later."""
        inspect(folder)
        store = cls(first, clients, folder)
        # Begun before somebody put other files into the folder, it would go on with the old ones.
        store._database.abort()
        later = []
        for client, found, empty in store._entries():
            if found > version:
                later.append((client, found))
            elif client < clients:
                # Keys come sorted, so the last one is the newest.
                store._version_of[client] = 0 if empty else found
                (store._gone.add if empty else store._gone.discard)(client)
        ids = store.ids()
        found_contents = len(ids), _mixed(ids, store._version_of[ids])
        if found_contents != contents:
            store._database.abort()
            raise DamagedStatesError(
                f"{folder} holds states of {len(ids)} clients that are not those of the save, which has "
                f"{contents[0]}"
            )
        for client, found in later:
            store._database.transaction.delete(_KEY.pack(client, found))
        store._database.commit()
        store._count, store._fingerprint = contents
        store.version = version
        return store


def _mixed(ids: np.ndarray, versions: np.ndarray) -> int:
    """A number of 64 bits in which every pair counts, in any order; one pair more or less changes it."""
    with np.errstate(over="ignore"):
        x = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = x + versions.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return int(np.bitwise_xor.reduce(x ^ (x >> np.uint64(31)), initial=np.uint64(0)))


_AGAIN = (
    "a later run has gone on in that folder, or the disk is failing: start again in another folder."
)


@contextlib.contextmanager
def _errors_said(folder: Path) -> Iterator[None]:
    try:
        yield
    except lmdb.Error as error:
        raise FileAccessError(
            f"states: {folder} cannot be written ({error}); make room on the disk, or give another folder "
            f"with hf.Storage(folder=...)."
        ) from error


class _Database:
    """An open database and what is written but not committed. One process opens a folder only once."""

    def __init__(self, folder: Path, most: int) -> None:
        try:
            # Without LMDB's own lock: one process has the folder. The lock is a file mapped into memory, and
            # the first write to such a one on a full disk is a signal that ends the process.
            self._open = lmdb.open(str(folder), map_size=most, readahead=False, lock=False)
        except lmdb.Error as error:
            raise HoldfastError(
                f"states: {folder} cannot hold clients' states ({error}); give another folder, with "
                f"hf.Storage(folder=...)."
            ) from None
        # Which file it is: another one may come to stand in its place.
        self.file = _identity(folder)
        self._transaction: Any = None
        self.uncommitted = 0  # bytes

    @property
    def transaction(self) -> Any:
        if self._transaction is None:
            self._transaction = self._open.begin(write=True, buffers=True)
        return self._transaction

    def commit(self) -> None:
        """All that was written is on the disk."""
        if self._transaction is not None:
            self._transaction.commit()
            self._transaction = None
        self.uncommitted = 0

    def abort(self) -> None:
        """Forget what is written but not committed, and read the file anew."""
        if self._transaction is not None:
            self._transaction.abort()
            self._transaction = None
        self.uncommitted = 0

    def __del__(self) -> None:
        if hasattr(self, "_transaction"):  # it may never have been opened
            self.abort()
            self._open.close()


def _new_folder(parent: Path) -> Path:
    """One that no run has used: what a killed one left must not be taken for this one's."""
    names = (f"{FOLDER}{number}" for number in itertools.count(1))
    free = next(name for name in names if not (parent / name).exists())
    folder = parent / processes.told_by_first(free) / str(processes.rank())
    folder.mkdir(parents=True)
    return folder


_databases: "weakref.WeakValueDictionary[Path, _Database]" = weakref.WeakValueDictionary()


def _database(folder: Path, most: int) -> _Database:
    path = folder.resolve()
    found = _databases.get(path)
    if found is None or found.file != _identity(path):
        found = _databases[path] = _Database(path, most)
    return found


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        about = os.stat(folder / DATA)
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino
