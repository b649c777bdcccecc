"""The rounds of a run on disk: a file that only grows, of which every save says how much is its own.

So a save costs the rounds since the one before, however many there were.
"""

import dataclasses
import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError, file_errors_said
from holdfast.record.history import History, Record
from holdfast.record.ledger import Entry, Ledger, Sent
from holdfast.record.log import Log
from holdfast.record.state import RunState

PREFIX, _SUFFIX = "rounds-", ".jsonl"


class Extent(NamedTuple):
    """The part of a journal that belongs to a save: its first bytes, and their checksum."""

    file: str
    bytes: int
    digest: str


class JournalError(HoldfastError):
    """A journal does not hold what a save says."""


class Journal:
    """The file that a run in progress appends to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begin(None)

    def _begin(self, path: Path | None) -> None:
        """An empty one, in this file; None until something is to be written."""
        self._path = path
        self._digest = hashlib.sha256()
        self._bytes = 0
        # Of the last round written: a state that does not go on from it begins a new file.
        self._rounds = 0
        self._last: Record | None = None

    def extend(self, state: RunState) -> Extent:
        """Write the rounds since the last call; they are on the disk when this returns."""
        if self._path is None or not self._goes_on(state):
            self._begin(_unused(self._folder))
        assert self._path is not None
        rounds = slice(self._rounds, None)
        pairs = zip(state.history.records[rounds], state.ledger.entries[rounds], strict=True)
        lines = "".join(json.dumps([r, _plain(e)]) + "\n" for r, e in pairs).encode()
        with file_errors_said(path=self._path), open(self._path, "ab") as file:
            # What a kill left behind the last save does not count.
            file.truncate(self._bytes)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self._note(lines, state)
        return self._extent

    def _goes_on(self, state: RunState) -> bool:
        records = state.history.records
        return len(records) >= self._rounds and (
            self._rounds == 0 or records[self._rounds - 1] is self._last
        )

    def _note(self, lines: bytes, state: RunState) -> None:
        self._digest.update(lines)
        self._bytes += len(lines)
        self._rounds = len(state.history)
        self._last = state.history.records[-1] if self._rounds else None

    @property
    def _extent(self) -> Extent:
        assert self._path is not None
        return Extent(self._path.name, self._bytes, self._digest.hexdigest())

    def go_on(self, extent: Extent, state: RunState) -> None:
        """Append to what a save was read from."""
        path = self._folder / extent.file
        self._begin(path)
        with open(path, "rb") as file:
            self._note(file.read(extent.bytes), state)


def read(folder: Path, extent: Extent, like: RunState) -> tuple[History, Ledger]:
    """History and ledger of a save, checked."""
    pairs = _pairs(folder, extent)
    entries = Log(_entry(entry) for _, entry in pairs)
    history = History(tuple(record for record, _ in pairs), like.history.directions)
    return history, Ledger(like.ledger.model_bytes, entries)


def records(folder: Path, extent: Extent) -> list[Record]:
    """What was measured in the rounds of a save, checked."""
    return [record for record, _ in _pairs(folder, extent)]


def _pairs(folder: Path, extent: Extent) -> list[tuple[Record, list[Any]]]:
    path = folder / extent.file
    if not path.exists():
        raise JournalError(f"{path.name} is missing")
    with open(path, "rb") as file:
        content = file.read(extent.bytes)
    if hashlib.sha256(content).hexdigest() != extent.digest:
        raise JournalError(f"{path.name} is damaged (its checksum does not fit)")
    return [json.loads(line) for line in content.splitlines()]


def _plain(entry: Entry) -> tuple[Any, ...]:
    """What is beside training only where there is some."""
    values = dataclasses.astuple(entry)
    return values if entry.beside else values[:-1]


def _entry(values: list[Any]) -> Entry:
    names = [field.name for field in dataclasses.fields(Entry)]
    known = dict(zip(names, map(_untuple, values), strict=False))
    known["beside"] = tuple(Sent(*map(_untuple, sent)) for sent in known.get("beside", ()))
    return Entry(**known)


def _untuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # JSON knows no tuples


def _unused(folder: Path) -> Path:
    """One that no save speaks of: what a killed run left must not be taken for this one's."""
    names = (folder / f"{PREFIX}{number}{_SUFFIX}" for number in itertools.count(1))
    return next(path for path in names if not path.exists())


def remove_others(folder: Path, needed: set[str]) -> None:
    """Journals that no save speaks of."""
    for path in folder.glob(f"{PREFIX}*{_SUFFIX}"):
        if path.name not in needed:
            path.unlink()
