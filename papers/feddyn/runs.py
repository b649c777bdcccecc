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
from papers.study import Asked, Verdict

HERE = Path(__file__).parent
METHODS = ("feddyn", "scaffold", "fedavg", "fedprox")
NAMES = {"feddyn": "FedDyn", "scaffold": "SCAFFOLD", "fedavg": "FedAvg", "fedprox": "FedProx"}
# Models a round transmits, as the paper's tables count: relative to a FedAvg round.
TRANSMITTED = {"scaffold": 2}
# Numbers are near the paper's within this share of them, or within the deviation over draws if that is more.
NEAR = 0.15

Settings = dict[str, Any]
Numbers = Mapping[
    str, float
]  # models transmitted by method; infinite where a target was not reached


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


def mean_told(values: Sequence[float | None], cap: int) -> str:
    """Mean and deviation over draws; where some did not get there, how many did."""
    there = [v for v in values if v is not None]
    if not there:
        return f"{cap}+ ({_draws(len(values))})"
    text = f"{np.mean(there):.0f}"
    if len(there) > 1:
        text += f" ± {np.std(there, ddof=1):.0f}"
    if len(there) < len(values):
        return f"{text} ({len(there)} of {_draws(len(values))}, else {cap}+)"
    return f"{text} ({_draws(len(values))})"


def _draws(count: int) -> str:
    return "1 draw" if count == 1 else f"{count} draws"


def verdict(paper: Numbers, found: Mapping[str, Sequence[float | None]]) -> Verdict:
    """Of the methods that were run on all the draws that any was run on.

    Pairs of methods whose numbers in the paper are within `NEAR` of each other may stand either way.
    """
    means = {m: _mean(values) for m, values in found.items() if values and m in paper}
    if len(means) < 2:
        return Verdict.NOT_RUN
    if all(_is_near(paper[m], found[m]) for m in means):
        return Verdict.AGREES
    return Verdict.DISAGREES if out_of_order(paper, found) else Verdict.ORDER


def out_of_order(
    paper: Numbers, found: Mapping[str, Sequence[float | None]]
) -> list[tuple[str, str]]:
    """Pairs of methods of whom the paper has the first ahead, and here the second is."""
    means = {m: _mean(values) for m, values in found.items() if values and m in paper}
    return [
        (a, b)
        for a in means
        for b in means
        if paper[a] * (1 + NEAR) < paper[b] and means[a] > means[b]
    ]


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([np.inf if v is None else v for v in values]))


def _is_near(paper: float, values: Sequence[float | None]) -> bool:
    mean = _mean(values)
    if not np.isfinite(paper) or not np.isfinite(mean):
        return bool(np.isfinite(paper) == np.isfinite(mean))
    numbers = [v for v in values if v is not None]
    deviation = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    return abs(mean - paper) <= max(NEAR * paper, deviation)


def unlike(paper: Numbers, found: Mapping[str, Sequence[float | None]]) -> str:
    """Which methods stand another way round than in the paper, in words; empty where none do."""
    pairs = out_of_order(paper, found)
    if not pairs:
        return ""
    said = ", ".join(f"{NAMES[b]} before {NAMES[a]}" for a, b in pairs)
    return f"Here {said}, which the paper has the other way round."


def missing(found: Mapping[str, Sequence[float | None]]) -> str:
    """Methods that were not run, in words."""
    names = [NAMES[m] for m in METHODS if not found.get(m)]
    return f"Not run yet: {', '.join(names)}." if names else ""
