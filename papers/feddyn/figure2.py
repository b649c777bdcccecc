"""FedDyn, figure 2: FedSplit, made for full participation; on MNIST, where the paper has CIFAR-10."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.feddyn import runs
from papers.feddyn.targets import QUICK
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)
TARGETS = [1.0]
STEPS = (1.0, 10.0, 100.0)
# Rounds, and the file, by how many devices take part.
PARTICIPATION = {"10": ("mnist", 60), "100": ("mnist_everyone", 20)}
MINUTES = {"10": 3.0, "100": 8.0}
FEDDYN = "feddyn"


def methods(participation: str) -> dict[str, dict[str, Any]]:
    """What is compared, by the name in cells: FedSplit with three step sizes, and FedDyn."""
    made: dict[str, dict[str, Any]] = {FEDDYN: {"name": "feddyn", "alpha": 0.01}}
    # With all devices both means are the same method.
    averages = ("all", "active") if participation == "10" else ("active",)
    for average, step in itertools.product(averages, STEPS):
        name = f"fedsplit_{average}-{step:g}"
        made[name] = {"name": "fedsplit", "step_size": step, "average": average}
    return made


def cell(participation: str, method: str, draw: int, quick: bool = False) -> Cell:
    """One run."""
    file, rounds = PARTICIPATION[participation]
    changes = {
        "algorithm": [methods(participation)[method]],
        "rounds": rounds,
        "local.epochs": 10,
        **(QUICK if quick else {}),
    }
    values = runs.settings(file, "feddyn", changes)
    values["seeds"], values["partition"]["seed"] = [draw], draw
    values["target"] = TARGETS[0]
    name = f"{participation}-{method}-{draw}"
    return Cell(name, runs.run, (file, values, TARGETS), MINUTES[participation])


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [cell("10", "fedsplit_all-10", 0, quick=True)]
    return [cell(p, m, draw) for draw in DRAWS for p in PARTICIPATION for m in methods(p)]


def best(found: Found, participation: str) -> dict[str, list[float]]:
    """The best accuracy of each method that was run, on each draw, in per cent."""
    by = {
        m: [100 * found[n]["best"] for d in DRAWS if (n := f"{participation}-{m}-{d}") in found]
        for m in methods(participation)
    }
    return {m: values for m, values in by.items() if values}


def rows(found: Found) -> list[Row]:
    """One for each participation."""
    claims = {
        "100": "FedDyn above FedSplit",
        "10": "FedDyn above FedSplit Act above FedSplit All",
    }
    return [_row(found, participation, claims[participation]) for participation in ("100", "10")]


def _row(found: Found, participation: str, paper: str) -> Row:
    what = f"best accuracy, {participation} % a round: in the paper CIFAR-10, here MNIST"
    by = {m: float(np.mean(v)) for m, v in best(found, participation).items()}
    tops = {k: _best_of(by, k) for k in (FEDDYN, "fedsplit_active", "fedsplit_all")}
    there = {k: by[m] for k, m in tops.items() if m is not None}
    if len(there) < (2 if participation == "100" else 3):
        return Row("figure 2", what, paper)
    told = " / ".join(f"{_name(tops[k] or '')} {value:.2f} %" for k, value in there.items())
    ordered = list(there.values()) == sorted(there.values(), reverse=True)
    return Row(
        "figure 2",
        what,
        paper,
        told,
        f"MNIST in place of CIFAR-10, 10 epochs, {PARTICIPATION[participation][1]} rounds",
        "MNIST, 60,000 and 10,000 images, Dirichlet 0.3",
        Verdict.ORDER if ordered else Verdict.DISAGREES,
        "FedSplit has the best of its step sizes by test accuracy, which favours it; the paper prints none.",
    )


def _best_of(by: Mapping[str, float], kind: str) -> str | None:
    names = [m for m in by if m.startswith(kind)]
    return max(names, key=lambda m: by[m]) if names else None


def _name(method: str) -> str:
    kind, _, step = method.partition("-")
    names = {
        FEDDYN: "FedDyn",
        "fedsplit_active": "FedSplit Act",
        "fedsplit_all": "FedSplit All",
    }
    return f"{names[kind]} (s = {step})" if step else names[kind]


def table(found: Found) -> str:
    """Best accuracy of everything that was run."""
    lines = ["| a round | method | best accuracy in % | draws |", "|---|---|---|---|"]
    for participation in PARTICIPATION:
        for method, values in best(found, participation).items():
            deviation = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
            told = f"{np.mean(values):.2f}{deviation}"
            lines.append(f"| {participation} % | {_name(method)} | {told} | {len(values)} |")
    return "\n".join(lines)


def figure(found: Found, path: Path) -> None:
    """Curves of the first draw, a panel for each participation."""
    there = [participation for participation in PARTICIPATION if best(found, participation)]
    with figures.panels(path, len(there)) as axes:
        for axis, participation in zip(axes, there, strict=True):
            for method in best(found, participation):
                if (name := f"{participation}-{method}-0") in found:
                    curve = 100 * np.array(found[name]["curve"])
                    rounds = np.arange(1, len(curve) + 1)
                    axis.plot(rounds, curve, label=_name(method), linewidth=1)
            axis.set(title=f"{participation} % a round", xlabel="rounds", ylabel="accuracy in %")
            axis.legend(fontsize="x-small")


STUDY = Study(
    "feddyn/figure2",
    "FedSplit and FedDyn, 10 % and 100 % a round, on MNIST",
    needs=("mnist",),
    searched="FedSplit's step size 1, 10, 100, by test accuracy, which favours it; FedDyn's alpha is the "
    "paper's for MNIST.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
