"""FSL, figures 6 and 8 of the supplement: a server with data of few clients or with drawn digits."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.fsl import runs
from papers.fsl.runs import DRAWS
from papers.study import Asked, Cell, Found, Row, Study, Verdict

ROUNDS = 200
CLASSES = (1, 2, 5, 10)
RATES = (0.05, 0.2)
ROOT_OF_COHORT = 5**0.5
# Of the experiment file, and what the server has: as many local steps at it as at clients, 5.
KINDS: Mapping[str, tuple[str, Mapping[str, Any] | None, int]] = {
    "FSL": ("fedavg_plus", {"clients": 9, "each": 50}, 90),
    "FSLsyn": (
        "fedavg_plus",
        {"data": {"name": "rendered_characters", "characters": "0123456789"}},
        30,
    ),
    "SCAFFOLD": ("scaffold", None, 0),
    "FedDyn": ("feddyn", None, 0),
}
CLOSE = 0.02  # of accuracy
SCALE = (
    f"MNIST in place of EMNIST, a perceptron (200, 100), {ROUNDS} rounds in place of 1,000, step sizes "
    f"{' and '.join(f'{rate:g}' for rate in RATES)}; 450 clients, 5 a round, 5 local steps, as in the paper"
)


def cell(kind: str, classes: int, rate: float, draw: int, quick: bool = False) -> Cell:
    """One run."""
    method, own, batch = KINDS[kind]
    changes: dict[str, Any] = {
        **runs.ON_MNIST,
        "rounds": ROUNDS,
        "partition": {"name": "by_classes", "clients": 450, "classes": classes, "seed": draw},
        "local.learning_rate": rate,
        "local.epochs": 1,
        "local.batch_size": 27,
        **(runs.QUICK if quick else {}),
    }
    values = runs.settings("emnist", method, draw, changes)
    del values["server"]
    if own is not None:
        local = {**values["local"], "learning_rate": rate * ROOT_OF_COHORT, "batch_size": batch}
        values["server"] = {**own, "seed": draw, "local": local}
    if quick:
        values["server"] |= {"clients": 2, "each": 10}
    name = f"{classes}-{kind}-{rate:g}-{draw}"
    return Cell(name, runs.run, ("emnist", values), minutes=0.3)


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [cell("FSL", 2, RATES[0], 0, quick=True)]
    order = itertools.product(DRAWS, CLASSES, KINDS, RATES)
    return [cell(kind, classes, rate, draw) for draw, classes, kind, rate in order]


def curves(found: Found, classes: int, kind: str, rate: float) -> list[np.ndarray]:
    """Accuracy, the mean of a window, of every draw that was run."""
    return [runs.accuracy(one) for one in runs.draws_of(found, f"{classes}-{kind}-{rate:g}")]


def best(found: Found, classes: int) -> dict[str, list[float]]:
    """Final accuracy of each method at its better step size; of those that were run with all."""
    made = {}
    for kind in KINDS:
        ends = [[float(c[-1]) for c in curves(found, classes, kind, rate)] for rate in RATES]
        if all(ends):
            made[kind] = max(ends, key=lambda values: float(np.mean(values)))
    return made


def rises(found: Found, classes: int, rate: float) -> dict[str, float]:
    """Rounds to 90 % of the final accuracy, the mean over draws."""
    of = {kind: curves(found, classes, kind, rate) for kind in KINDS}
    return {
        kind: float(np.mean([runs.rounds_to(c, 0.9 * float(c[-1])) or len(c) for c in there]))
        for kind, there in of.items()
        if there
    }


def rows(found: Found) -> list[Row]:
    """Figure 6 for each number of classes, and the rise times of figure 8."""
    return [*(_accuracy(found, classes) for classes in CLASSES), _rises(found)]


def _accuracy(found: Found, classes: int) -> Row:
    what = f"C = {classes}: final accuracy, each method at the better of its step sizes; in the paper EMNIST"
    paper = "FSL and FSLsyn comparable with each other, and with SCAFFOLD and FedDyn in all"
    of = best(found, classes)
    if set(of) != set(KINDS):
        return Row("supplement, figure 6", what, paper)
    mean = {kind: float(np.mean(values)) for kind, values in of.items()}
    others = max(mean["SCAFFOLD"], mean["FedDyn"])
    good = (
        abs(mean["FSL"] - mean["FSLsyn"]) <= CLOSE
        and others - min(mean["FSL"], mean["FSLsyn"]) <= CLOSE
    )
    count = min(len(values) for values in of.values())
    told = " / ".join(f"{kind} {runs.percent(values)}" for kind, values in of.items())
    return Row(
        "supplement, figure 6",
        what,
        paper,
        f"{told} ({count} draw{'s' * (count > 1)})",
        SCALE,
        runs.MNIST,
        Verdict.ORDER if good else Verdict.DISAGREES,
        f"Comparable is taken as: within {100 * CLOSE:.0f} points of each other, and no more than that below "
        "the better of SCAFFOLD and FedDyn.",
    )


def _rises(found: Found) -> Row:
    what = "rise time (rounds to 90 % of the final accuracy), for every C and step size; in the paper EMNIST"
    paper = "FSL and FSLsyn rise faster than SCAFFOLD and FedDyn in most cases"
    of: Mapping[tuple[int, float], dict[str, float]] = {
        (c, rate): rises(found, c, rate) for c in CLASSES for rate in RATES
    }
    if any(set(values) != set(KINDS) for values in of.values()):
        return Row("supplement, figure 8", what, paper)
    faster = {
        kind: sum(v[kind] < min(v["SCAFFOLD"], v["FedDyn"]) for v in of.values())
        for kind in ("FSL", "FSLsyn")
    }
    told = "; ".join(
        f"C = {c}, step {rate:g}: " + " / ".join(f"{kind} {n:.0f}" for kind, n in values.items())
        for (c, rate), values in of.items()
    )
    return Row(
        "supplement, figure 8",
        what,
        paper,
        told,
        SCALE,
        runs.MNIST,
        Verdict.ORDER if 2 * min(faster.values()) > len(of) else Verdict.DISAGREES,
        f"Faster than both others in {faster['FSL']} and {faster['FSLsyn']} of {len(of)} cases.",
    )


def table(found: Found) -> str:
    """Final accuracy and rise time of everything that was run."""
    lines = ["| C | step size | " + " | ".join(KINDS) + " |", "|---" * (2 + len(KINDS)) + "|"]
    for classes, rate in itertools.product(CLASSES, RATES):
        there = rises(found, classes, rate)
        told = []
        for kind in KINDS:
            ends = [float(c[-1]) for c in curves(found, classes, kind, rate)]
            told.append(f"{runs.percent(ends)} ({there[kind]:.0f})" if ends else "")
        if any(told):
            lines.append(f"| {classes} | {rate:g} | " + " | ".join(told) + " |")
    return "\n".join([*lines, "", "Final accuracy in %, in parentheses the rise time in rounds."])


def figure(found: Found, path: Path) -> None:
    """Accuracy by round on the first draw, a panel for each step size and number of classes."""
    order = itertools.product(RATES, CLASSES)
    there = [(r, c) for r, c in order if any(curves(found, c, kind, r) for kind in KINDS)]
    with figures.panels(path, len(there), most=4) as axes:
        for axis, (rate, classes) in zip(axes, there, strict=True):
            for number, kind in enumerate(KINDS):
                for curve in curves(found, classes, kind, rate)[:1]:
                    rounds = np.arange(1, len(curve) + 1)
                    axis.plot(rounds, 100 * curve, color=f"C{number}", linewidth=1, label=kind)
            axis.set(title=f"C = {classes}, step {rate:g}", xlabel="rounds", ylabel="accuracy in %")
            axis.legend(fontsize="x-small")


STUDY = Study(
    "fsl/source",
    "A server with data of few clients, or with drawn digits, against SCAFFOLD and FedDyn, on MNIST",
    needs=("mnist",),
    searched="step size 0.05 and 0.2 for every method, both shown; in figure 6 each has its better one by "
    "test accuracy, as one reads the paper's. gamma is 1, alpha 0.01, as there.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
