"""One method of an experiment file on one draw of the data: a cell of studies, and what is read off it."""

import contextlib
import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from holdfast.config import build
from holdfast.config.file import put, read
from papers.study import Asked, Found

HERE = Path(__file__).parent
DRAWS = (0, 1, 2)
WINDOW = 10  # rounds; the paper's
BASELINES = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD", "feddyn": "FedDyn", "feddc": "FedDC"}
NAMES = {
    name: title
    for base, words in BASELINES.items()
    for name, title in ((base, words), (f"{base}_plus", f"{words}+"))
}
METHODS = tuple(NAMES)
# Whose files lie in the folder that is asked for.
IN_FILES = ("mnist", "cifar10")
MNIST = "MNIST, 60,000 and 10,000 images"
# MNIST in place of EMNIST, and a perceptron in place of the convolutional network.
ON_MNIST: Mapping[str, Any] = {
    "data": {"name": "mnist"},
    "model": {"name": "mlp", "hidden": [200, 100], "init": "torch"},
}
# Small, on the bundled digits.
QUICK: Mapping[str, Any] = {
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [8]},
    "rounds": 2,
    "window": 1,
    "evaluate.every": 1,
    "partition.clients": 6,
    "cohort.size": 2,
    "local.epochs": 1,
    "server.local.epochs": 1,
}

# The server's data from clients, where the file has it so.
FROM_FEW: Mapping[str, Any] = {"server.clients": 2, "server.each": 10}

Settings = dict[str, Any]


def settings(file: str, method: str, draw: int, changes: Mapping[str, Any]) -> Settings:
    """What an experiment file says of a method, by name or label, on a draw: what a cell is called with.

    With the draw vary the split, what the server has of it, the first model and who takes part.
    """
    values = copy.deepcopy(read(HERE / f"{file}.toml").values)
    values["algorithm"] = [t for t in values["algorithm"] if method in (t["name"], t.get("label"))]
    # Rounds to a target are counted afterwards, of whole curves.
    values.pop("target", None)
    draws = {"seeds": [draw], "partition.seed": draw, "server.seed": draw}
    for place, value in {**draws, **changes}.items():
        put(values, place, value)
    return values


def built(file: str, values: Settings, asked: Asked) -> build.Study:
    """The experiment with these settings; a data set that is in files comes from the folder asked for."""
    values = copy.deepcopy(values)
    if values["data"]["name"] in IN_FILES:
        values["data"]["folder"] = str(asked.data)
    return build.study(dataclasses.replace(read(HERE / f"{file}.toml"), values=values))


def trained(made: build.Study, folder: Path) -> Sequence[Mapping[str, float]]:
    """What was measured after every round, up to the one in which numbers overflow, if there is one."""
    measured = hf.History()

    def note(state: hf.RunState) -> None:
        nonlocal measured
        measured = state.history

    with contextlib.suppress(hf.RoundFailedError):
        hf.simulate(
            made.experiment(made.methods[0], made.seeds[0]),
            rounds=made.rounds,
            # Seldom: what 450 clients remember is large, and a cell takes less than a minute.
            checkpoint=hf.Checkpoint(folder, every=100),
            progress=False,
            on_round=note,
        )
    return list(measured)


def run(file: str, values: Settings, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """Accuracy each time it was measured; 0 after numbers overflowed, so that no update was finite."""
    made, every = built(file, values, asked), values.get("evaluate", {}).get("every", 1)
    measured = trained(made, folder)[every - 1 :: every]
    ended = made.rounds // every - len(measured)
    curve = [round(float(np.nan_to_num(one["accuracy"])), 4) for one in measured]
    return {"curve": curve + [0.0] * ended, "every": every, "failed": ended > 0}


def accuracy(values: Mapping[str, Any]) -> np.ndarray:
    """The mean of the last `WINDOW` rounds, as far as there are so many; each time that it was measured."""
    total = np.concatenate([[0.0], np.cumsum(values["curve"])])
    end = np.arange(1, len(total))
    begin = np.maximum(end - WINDOW // values["every"], 0)
    return np.asarray((total[end] - total[begin]) / (end - begin))


def rounds_to(curve: np.ndarray, target: float) -> int | None:
    """The first round, from 1, whose accuracy is the target or more."""
    there = np.flatnonzero(curve >= target)
    return int(there[0]) + 1 if len(there) else None


def percent(values: Sequence[float]) -> str:
    """Mean and deviation over draws, in per cent."""
    told = [100 * value for value in values]
    deviation = f" ± {np.std(told, ddof=1):.1f}" if len(told) > 1 else ""
    return f"{np.mean(told):.1f}{deviation}"


def draws_of(found: Found, name: str) -> list[Mapping[str, Any]]:
    """Cells `name-0`, `name-1`, ... that were run."""
    return [found[one] for draw in DRAWS if (one := f"{name}-{draw}") in found]
