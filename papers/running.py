"""Run the cells of a study, several at once, and keep each as it ends."""

import dataclasses
import datetime
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.jobs import machine
from holdfast.jobs.local import LocalExecutor
from holdfast.jobs.queue import Job, Outcome, is_lost, outcomes
from holdfast.record.files import write_whole
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

    def missing(self, cells: list[Cell]) -> list[Cell]:
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


def run(
    study: Study,
    asked: Asked,
    results: Results,
    saves: Path,
    jobs: int = 1,
    ended: Callable[[Cell, Values], None] | None = None,
) -> Found:
    """Run what is missing of a study; what was found, once all of it is there.

    Args:
        study: which.
        asked: how.
        results: where each cell is kept as it ends.
        saves: a folder for what cells need to go on after a kill; each has one of its own in it.
        jobs: so many cells at once.
        ended: told of every cell as it ends.
    """
    left = results.missing(list(study.cells(asked)))
    failed: list[BaseException] = []

    def note(outcome: Outcome) -> None:
        if outcome.error is None:
            values, seconds = outcome.value
            results.keep(study, left[outcome.number], values, seconds)
            if ended is not None:
                ended(left[outcome.number], values)

    with LocalExecutor(max(1, min(jobs, len(left)))) as executor:
        queue = [Job(_timed, (cell, asked, saves / cell.name), cell.minutes) for cell in left]
        for outcome in outcomes(queue, executor):
            note(outcome)
            if outcome.error is not None:
                failed.append(outcome.error)
                if not is_lost(outcome.error):
                    raise outcome.error
    if failed:
        raise failed[0]
    return results.found


def _timed(cell: Cell, asked: Asked, folder: Path) -> tuple[Values, float]:
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    values = cell.function(*cell.args, asked=asked, folder=folder)
    # As it will be read: tuples are lists, keys are words.
    return json.loads(json.dumps(values, allow_nan=False)), time.perf_counter() - began


def _settings(cell: Cell) -> Any:
    return json.loads(json.dumps(cell.args))
