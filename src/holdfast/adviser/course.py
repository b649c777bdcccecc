"""Where the runs of a race happen: on all cores, each of them once."""

import contextlib
import dataclasses
import json
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.adviser.problem import Problem
from holdfast.adviser.work import Entry, Score, Work, do
from holdfast.jobs.local import LocalExecutor
from holdfast.jobs.parcel import open_here, opened, packed
from holdfast.jobs.queue import Job, outcomes
from holdfast.jobs.worker import settings as settings_of_jax
from holdfast.record.files import write_whole

# A stage, how many of its runs are over, and how many they are.
Say = Callable[[str, int, int], None]


class Course:
    """Runs side by side; what an earlier call found is read from the folder."""

    def __init__(
        self, problem: Problem, folder: Path, executor: LocalExecutor, jobs: int, say: Say
    ) -> None:
        self.problem, self.folder, self.executor, self.say = problem, folder, executor, say
        self.jobs = jobs
        self._name = uuid.uuid4().hex
        self._work = Work(problem, folder / "runs", settings_of_jax())
        self.scores: dict[Entry, Score] = {}
        self._parcel = folder / f"parcel-{self._name}"

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Workers are sent the problem once."""
        name, parcel = self._name, self._parcel
        parcel.write_bytes(packed(self._work, same_files=True))
        self.executor.grow(self.jobs, lambda: opened(name, parcel))
        try:
            with open_here(self._name, self._work):
                yield
        finally:
            parcel.unlink(missing_ok=True)

    def run(self, stage: str, entries: Sequence[Entry]) -> dict[Entry, Score]:
        """The scores of these runs; those that are known are not run again."""
        wanted = [e for e in dict.fromkeys(entries) if e not in self.scores]
        for entry in list(wanted):
            if (found := self._read(entry)) is not None:
                self.scores[entry] = found
                wanted.remove(entry)
        self.say(stage, 0, len(wanted))
        done = 0
        for wave in _waves(wanted):
            jobs = [
                Job(do, (self._name, self._parcel, e), float(e.rounds), _program(e)) for e in wave
            ]
            for outcome in outcomes(jobs, self.executor):
                if outcome.error is not None:
                    raise outcome.error
                entry = wave[outcome.number]
                self.scores[entry] = pickle.loads(outcome.value)
                self._write(entry, self.scores[entry])
                done += 1
                self.say(stage, done, len(wanted))
        return {e: self.scores[e] for e in entries}

    def _file(self, entry: Entry) -> Path:
        crowd = "" if entry.participation == 1.0 else f"-times-{entry.participation:g}"
        adapts = "-adapted" if entry.contestant.adapt else ""
        return (
            self.folder
            / "scores"
            / f"{entry.contestant.folder}{adapts}{crowd}-{entry.seed}-{entry.rounds}.json"
        )

    def _write(self, entry: Entry, found: Score) -> None:
        self._file(entry).parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file(entry), json.dumps(dataclasses.asdict(found)))

    def _read(self, entry: Entry) -> Score | None:
        if not self._file(entry).exists():
            return None
        values: dict[str, Any] = json.loads(self._file(entry).read_text())
        plain: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return Score(**plain)


def _waves(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Runs that may go side by side: longer ones go on from the saves of shorter ones, so they come after."""
    waves: list[list[Entry]] = []
    before: dict[tuple[str, int, float], int] = {}
    for entry in sorted(entries, key=lambda e: e.rounds):
        saves = entry.contestant.folder, entry.seed, entry.participation
        before[saves] = before.get(saves, -1) + 1
        if before[saves] == len(waves):
            waves.append([])
        waves[before[saves]].append(entry)
    return waves


def _program(entry: Entry) -> Any:
    # Numbers compile nothing; local steps after training are none of the program's.
    names = tuple(name for name, _ in entry.contestant.arguments)
    return entry.contestant.name, names, entry.participation
