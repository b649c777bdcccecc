"""Runs that other processes carry out, followed by what they write: they need only have the same files."""

import dataclasses
import json
import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from holdfast.record.checkpoint import saved_rounds
from holdfast.record.history import Record
from holdfast.runs.folder import SeedFolder
from holdfast.runs.one_run import RunJob

# Seconds between two looks.
_EVERY = 0.25


@dataclasses.dataclass
class _Read:
    """How far a run has been read: of which file, its whole lines, and the bytes of its rounds so far."""

    told: int
    inode: int = 0
    offset: int = 0
    round: int = 0
    bytes: float = 0.0
    begun: bool = False
    over: bool = False


class Followed:
    """Runs whose new rounds are told as their files show them, while inside a `with`.

    Args:
        files: of every run.
        begin: called with a run before its first new round is told.
        hear: called with a run, a record of it and the bytes of all its rounds until then.
        timed: whether records have their seconds, which are in a file of their own.
    """

    def __init__(
        self,
        files: Mapping[RunJob, SeedFolder],
        begin: Callable[[RunJob], None],
        hear: Callable[[RunJob, Record, float], None],
        timed: bool,
    ) -> None:
        self._files, self._begin, self._hear, self._timed = files, begin, hear, timed
        self._read: dict[RunJob, _Read] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._wrong: Exception | None = None

    def __enter__(self) -> "Followed":
        # What was saved before is nothing new.
        for job, files in self._files.items():
            self._read[job] = _Read(len(saved_rounds(files.checkpoints)))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def end(self, job: RunJob) -> None:
        """A run is over: tell what is left of it, and nothing more."""
        with self._lock:
            self._look(job)
            self.leave(job)

    def leave(self, job: RunJob) -> None:
        """A run is carried out by who follows: nothing is to be told of it."""
        with self._lock:
            if job in self._read:
                self._read[job].over = True

    def raise_what_went_wrong(self) -> None:
        """Raise what whoever is told raised in the thread that follows."""
        if self._wrong is not None:
            raise self._wrong

    def _follow(self) -> None:
        while not self._stop.wait(_EVERY):
            try:
                for job in self._files:
                    with self._lock:
                        self._look(job)
            except Exception as error:  # raised where somebody waits
                self._wrong = error
                return

    def _look(self, job: RunJob) -> None:
        at = self._read.get(job)
        if at is None or at.over:
            return
        for record in _new_records(self._files[job], at):
            at.round = int(record["round"])
            at.bytes += record.get("bytes_down", 0) + record.get("bytes_up", 0)
            if at.round <= at.told:
                continue
            if not at.begun:
                at.begun = True
                self._begin(job)
            seconds = _seconds(self._files[job], at.round) if self._timed else {}
            self._hear(job, {**record, **seconds}, at.bytes)
            at.told = at.round


def _new_records(files: SeedFolder, at: _Read) -> list[Record]:
    """Whole lines that were added; all of them where the file was replaced."""
    try:
        with open(files.path / "history.jsonl", "rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != at.inode:
                at.inode, at.offset, at.bytes = inode, 0, 0.0
            file.seek(at.offset)
            new = file.read()
    except FileNotFoundError:
        return []
    whole = new[: new.rfind(b"\n") + 1]
    at.offset += len(whole)
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError:  # damaged by somebody, and just about to be written again
        return []


def _seconds(files: SeedFolder, round: int) -> Record:
    """Of one round; they are written after what was measured, so they may not be there yet."""
    lines = (files.path / "timing.jsonl").read_bytes().splitlines()
    return json.loads(lines[round - 1]) if len(lines) >= round else {}
