"""FedPVR, tables C.1 and C.2: the learning rate of each method, searched on images nobody trains on."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from holdfast.record.files import write_whole
from papers.fedpvr import runs
from papers.fedpvr.runs import METHODS, NAMES, Settings
from papers.running import Results
from papers.study import Asked, Cell, Found, Row, Study, Verdict

# A draw of its own: what is chosen here is used on others.
DRAW = 100
CONCENTRATIONS = (0.1, 0.5)
RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
BEGIN = 1
MUS = (0.1, 0.5, 1.0)
ROUNDS = 6
# Of the network on the data, VGG-11 in table C.1; FedProx has none there.
PAPER = {
    0.1: {"fedavg": 0.05, "scaffold": 0.05, "fedpvr": 0.05},
    0.5: {"fedavg": 0.1, "scaffold": 0.1, "fedpvr": 0.1},
}
CENTRALISED = "centralised"


def cell(method: str, concentration: float, quick: bool = False) -> Cell:
    """The search of a method."""
    values = runs.settings(method, concentration, DRAW, quick)
    values["rounds"] = 1 if quick else ROUNDS
    values["mus"] = list(MUS[:1] if quick or method != "fedprox" else MUS)
    values["rates"] = list(RATES[1:2] if quick else RATES)
    values["begin"] = 0 if quick else BEGIN
    name = CENTRALISED if method == CENTRALISED else f"{method}-{concentration:g}"
    return Cell(name, searched, (values,), 0.7)


def cells(asked: Asked) -> list[Cell]:
    """All at a concentration before the next one."""
    if asked.quick:
        return [cell("fedpvr", 0.1, quick=True)]
    first = [cell(m, 0.1) for m in METHODS] + [cell(CENTRALISED, 0.1)]
    return [*first, *(cell(m, c) for c in CONCENTRATIONS[1:] for m in METHODS)]


def searched(values: Settings, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """The best rate, up and down from the one it begins with as long as that is better; then mu."""
    kept = folder / "points.json"
    points: list[dict[str, float]] = json.loads(kept.read_text()) if kept.exists() else []

    def accuracy(rate: float, mu: float) -> float:
        known = [p["accuracy"] for p in points if (p["rate"], p["mu"]) == (rate, mu)]
        if known:
            return known[0]
        points.append({"rate": rate, "mu": mu, "accuracy": validated(values, rate, mu, asked)})
        write_whole(kept, json.dumps(points))
        return points[-1]["accuracy"]

    rates, mus = values["rates"], values["mus"]
    best = values["begin"]
    for step in (1, -1):
        while 0 <= best + step < len(rates) and accuracy(rates[best + step], mus[0]) > accuracy(
            rates[best], mus[0]
        ):
            best += step
    mu = max(mus, key=lambda m: accuracy(rates[best], m))
    return {"rate": rates[best], "mu": mu, "points": points}


def validated(values: Settings, rate: float, mu: float, asked: Asked) -> float:
    """Accuracy on the images kept out of training, over the last three rounds."""
    data = runs.pictures_of(values, asked)
    given = {**values, "rate": rate, "mu": mu}
    made, _ = runs.experiment(given, data.train, [hf.evaluate.on(data.held_out)])
    history, _ = runs.carried_out(made, values["rounds"])
    return round(runs.last(runs.measurements(history, values["rounds"])["accuracy"]), 4)


def chosen(method: str, concentration: float) -> dict[str, float]:
    """What the search has found, for settings of runs; a rate in the middle before it was run."""
    name = CENTRALISED if method == CENTRALISED else f"{method}-{concentration:g}"
    found = Results(STUDY.results).found.get(name, {"rate": RATES[BEGIN], "mu": MUS[0]})
    mu = {"mu": found["mu"]} if method == "fedprox" else {}
    return {"rate": found["rate"], **mu}


def rows(found: Found) -> list[Row]:
    """One for each concentration."""
    made = []
    for concentration, paper in PAPER.items():
        ours = {m: found[n]["rate"] for m in METHODS if (n := f"{m}-{concentration:g}") in found}
        run = len(set(ours) & set(paper)) > 1
        among = {m: ours[m] for m in paper if m in ours}
        alike = len(set(among.values())) == 1
        verdict = Verdict.ORDER if alike else Verdict.DISAGREES
        made.append(
            Row(
                "table C.1",
                f"learning rate, VGG-11 on CIFAR-10, Dirichlet {concentration:g}",
                _told(paper),
                _told(ours) if run else "",
                runs.SCALE if run else "",
                runs.DATA if run else "",
                verdict if run else Verdict.NOT_RUN,
                "The paper's search came to the same rate for the three methods; the order agrees where "
                "ours does too. Momentum is 0.9 where the paper has it, so that SCAFFOLD's steps are a "
                "tenth of FedAvg's at the same rate."
                if run
                else "",
            )
        )
    return made


def _told(rates: dict[str, float]) -> str:
    return " / ".join(f"{NAMES[m]} {rate:g}" for m, rate in rates.items())


def table(found: Found) -> str:
    """Validation accuracy of every point of the search."""
    lines = ["| method | Dirichlet | " + " | ".join(f"{r:g}" for r in RATES) + " | mu |"]
    lines.append("|---" * (len(RATES) + 3) + "|")
    for name, values in found.items():
        method, _, concentration = name.partition("-")
        by = {p["rate"]: 100 * p["accuracy"] for p in values["points"] if p["mu"] == MUS[0]}
        told = [
            (f"**{by[r]:.1f}**" if r == values["rate"] else f"{by[r]:.1f}") if r in by else ""
            for r in RATES
        ]
        mu = f"{values['mu']:g}" if method == "fedprox" else ""
        lines.append(f"| {NAMES[method]} | {concentration} | " + " | ".join(told) + f" | {mu} |")
    return "\n".join(lines)


def figure(found: Found, path: Path) -> None:
    """Accuracy over the rate."""
    from papers import figures

    with figures.panels(path, 1) as (axis,):
        for name, values in found.items():
            by = sorted((p["rate"], 100 * p["accuracy"]) for p in values["points"])
            axis.plot(*np.array(by).T, marker="o", label=name, linewidth=1)
        axis.set(xscale="log", xlabel="learning rate", ylabel="validation accuracy in %")
        axis.legend(fontsize="x-small")


STUDY = Study(
    "fedpvr/rates",
    "The learning rate of each method on CIFAR-10, by images nobody trains on",
    needs=("cifar10",),
    searched=f"the rates in the table, from {RATES[BEGIN]:g} up and down as long as it gets better, by "
    f"the accuracy on {runs.CALIBRATION} images kept out of training, over the last three of {ROUNDS} "
    f"rounds, on a draw of data that no other study has; FedProx's mu {', '.join(map(str, MUS))} at its best "
    "rate.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
