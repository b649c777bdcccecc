"""FedPVR's ResNet-8 itself on 2,000 pictures: tables 2 and 3, figures 4 and C.2, in few rounds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.fedpvr import runs
from papers.fedpvr.runs import METHODS, NAMES
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)
CONCENTRATION = 0.1
ROUNDS = 12
# Rates are the paper's, table C.1; a pass over a client's 200 pictures is two steps.
OWN: Mapping[str, Any] = {
    "network": "resnet8",
    "side": 32,
    "rounds": ROUNDS,
    "epochs": 10,
    "batch_size": 100,
    "rate": 0.1,
    "mu": 0.1,
}
ACCURACY = {"fedavg": 64.9, "fedprox": 66.1, "scaffold": 66.6, "fedpvr": 69.3}
ROUNDS_TO = {"fedavg": 90.0, "fedprox": 75.0, "scaffold": 57.0, "fedpvr": 50.0}
# Figure C.2: FedPVR from here on, besides all of it (SCAFFOLD), the last layer (FedPVR) and none (FedAvg).
BEGINS = {"from_block_0": 2, "from_block_2": 4}
SCALE = f"ResNet-8 on a twenty-fifth of the pictures, {ROUNDS} rounds, batches of 100"
DATA = "CIFAR-10, of its first 10,000 training images 2,000 each draw, 5,000 test images"


def cell(run: str, draw: int, quick: bool = False) -> Cell:
    """One run."""
    first = {"first": BEGINS[run]} if run in BEGINS else {}
    method = "fedpvr" if run in BEGINS else run
    own = {**OWN, **first}
    if quick:
        own |= {"rounds": 1, "clients": 2, "images": 40, "test_images": 40, "epochs": 1}
    values = {**runs.settings(method, CONCENTRATION, draw), **own}
    return Cell(f"{run}-{draw}", runs.run, (values,), 5.0)


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [cell("fedpvr", 0, quick=True)]
    return [cell(run, draw) for draw in DRAWS for run in (*METHODS, *BEGINS)]


def of(found: Found, run: str) -> list[Mapping[str, Any]]:
    """What was measured of a method, on each draw."""
    return [found[name] for d in DRAWS if (name := f"{run}-{d}") in found]


def ends(found: Found) -> dict[str, list[float]]:
    """Accuracy in per cent over the last three rounds."""
    return {
        m: [100 * runs.last(one["accuracy"]) for one in of(found, m)] for m in (*METHODS, *BEGINS)
    }


def rows(found: Found) -> list[Row]:
    """Both tables at Dirichlet 0.1, drift by method, and where variance reduction begins."""
    by = ends(found)
    goal = float(np.mean(by["fedavg"])) / 100 if by["fedavg"] else 1.0
    counted = {m: [runs.rounds_to(one["accuracy"], goal) for one in of(found, m)] for m in METHODS}
    faster = runs.pairs(
        {m: -n for m, n in ROUNDS_TO.items()},
        {m: [-n for n in values] for m, values in counted.items()},
        3.0,
    )
    starts = {"fedpvr": 2.0, "scaffold": 1.0, "fedavg": 0.0}
    return [
        _row(
            "table 2",
            "CIFAR-10, ResNet-8, Dirichlet 0.1: rounds to a target (in the paper 66 %, here FedAvg's end)",
            " / ".join(f"{NAMES[m]} {n:.0f}" for m, n in ROUNDS_TO.items()),
            runs.told(counted, "{:.0f}", ROUNDS),
            faster,
        ),
        _row(
            "table 3",
            "CIFAR-10, ResNet-8, Dirichlet 0.1: accuracy in % in the end",
            " / ".join(f"{NAMES[m]} {n:.1f}" for m, n in ACCURACY.items()),
            runs.told({m: by[m] for m in METHODS}),
            runs.pairs(ACCURACY, by, 1.0),
        ),
        _row(
            "figure 4",
            "ResNet-8: drift diversity of the classifier, in the paper CIFAR-100, here CIFAR-10 at 0.1",
            "FedAvg above SCAFFOLD above FedPVR",
            runs.told(drifts(found), "{:.3f}"),
            runs.pairs({"fedavg": 2.0, "scaffold": 1.0, "fedpvr": 0.0}, drifts(found), 0.05),
        ),
        _row(
            "figure C.2",
            "ResNet-8: where variance reduction begins, accuracy in %; all is SCAFFOLD, none FedAvg",
            "the later the better, none worst",
            ", ".join(f"{NAMES.get(m, m)} {runs.mean(v)}" for m, v in by.items() if v),
            runs.pairs(starts, by, 0.5),
        ),
    ]


def drifts(found: Found) -> dict[str, list[float]]:
    """Of the classifier, the mean over rounds."""
    return {
        m: [
            float(np.nanmean(np.array(one["drift_diversity"]["classifier"], np.float64)))
            for one in of(found, m)
        ]
        for m in METHODS
        if m != "fedprox"
    }


def _row(
    place: str, what: str, paper: str, ours: str, compared: Mapping[tuple[str, str], str]
) -> Row:
    verdict = runs.verdict(compared)
    if verdict is Verdict.NOT_RUN:
        return Row(place, what, paper, why="on two cores, hours; the cells are there.")
    return Row(place, what, paper, ours, SCALE, DATA, verdict, runs.said(compared))


def table(found: Found) -> str:
    """Accuracy and the classifier's drift diversity of everything that was run."""
    lines = ["| method | accuracy in % | drift diversity of the classifier |", "|---|---|---|"]
    by, drift = ends(found), drifts(found)
    for method, values in by.items():
        if values:
            of_drift = runs.mean(drift[method], "{:.3f}") if drift.get(method) else ""
            name = NAMES.get(method, f"FedPVR, {method.replace('_', ' ')}")
            lines.append(f"| {name} | {runs.mean(values)} | {of_drift} |")
    return "\n".join(lines)


def figure(found: Found, path: Path) -> None:
    """Accuracy over rounds, the mean of the draws."""
    with figures.panels(path, 1) as (axis,):
        for run in (*METHODS, *BEGINS):
            curves = [one["accuracy"] for one in of(found, run)]
            if curves:
                middle = 100 * np.mean(np.array(curves, np.float64), axis=0)
                axis.plot(np.arange(1, len(middle) + 1), middle, label=NAMES.get(run, run))
        axis.set(xlabel="rounds", ylabel="accuracy in %")
        axis.legend(fontsize="small")


STUDY = Study(
    "fedpvr/resnet8",
    "ResNet-8 on 2,000 pictures of CIFAR-10, few rounds",
    needs=("cifar10",),
    searched="nothing: learning rates are those of the paper's table C.1, FedProx's mu is 0.1.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
