"""Run the cells of a study, several at once, and keep each as it ends."""

import dataclasses
import datetime
import fnmatch
import hashlib
import json
import platform
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.jobs import machine
from holdfast.jobs.local import LocalExecutor
from holdfast.jobs.queue import Job, Outcome, is_lost, outcomes
from holdfast.record.files import write_whole
from holdfast.record.lock import held
from holdfast.record.versions import versions
from papers.study import Asked, Cell, Found, Study, Values


@dataclasses.dataclass(frozen=True)
class Results:
    """What was found of a study, in a file.

    A cell has what it returned (`values`), what it was called with, how long it took, when and with which
    versions. One whose settings are not those of today is run again.
    """

    path: Path

    def read(self) -> dict[str, Any]:
        """Everything that is kept, by the cell's name."""
        return json.loads(self.path.read_text("utf-8"))["cells"] if self.path.exists() else {}

    @property
    def found(self) -> Found:
        """What cells returned."""
        return {name: kept["values"] for name, kept in self.read().items()}

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells that were not run, or with other settings."""
        known = self.read()
        return [c for c in cells if c.name not in known or known[c.name]["args"] != _settings(c)]

    def keep(self, study: Study, cell: Cell, values: Values, seconds: float) -> None:
        """Write one more cell; the file is whole at any moment."""
        cells = self.read()
        cells[cell.name] = {
            "args": _settings(cell),
            "values": values,
            "seconds": round(seconds, 1),
            "on": datetime.date.today().isoformat(),
            "versions": versions(),
            "machine": f"{platform.machine()}, {machine.cores()} cores",
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        ordered = {name: cells[name] for name in sorted(cells)}
        text = json.dumps({"study": study.name, "cells": ordered}, indent=1, allow_nan=False)
        write_whole(self.path, text + "\n")


def chosen(cells: Sequence[Cell], pattern: str | None) -> list[Cell]:
    """Cells whose name has the pattern in it, which may have `*` and `?`; all unless there is one."""
    return [c for c in cells if pattern is None or fnmatch.fnmatchcase(c.name, f"*{pattern}*")]


def run(
    study: Study,
    asked: Asked,
    results: Results,
    saves: Path,
    jobs: int = 1,
    ended: Callable[[Cell, Values, float], None] | None = None,
    only: str | None = None,
) -> Found:
    """Run what is missing of a study; what was found, once all of it is there.

    Args:
        study: which.
        asked: how.
        results: where each cell is kept as it ends.
        saves: a folder for what cells need to go on after a kill; each has its own in it until it ends.
        jobs: so many cells at once; one after another they run in the study's order, else the longest first.
        ended: told of every cell as it ends, and how many seconds it took.
        only: of which cells alone, as `chosen` has it.
    """
    left = results.missing(chosen(study.cells(asked), only))
    one_at_a_time = threading.Lock()

    def keep(outcome: Outcome) -> None:
        if outcome.error is None:
            cell, (values, seconds) = left[outcome.number], outcome.value
            with one_at_a_time:
                results.keep(study, cell, values, seconds)
                shutil.rmtree(_folder(saves, cell), ignore_errors=True)
                if ended is not None:
                    ended(cell, values, seconds)

    failed: list[BaseException] = []
    jobs = max(1, min(jobs, len(left)))
    with held(saves), LocalExecutor(jobs) as executor:
        queue = [
            Job(_timed, (cell, asked, _folder(saves, cell)), cell.minutes if jobs > 1 else -place)
            for place, cell in enumerate(left)
        ]
        # Kept the moment it ends, also while this process is at work on another.
        for outcome in outcomes(queue, executor, ended=keep):
            if outcome.error is not None:
                failed.append(outcome.error)
                if not is_lost(outcome.error):
                    raise outcome.error
    if failed:
        raise failed[0]
    return results.found


def write(study: Study, results: Results) -> Path | None:
    """The table of what there is, and the figure; where the figure is, if there is one."""
    found = results.found
    write_whole(results.path.with_suffix(".md"), study.table(found).rstrip() + "\n")
    if study.figure is None or not found:
        return None
    picture = results.path.with_suffix(".png")
    study.figure(found, picture)
    return picture if picture.exists() else None


def _folder(saves: Path, cell: Cell) -> Path:
    """Of a cell with these settings: saves of others are of no use to it."""
    settings = json.dumps(_settings(cell), sort_keys=True)
    return saves / f"{cell.name}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def _timed(cell: Cell, asked: Asked, folder: Path) -> tuple[Values, float]:
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    values = cell.function(*cell.args, asked=asked, folder=folder)
    # As it will be read: tuples are lists, keys are words.
    return json.loads(json.dumps(values, allow_nan=False)), time.perf_counter() - began


def _settings(cell: Cell) -> Any:
    return json.loads(json.dumps(cell.args))
