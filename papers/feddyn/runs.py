"""One method of an experiment file on one draw of the data, until its highest target: a cell of studies."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from holdfast.config import build
from holdfast.config.file import put, read
from papers.ordering import Numbers, mean_told
from papers.study import Asked

HERE = Path(__file__).parent
METHODS = ("feddyn", "scaffold", "fedavg", "fedprox")
NAMES = {"feddyn": "FedDyn", "scaffold": "SCAFFOLD", "fedavg": "FedAvg", "fedprox": "FedProx"}
# Models a round transmits, as the paper's tables count: relative to a FedAvg round.
TRANSMITTED = {"scaffold": 2}

Settings = dict[str, Any]


def settings(file: str, method: str, changes: Mapping[str, Any]) -> Settings:
    """What an experiment file says of one method, changed at some places: what a cell is called with."""
    values = copy.deepcopy(read(HERE / f"{file}.toml").values)
    values["algorithm"] = [table for table in values["algorithm"] if table["name"] == method]
    return changed(values, changes)


def changed(values: Settings, changes: Mapping[str, Any]) -> Settings:
    """The same with other values at some places, such as `local.epochs`."""
    values = copy.deepcopy(values)
    for place, value in changes.items():
        put(values, place, value)
    return values


def study_of(file: str, values: Settings, asked: Asked) -> build.Study:
    """The experiment with these settings; a data set that is in files comes from the folder asked for."""
    values = copy.deepcopy(values)
    if not asked.quick and values["data"]["name"] == "mnist":
        values["data"]["folder"] = str(asked.data)
    return build.study(dataclasses.replace(read(HERE / f"{file}.toml"), values=values))


def run(
    file: str,
    values: Settings,
    targets: Sequence[float],
    *,
    asked: Asked,
    folder: Path,
) -> dict[str, Any]:
    """The curve of what the file measures until the last target is reached, and when each of them was."""
    made = study_of(file, values, asked)
    metric, last = made.metric, targets[-1]
    done = hf.simulate(
        made.experiment(made.methods[0], made.seeds[0]),
        rounds=made.rounds,
        checkpoint=hf.Checkpoint(folder, every=5),
        until=lambda state: state.history[-1][metric] >= last,
    )
    curve = np.array(done.history[metric])
    method = values["algorithm"][0]["name"]
    return {
        "rounds": len(curve),
        "reached": {str(t): transmitted(method, rounds_to(curve, t)) for t in targets},
        "best": round(float(np.nanmax(curve)), 4),
        "curve": [round(float(value), 4) for value in curve],
    }


def rounds_to(curve: np.ndarray, target: float) -> int | None:
    """The first round, from 1, whose value is the target or more."""
    there = np.flatnonzero(curve >= target)
    return int(there[0]) + 1 if len(there) else None


def transmitted(method: str, rounds: int | None) -> int | None:
    """Models transmitted in so many rounds."""
    return None if rounds is None else rounds * TRANSMITTED.get(method, 1)


def printed(paper: Numbers, cap: int) -> str:
    """The paper's numbers of all methods in a line; infinite is what did not get there in `cap` rounds."""
    return " / ".join(
        f"{NAMES[m]} {n:.0f}" if np.isfinite(n) else f"{NAMES[m]} {transmitted(m, cap)}+"
        for m, n in paper.items()
    )


def told(found: Mapping[str, Sequence[float | None]], caps: Mapping[str, int]) -> str:
    """Ours of all methods in a line: the mean over draws, its deviation, and how many draws."""
    return " / ".join(f"{NAMES[m]} {mean_told(found[m], caps[m])}" for m in METHODS if found.get(m))


def missing(found: Mapping[str, Sequence[float | None]]) -> str:
    """Methods that were not run, in words."""
    names = [NAMES[m] for m in METHODS if not found.get(m)]
    return f"Not run yet: {', '.join(names)}." if names else ""
