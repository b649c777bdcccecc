"""What every side of the comparison has in common: the task it reads, the watch, the result it writes.

Numpy only: this file is imported in every peer's own environment.
"""

import argparse
import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from problems import DIGITS, PROBLEMS, Arrays, Problem

METHODS = ("fedavg", "feddyn")
BY_EXAMPLES = ("fedavg", "fedprox")  # how clients count in the mean; in other methods all the same


@dataclasses.dataclass(frozen=True)
class Task:
    """Data, first weights, and who sees which rows in which order: the same for every side."""

    problem: Problem
    x: np.ndarray
    y: np.ndarray
    offsets: np.ndarray  # client i owns rows offsets[i]:offsets[i + 1]
    params: Arrays
    cohorts: np.ndarray  # (rounds, cohort): clients
    batches: np.ndarray  # (rounds, cohort, steps, batch): rows, -1 is padding
    counts: np.ndarray  # (rounds, cohort): steps a client takes

    @property
    def sizes(self) -> np.ndarray:
        """Examples of every client."""
        return np.diff(self.offsets)

    @property
    def population(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    @property
    def share(self) -> float:
        """Part of the population in a cohort."""
        return self.cohorts.shape[1] / self.population

    def weights(self, t: int, method: str) -> np.ndarray:
        """What clients of round `t` count in the mean: by their examples, or all the same."""
        cohort = self.cohorts[t]
        counted = self.sizes[cohort] if method in BY_EXAMPLES else np.ones(len(cohort))
        return (counted / counted.sum()).astype(np.float32)

    def rows(self, t: int, slot: int) -> Iterator[np.ndarray]:
        """The batches of one client of round `t`, short ones without padding."""
        for rows in self.batches[t, slot, : self.counts[t, slot]]:
            yield rows[rows >= 0]

    def save(self, path: Path) -> None:
        """Write it."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        params = {f"params:{name}": a for name, a in self.params.items()}
        np.savez(path, problem=np.array(self.problem.name), **arrays, **params)

    @classmethod
    def load(cls, path: Path) -> "Task":
        """Read it."""
        with np.load(path) as file:
            params = {n.removeprefix("params:"): file[n] for n in file.files if ":" in n}
            problem = {**PROBLEMS, DIGITS.name: DIGITS}[str(file["problem"])]
            return cls(problem=problem, params=params, **{name: file[name] for name in _ARRAYS})


_ARRAYS = ("x", "y", "offsets", "cohorts", "batches", "counts")


@dataclasses.dataclass
class Watch:
    """Seconds at the end of every round; the first counts from the start of the process."""

    started: float  # time.time() when the process was asked for
    ends: list[float] = dataclasses.field(default_factory=list)

    def lap(self) -> None:
        """A round has ended, its result is there."""
        self.ends.append(time.time())

    @property
    def cold(self) -> float:
        """From the start of the process, imports and all, to the end of round 1."""
        return self.ends[0] - self.started

    @property
    def rounds(self) -> list[float]:
        """Seconds of the rounds after the first."""
        return np.diff(self.ends).tolist()


@dataclasses.dataclass(frozen=True)
class Options:
    """What the driver asks of a side."""

    task: Path
    method: str
    rounds: int
    variant: str
    out: Path
    started: float


def options() -> Options:
    """From the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Path)
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--started", type=float, required=True)
    return Options(**vars(parser.parse_args()))


def finish(asked: Options, watch: Watch, params: Arrays, memory: int = 0, **about: Any) -> None:
    """Write the final parameters and what was measured; `memory` is that of other processes."""
    np.savez(asked.out.with_suffix(".npz"), **params)
    found = {
        "cold": watch.cold,
        "rounds": watch.rounds,
        "memory": own_peak() + memory,
        "about": about,
    }
    asked.out.with_suffix(".json").write_text(json.dumps(found))


def own_peak() -> int:
    """Bytes: the most this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def anonymous_memory_of_descendants() -> int:
    """Bytes that processes below this one have to themselves, now; Linux only."""
    parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    mine, total = os.getpid(), 0
    for process in parents:
        above = parents.get(process)
        while above not in (None, mine, 0):
            above = parents.get(above)
        if above == mine:
            total += _status(process, "RssAnon")
    return total


def _parent(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return None


def _status(process: int, field: str) -> int:
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [line.split()[1] for line in text.splitlines() if line.startswith(f"{field}:")]
    return int(found[0]) * 1024 if found else 0


def timed_rounds(
    asked: Options, watch: Watch, a_round: Callable[[int], None], after: Callable[[], None]
) -> None:
    """Rounds of a side that has no loop of its own; `after` waits until the result is there."""
    for t in range(asked.rounds):
        a_round(t)
        after()
        watch.lap()
