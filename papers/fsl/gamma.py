"""FSL, figures 4, 6 and 7: the weight gamma of the server's loss in four methods, on MNIST."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.fsl import runs
from papers.fsl.runs import BASELINES, DRAWS, NAMES
from papers.fsl.table1 import CHANGES, CONCENTRATIONS, TITLES
from papers.study import Asked, Cell, Found, Row, Study, Verdict

ROUNDS = 100
GAMMAS = (0.05, 0.1, 0.5, 1.0, 2.0)
# How the server learns: as a correction, or as a regulariser of what clients are pulled to.
CORRECTED, REGULARISED = ("fedavg", "scaffold"), ("feddyn", "feddc")
CLOSE = 0.01  # of the best accuracy: a gamma that does as well
PLACES = {"dirichlet01": "figure 4", "dirichlet03": "figure 6"}


def cell(split: str, base: str, gamma: float, draw: int, quick: bool = False) -> Cell:
    """One method at one weight; 0 is the method without server learning."""
    method = f"{base}_plus" if gamma else base
    changes: dict[str, Any] = {
        **CHANGES,
        "rounds": ROUNDS,
        "partition.concentration": CONCENTRATIONS[split],
        **({"algorithm.0.gamma": gamma} if gamma else {}),
        **({**runs.QUICK, **runs.FROM_FEW} if quick else {}),
    }
    values = runs.settings("emnist", method, draw, changes)
    return Cell(f"{_name(split, base, gamma)}-{draw}", runs.run, ("emnist", values), minutes=0.25)


def _name(split: str, base: str, gamma: float) -> str:
    return f"{split}-{base}-{gamma:g}"


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [cell("dirichlet01", "fedavg", 0.5, 0, quick=True)]
    return [
        cell(split, base, gamma, draw)
        for draw in DRAWS
        for split in CONCENTRATIONS
        for base in BASELINES
        for gamma in (0.0, *GAMMAS)
    ]


def curves(found: Found, split: str, base: str, gamma: float) -> list[np.ndarray]:
    """Accuracy, the mean of a window, of every draw that was run."""
    return [runs.accuracy(one) for one in runs.draws_of(found, _name(split, base, gamma))]


def by_gamma(found: Found, split: str, base: str, last: bool) -> dict[float, float]:
    """Accuracy at the end, or the mean over all rounds, by the weights that were run."""
    there = {g: curves(found, split, base, g) for g in (0.0, *GAMMAS)}
    return {
        g: float(np.mean([c[-1] if last else c.mean() for c in found_here]))
        for g, found_here in there.items()
        if found_here
    }


def gain(of: Mapping[float, float]) -> float | None:
    """What the best weight gives over none; None unless both were run."""
    positive = [value for g, value in of.items() if g]
    return max(positive) - of[0.0] if positive and 0.0 in of else None


def rows(found: Found) -> list[Row]:
    """Figures 4 and 6: who gains. Figure 7: how wide the range of weights is, and what a small one does."""
    return [
        *(_gains(found, split) for split in CONCENTRATIONS),
        *(_range(found, split) for split in CONCENTRATIONS),
        _small(found),
        _alike(found),
    ]


SCALE = (
    f"MNIST in place of EMNIST, a perceptron, {ROUNDS} rounds in place of 400; gamma "
    f"{', '.join(f'{g:g}' for g in GAMMAS)} for every method"
)


def _gains(found: Found, split: str) -> Row:
    what = f"{TITLES[split]}, accuracy by round for several gamma: what the best gamma gains"
    paper = "FedAvg and SCAFFOLD generally gain more from server learning than FedDyn and FedDC"
    gains = {b: gain(by_gamma(found, split, b, last=False)) for b in BASELINES}
    ends = {b: gain(by_gamma(found, split, b, last=True)) for b in BASELINES}
    there = {b: value for b, value in gains.items() if value is not None}
    if set(there) != set(BASELINES):
        return Row(PLACES[split], what, paper)
    told = " / ".join(
        f"{NAMES[b]} {100 * value:.1f} ({100 * (ends[b] or 0):.1f})" for b, value in there.items()
    )
    first, second = (
        float(np.mean([there[b] for b in bases])) for bases in (CORRECTED, REGULARISED)
    )
    return Row(
        PLACES[split],
        what,
        paper,
        f"points of accuracy, mean over all rounds (at the end): {told}; {_draws(found, split)}",
        SCALE,
        runs.MNIST,
        Verdict.ORDER if first > second else Verdict.DISAGREES,
        "Judged by the mean over all rounds, which is higher for who is fast, and over two methods each.",
    )


def _draws(found: Found, split: str) -> str:
    count = min(
        len(curves(found, split, base, gamma)) for base in BASELINES for gamma in (0.0, GAMMAS[0])
    )
    return "1 draw" if count == 1 else f"{count} draws"


def good(of: Mapping[float, float]) -> list[float]:
    """Weights that do as well as the best one."""
    positive = {g: value for g, value in of.items() if g}
    return [g for g, value in positive.items() if value >= max(positive.values()) - CLOSE]


def _range(found: Found, split: str) -> Row:
    what = f"{TITLES[split]}, final accuracy against gamma: which gamma do as well"
    paper = "FedAvg+ and SCAFFOLD+ can have larger gamma, and a wider range of them, than FedDyn+ and FedDC+"
    of = {b: by_gamma(found, split, b, last=True) for b in BASELINES}
    if any(not set(GAMMAS) <= set(values) for values in of.values()):
        return Row("figure 7", what, paper)
    ranges = {b: good(values) for b, values in of.items()}
    told = " / ".join(
        f"{NAMES[f'{b}_plus']} {', '.join(f'{g:g}' for g in weights)}"
        for b, weights in ranges.items()
    )
    larger = min(max(ranges[b]) for b in CORRECTED) > max(max(ranges[b]) for b in REGULARISED)
    no_narrower = min(len(ranges[b]) for b in CORRECTED) >= max(len(ranges[b]) for b in REGULARISED)
    return Row(
        "figure 7",
        what,
        paper,
        f"within {100 * CLOSE:.0f} point of the best: {told}; {_draws(found, split)}",
        SCALE,
        runs.MNIST,
        Verdict.ORDER if larger and no_narrower else Verdict.DISAGREES,
        "Both of the first two must allow a larger gamma than both of the others, and no fewer of them.",
    )


def _small(found: Found) -> Row:
    what = f"final accuracy of FedAvg+ with gamma = {GAMMAS[0]:g}, less than FedAvg's"
    paper = (
        "with gamma too small FedAvg+, whose global step is the root of 5, may be worse than FedAvg"
    )
    of = by_gamma(found, "dirichlet01", "fedavg", last=True)
    if not {0.0, GAMMAS[0]} <= set(of):
        return Row("figure 7", what, paper)
    count = len(curves(found, "dirichlet01", "fedavg", GAMMAS[0]))
    return Row(
        "figure 7",
        what,
        paper,
        f"{100 * of[GAMMAS[0]]:.1f} % against {100 * of[0.0]:.1f} % "
        f"({count} draw{'s' * (count > 1)}, Dirichlet 0.1)",
        SCALE,
        runs.MNIST,
        Verdict.ORDER if of[GAMMAS[0]] < of[0.0] else Verdict.DISAGREES,
        "",
    )


def _alike(found: Found) -> Row:
    what = "final accuracy with Dirichlet 0.3 and 0.1: every method, at the best gamma and without"
    paper = "every method is better with 0.3"
    of = {s: {b: by_gamma(found, s, b, last=True) for b in BASELINES} for s in CONCENTRATIONS}
    if any(gain(values) is None for by in of.values() for values in by.values()):
        return Row("figure 7", what, paper)
    told, better = [], []
    for base in BASELINES:
        for name, value in (
            (base, lambda v: v[0.0]),
            (f"{base}_plus", lambda v: max(a for g, a in v.items() if g)),
        ):
            low, high = (value(of[split][base]) for split in CONCENTRATIONS)
            told.append(f"{NAMES[name]} {100 * high:.1f} and {100 * low:.1f}")
            better.append(high > low)
    return Row(
        "figure 7",
        what,
        paper,
        " / ".join(told),
        SCALE,
        runs.MNIST,
        Verdict.ORDER if all(better) else Verdict.DISAGREES,
        "",
    )


def table(found: Found) -> str:
    """Final accuracy, and the mean over all rounds, by method and weight."""
    weights = (0.0, *GAMMAS)
    heads = [f"gamma {g:g}" if g else "without" for g in weights]
    lines = ["| split | method | " + " | ".join(heads) + " |", "|---" * (2 + len(heads)) + "|"]
    for split in CONCENTRATIONS:
        for base, title in BASELINES.items():
            told = []
            for gamma in weights:
                there = curves(found, split, base, gamma)
                told.append(
                    f"{runs.percent([c[-1] for c in there])} ({runs.percent([c.mean() for c in there])})"
                    if there
                    else ""
                )
            if any(told):
                lines.append(f"| {TITLES[split]} | {title} | " + " | ".join(told) + " |")
    return "\n".join(
        [*lines, "", "Final accuracy in %, and in parentheses the mean over all rounds."]
    )


def figure(found: Found, path: Path) -> None:
    """Accuracy by round on the first draw, a panel for each split and method."""
    there = [(s, b) for s in CONCENTRATIONS for b in BASELINES if by_gamma(found, s, b, last=True)]
    with figures.panels(path, len(there), most=4) as axes:
        for axis, (split, base) in zip(axes, there, strict=True):
            for number, gamma in enumerate((0.0, *GAMMAS)):
                for curve in curves(found, split, base, gamma)[:1]:
                    rounds = np.arange(1, len(curve) + 1)
                    label = rf"$\gamma$ = {gamma:g}" if gamma else "without"
                    axis.plot(rounds, 100 * curve, color=f"C{number}", linewidth=1, label=label)
            title = f"{NAMES[f'{base}_plus']}, {TITLES[split]}"
            axis.set(title=title, xlabel="rounds", ylabel="accuracy in %")
            axis.legend(fontsize="x-small")


STUDY = Study(
    "fsl/gamma",
    "The weight of the server's loss in four methods, on MNIST over 450 clients",
    needs=("mnist",),
    searched=f"gamma {', '.join(f'{g:g}' for g in GAMMAS)} for every method, all shown; in figures 4 and 6 "
    "each has its best by test accuracy, as one reads the paper's. All else is the paper's for EMNIST.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
