"""FedPVR, section 5.2 and figure 3: how large prediction sets must be to be right as often as centralised."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.fedpvr import drift, rates, runs, table2
from papers.fedpvr.rates import CENTRALISED
from papers.fedpvr.runs import METHODS, NAMES, Settings
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = table2.DRAWS
CONCENTRATION = 0.1
KAPPA = 0.1
# How far coverage may be from what is promised: three deviations of 2,000 images to calibrate with.
NEAR = 0.02
PAPER = "curves; FedPVR's sets reach the centralised accuracy as small as the others' or smaller"


def cell(method: str, draw: int, quick: bool = False) -> Cell:
    """The run that table 2 has."""
    values = runs.settings(method, CONCENTRATION, draw, quick)
    values |= rates.chosen(method, CONCENTRATION)
    return Cell(f"{method}-{draw}", sets, (values,), 0.5)


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [cell(method, 0, quick=True) for method in ("fedpvr", CENTRALISED)]
    return [cell(m, d) for d in DRAWS for m in (*METHODS, CENTRALISED)]


def sets(values: Settings, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """Coverage and mean size over kappa after the last round; nothing of a model that has diverged."""
    run = drift.taken(values, asked, folder)
    return {"accuracy": run["accuracy"][-1], "sets": run.get("sets")}


def enough(found: Found) -> dict[str, list[float]]:
    """By method, on each draw: the mean size at which sets cover as much as centralised accuracy is."""
    made: dict[str, list[float]] = {m: [] for m in METHODS}
    for draw in DRAWS:
        central = found.get(f"{CENTRALISED}-{draw}")
        if central is None or central["accuracy"] is None:
            continue
        for method in METHODS:
            one = found.get(f"{method}-{draw}")
            if one is not None:
                made[method].append(size_at(one["sets"], central["accuracy"]))
    return made


def size_at(of: dict[str, list[float]] | None, coverage: float) -> float:
    """Between the two sizes whose coverage is next to this one; all ten classes of a diverged model."""
    if of is None:
        return 10.0
    order = np.argsort(of["coverage"])
    return float(np.interp(coverage, np.array(of["coverage"])[order], np.array(of["size"])[order]))


def rows(found: Found) -> list[Row]:
    """The sizes, and whether coverage is what was promised."""
    sizes = enough(found)
    ahead = {m: [-v for v in values] for m, values in sizes.items()}
    # The paper has FedPVR ahead of each other method or beside it.
    compared = runs.pairs({m: float(m == "fedpvr") for m in METHODS}, ahead, 0.1)
    what = "CIFAR-10, VGG-11, Dirichlet 0.1: mean size of sets that cover as much as the centralised accuracy"
    promised = "CIFAR-10, Dirichlet 0.1: coverage of sets that may miss 10 %"
    return [
        _row(
            "figure 3",
            what,
            PAPER,
            runs.told(sizes, "{:.2f}"),
            _sizes(compared),
            runs.said(compared),
        ),
        _row(
            "figure 3",
            promised,
            "at least 90 % (C.1)",
            runs.told({m: v for m, v in covered(found).items() if v}),
            _coverage(found),
            "",
        ),
    ]


def _sizes(compared: dict[tuple[str, str], str]) -> Verdict:
    if not compared:
        return Verdict.NOT_RUN
    return Verdict.DISAGREES if "opposite" in compared.values() else Verdict.ORDER


def _coverage(found: Found) -> Verdict:
    each = [value for values in covered(found).values() for value in values]
    if not each:
        return Verdict.NOT_RUN
    near = all(abs(v / 100 - (1 - KAPPA)) <= NEAR for v in each)
    return Verdict.AGREES if near else Verdict.DISAGREES


def _row(place: str, what: str, paper: str, ours: str, verdict: Verdict, why: str) -> Row:
    if verdict is Verdict.NOT_RUN:
        return Row(place, what, paper)
    scale = f"{runs.SCALE}, {table2.LAST} rounds"
    data = f"{runs.DATA}; {runs.CALIBRATION} more to calibrate with"
    return Row(place, what, paper, ours, scale, data, verdict, why)


def at(found: Found, what: str, kappa: float = KAPPA) -> dict[str, list[float]]:
    """Coverage or size at a kappa, by method, on each draw whose model has not diverged."""
    made: dict[str, list[float]] = {}
    for method in (*METHODS, CENTRALISED):
        kept = [found[n]["sets"] for d in DRAWS if (n := f"{method}-{d}") in found]
        made[method] = [one[what][one["kappa"].index(kappa)] for one in kept if one]
    return made


def covered(found: Found) -> dict[str, list[float]]:
    """In per cent."""
    return {m: [100 * v for v in values] for m, values in at(found, "coverage").items()}


def table(found: Found) -> str:
    """Coverage and size at a promise of 90 %, and size at the centralised accuracy."""
    lines = [
        "| method | coverage of 90 % sets | their mean size | size at the centralised accuracy |"
    ]
    lines.append("|---|---|---|---|")
    coverage, size, needed = covered(found), at(found, "size"), enough(found)
    for method in (*METHODS, CENTRALISED):
        if coverage[method]:
            told = [_mean(coverage[method], 1), _mean(size[method], 2)]
            told.append(_mean(needed.get(method, []), 2))
            lines.append(f"| {NAMES[method]} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def _mean(values: Sequence[float], places: int) -> str:
    return runs.mean(values, f"{{:.{places}f}}") if values else ""


def figure(found: Found, path: Path) -> None:
    """Coverage over mean size, the mean of the draws, as figure 3 has it."""
    with figures.panels(path, 1) as (axis,):
        for number, method in enumerate(METHODS):
            kept = [found[n]["sets"] for d in DRAWS if (n := f"{method}-{d}") in found]
            kept = [one for one in kept if one]
            if kept:
                size, coverage = (
                    np.mean([one[what] for one in kept], axis=0) for what in ("size", "coverage")
                )
                axis.plot(size, 100 * coverage, color=f"C{number}", label=NAMES[method])
        central = [found[n]["accuracy"] for d in DRAWS if (n := f"{CENTRALISED}-{d}") in found]
        if central:
            height = 100 * float(np.mean(central))
            axis.axhline(height, color="grey", linewidth=0.5, label="centralised accuracy")
        axis.set(xlabel="mean size of sets", ylabel="coverage in %", xlim=(0.8, 6))
        axis.legend(fontsize="small")


STUDY = Study(
    "fedpvr/conformal",
    "Prediction sets: how large they must be to be right as often as centralised training",
    needs=("cifar10",),
    searched="each method's learning rate, and FedProx's mu, by `fedpvr/rates`; the images that sets are "
    "calibrated with were left out of training, and no rate was chosen on this draw.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
