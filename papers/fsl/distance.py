"""FSL, figures 3 and 5: what the server's data is like, and how far it is from the clients', on MNIST."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.fsl import runs
from papers.fsl.runs import DRAWS, Settings
from papers.fsl.table1 import CHANGES, CONCENTRATIONS, TITLES
from papers.study import Asked, Cell, Found, Row, Study, Verdict

ROUNDS = 100
EVERY = 10  # rounds between measurements, which cost an epoch of everybody
# The server's data as it is, and with altered copies of rare classes as the paper has it.
BALANCED = {"": False, "_balanced": True}
XI, G = "xi2_server", "G2_clients"


def measured(file: str, values: Settings, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """Labels of the server's data, and both distances as FedAvg+ goes on."""
    made = runs.built(file, values, asked)
    assert made.server is not None
    labels = np.bincount(made.server.source.y, minlength=made.datasets[0].classes or 0)
    every = values["evaluate"]["every"]
    history = runs.trained(made, folder)[every - 1 :: every]
    kept = {name: [float(f"{one[name]:.4g}") for one in history] for name in (XI, G)}
    return {"labels": labels.tolist(), "every": every, **kept}


def cell(split: str, balance: str, draw: int, quick: bool = False) -> Cell:
    """One run of FedAvg+ with gamma = 1, as in the paper for EMNIST."""
    every = 1 if quick else EVERY
    changes = {
        **CHANGES,
        "rounds": ROUNDS,
        "partition.concentration": CONCENTRATIONS[split],
        "server.balance": BALANCED[balance],
        "evaluate.also": [{"name": "dissimilarity"}],
        "evaluate.every": every,
        "window": 1,
        **({**runs.QUICK, **runs.FROM_FEW} if quick else {}),
    }
    values = runs.settings("emnist", "fedavg_plus", draw, changes)
    return Cell(f"{split}{balance}-{draw}", measured, ("emnist", values), minutes=0.5)


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [cell("dirichlet01", "", 0, quick=True)]
    return [cell(s, b, draw) for draw in DRAWS for s in CONCENTRATIONS for b in BALANCED]


def quotients(found: Found, name: str) -> list[np.ndarray]:
    """xi^2 by G^2 at every measurement of every draw."""
    return [np.array(one[XI]) / np.array(one[G]) for one in runs.draws_of(found, name)]


def rows(found: Found) -> list[Row]:
    """Figure 3, and figure 5 for each split."""
    return [
        _labels(found),
        *(_distance(found, split, balance) for split in CONCENTRATIONS for balance in BALANCED),
    ]


def _labels(found: Found) -> Row:
    what = "labels of the server's 1,000 examples from 20 clients, from the most frequent on"
    paper = "a picture; in words: highly imbalanced"
    counts = {s: [_sorted(one) for one in runs.draws_of(found, s)] for s in CONCENTRATIONS}
    if not all(counts.values()):
        return Row("figure 3", what, paper)
    said = [
        f"{TITLES[s]}: {', '.join(f'{n:.0f}' for n in np.mean(c, axis=0))} "
        f"(mean of {len(c)} draw{'s' * (len(c) > 1)})"
        for s, c in counts.items()
    ]
    # Imbalanced: the most frequent label has several times what the rarest has; more so at 0.1.
    first, second = (
        float(np.mean([c[0] / max(1, c[-1]) for c in counts[s]])) for s in CONCENTRATIONS
    )
    return Row(
        "figure 3",
        what,
        paper,
        "; ".join(said),
        "MNIST in place of EMNIST, 10 classes in place of 45",
        runs.MNIST,
        Verdict.ORDER if first > second > 1.5 else Verdict.DISAGREES,
        "The claim judged is that the most frequent label has more than one and a half times what the rarest "
        "has, and more so with Dirichlet 0.1 than 0.3.",
    )


def _sorted(one: Any) -> np.ndarray:
    return np.sort(np.asarray(one["labels"]))[::-1]


def _distance(found: Found, split: str, balance: str) -> Row:
    kind = "with altered copies of rare classes, as in the paper" if balance else "as it is"
    what = f"{TITLES[split]}, FedAvg+, server's data {kind}: xi^2 against G^2"
    paper = "xi^2 much smaller than G^2 in every round"
    shares = quotients(found, f"{split}{balance}")
    if not shares:
        return Row("figure 5", what, paper)
    every = np.concatenate(shares)
    told = f"xi^2 / G^2 is {np.median(every):.2g} at the median, {every.max():.2g} at most"
    count = f"{len(shares)} draw{'s' * (len(shares) > 1)}"
    return Row(
        "figure 5",
        what,
        paper,
        f"{told} ({count}, every {EVERY} rounds)",
        f"MNIST in place of EMNIST, a perceptron, {ROUNDS} rounds",
        runs.MNIST,
        Verdict.ORDER if every.max() < 0.1 else Verdict.DISAGREES,
        "Much smaller is taken as: less than a tenth each time. G^2 is the mean over all 450 clients.",
    )


def _names(found: Found) -> Sequence[str]:
    names = [f"{split}{balance}" for split in CONCENTRATIONS for balance in BALANCED]
    return [name for name in names if runs.draws_of(found, name)]


def table(found: Found) -> str:
    """Both distances at the first and the last measurement, and their quotient."""
    lines = ["| split | server's data | draws | xi^2 | G^2 | xi^2 / G^2, least to most |"]
    lines.append("|---|---|---|---|---|---|")
    for split in CONCENTRATIONS:
        for balance in BALANCED:
            kept = runs.draws_of(found, f"{split}{balance}")
            if kept:
                ends = [
                    " to ".join(f"{np.mean([one[n][k] for one in kept]):.2g}" for k in (0, -1))
                    for n in (XI, G)
                ]
                every = np.concatenate(quotients(found, f"{split}{balance}"))
                kind = "balanced" if balance else "as it is"
                told = f"{every.min():.2g} to {every.max():.2g}"
                lines.append(
                    f"| {TITLES[split]} | {kind} | {len(kept)} | {' | '.join(ends)} | {told} |"
                )
    return "\n".join([*lines, "", "xi^2 and G^2 from the first to the last measurement."])


def figure(found: Found, path: Path) -> None:
    """Sorted labels of the server's data, and both distances by round."""
    there = _names(found)
    plain = [name for name in there if not name.endswith("_balanced")]
    with figures.panels(path, len(there) + bool(plain)) as axes:
        for name, axis in zip(there, axes, strict=False):
            for number, kind in enumerate((G, XI)):
                for k, one in enumerate(runs.draws_of(found, name)):
                    label = {G: "$G^2$", XI: r"$\xi^2$"}[kind] if k == 0 else None
                    rounds = one["every"] * np.arange(1, 1 + len(one[kind]))
                    axis.plot(rounds, one[kind], color=f"C{number}", label=label)
            axis.set(title=name.replace("_", ", "), xlabel="rounds", yscale="log")
            axis.legend(fontsize="small")
        if plain:
            for number, name in enumerate(plain):
                for k, one in enumerate(runs.draws_of(found, name)):
                    label = TITLES[name] if k == 0 else None
                    axes[-1].plot(_sorted(one), color=f"C{number}", marker=".", label=label)
            axes[-1].set(title="server's data", xlabel="label, sorted", ylabel="examples")
            axes[-1].legend(fontsize="small")


STUDY = Study(
    "fsl/distance",
    "What the server's data is like, and how far its gradient is from the clients', on MNIST",
    needs=("mnist",),
    searched="nothing: the paper's values for EMNIST are fixed (appendix C-A).",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
