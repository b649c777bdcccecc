"""A whole comparison on one side: several methods and seeds, every round measured on the test set.

Numpy only: this file is imported in every peer's own environment.
"""

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import protocol

METHODS = ("fedavg", "fedprox", "scaffold", "feddyn")
CHECKED = 3  # rounds after which parameters are compared: later, rounding has grown too much


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the driver asks of a side; the folder has a task for every seed, and the test set."""

    folder: Path
    rounds: int
    seeds: int
    variant: str
    out: Path
    started: float

    def task(self, seed: int) -> Path:
        """The file of a seed."""
        return self.folder / f"seed-{seed}.npz"

    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels."""
        with np.load(self.folder / "test.npz") as file:
            return file["x"], file["y"]


def asked() -> Asked:
    """From the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--started", type=float, required=True)
    return Asked(**vars(parser.parse_args()))


class Scores:
    """Accuracy after every round of every run, and parameters after the first few."""

    def __init__(self) -> None:
        self.accuracy: dict[str, list[float]] = {}
        self.params: protocol.Arrays = {}

    def after_round(self, run: str, accuracy: float, params: Callable[[], protocol.Arrays]) -> None:
        """One round of a run is over."""
        scores = self.accuracy.setdefault(run, [])
        scores.append(accuracy)
        if len(scores) == CHECKED:
            self.params |= {f"{run}:{name}": a.copy() for name, a in params().items()}


AfterRound = Callable[
    [float, Callable[[], protocol.Arrays]], None
]  # accuracy, how to get parameters
Train = Callable[[Path, protocol.Task, str, AfterRound], None]


def compare(given: Asked, train: Train) -> None:
    """Every method with every seed, one after another; write scores and the seconds since the start."""
    scores = Scores()
    for method, seed in itertools.product(METHODS, range(given.seeds)):
        run, path = f"{method}-{seed}", given.task(seed)
        train(
            path,
            protocol.Task.load(path),
            method,
            lambda accuracy, params, run=run: scores.after_round(run, accuracy, params),
        )
    seconds = time.time() - given.started
    np.savez(given.out.with_suffix(".npz"), **scores.params)
    found = {"seconds": seconds, "accuracy": scores.accuracy}
    given.out.with_suffix(".json").write_text(json.dumps(found))
