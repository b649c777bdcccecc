"""FedDyn, figure 3: how many labels have 40, 60 and 80 per cent of a device's examples, on MNIST."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from papers import figures
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)
SHARES = (0.4, 0.6, 0.8)
# What the text says of 80 %: which numbers of labels most devices have.
SPLITS = {
    "iid": ("IID", (8,)),
    "dirichlet06": ("Dirichlet 0.6", (4, 5)),
    "dirichlet03": ("Dirichlet 0.3", (3, 4)),
}


def counted(split: str, draw: int, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """Of how many devices so many labels, the most frequent ones, have a share of the examples."""
    train = hf.data.digits().train if asked.quick else hf.data.mnist(folder=asked.data).train
    devices = 10 if asked.quick else 100
    if split == "iid":
        clients = hf.data.partition.iid(train, clients=devices, seed=draw)
    else:
        concentration = 0.6 if split == "dirichlet06" else 0.3
        clients = hf.data.partition.dirichlet(
            train, clients=devices, concentration=concentration, seed=draw
        )
    found = {}
    for share in SHARES:
        needed = [labels_with(clients[device].y, share) for device in range(devices)]
        found[f"{share:g}"] = {str(k): n for k, n in sorted(Counter(needed).items())}
    return found


def labels_with(labels: np.ndarray, share: float) -> int:
    """How many labels, from the most frequent on, have that share of the examples."""
    counts = np.sort(np.bincount(np.asarray(labels, np.int64)))[::-1]
    # A share that is met exactly is met, whatever rounding says.
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum() - 1e-9)) + 1


def cells(asked: Asked) -> list[Cell]:
    """Every split on every draw."""
    draws = (0,) if asked.quick else DRAWS
    order = itertools.product(draws, SPLITS)
    return [Cell(f"{split}-{draw}", counted, (split, draw), minutes=0.1) for draw, split in order]


def histogram(found: Found, split: str, share: float) -> dict[int, float]:
    """How many of 100 devices need so many labels, the mean over draws."""
    kept = [found[n][f"{share:g}"] for d in DRAWS if (n := f"{split}-{d}") in found]
    labels = sorted({int(k) for one in kept for k in one})
    return {k: float(np.mean([one.get(str(k), 0) for one in kept])) for k in labels}


def rows(found: Found) -> list[Row]:
    """One for each split, of 80 % of the examples."""
    made = []
    for split, (title, usual) in SPLITS.items():
        what = f"MNIST over 100 devices, {title}: labels that have 80 % of a device's examples"
        paper = " or ".join(map(str, usual)) + " for most devices"
        by = histogram(found, split, 0.8)
        if not by:
            made.append(Row("figure 3", what, paper))
            continue
        ours = ", ".join(f"{k}: {n:.0f}" for k, n in by.items())
        two = sorted(sorted(by, key=lambda k: -by[k])[: len(usual)])
        agrees = set(two) <= set(usual) and sum(by.get(k, 0) for k in usual) > 50
        of = len({n for n in found if n.startswith(f"{split}-")})
        made.append(
            Row(
                "figure 3",
                what,
                paper,
                f"devices of 100 by labels, mean of {of} draws: {ours}",
                "full",
                "MNIST, 60,000 images",
                Verdict.AGREES if agrees else Verdict.DISAGREES,
                "",
            )
        )
    return made


def table(found: Found) -> str:
    """Devices of 100 by number of labels, for every share."""
    most = range(1, 11)
    lines = ["| split | share | " + " | ".join(map(str, most)) + " |", "|---" * 12 + "|"]
    for split, (title, _) in SPLITS.items():
        for share in SHARES:
            by = histogram(found, split, share)
            if by:
                told = " | ".join(f"{by[k]:.0f}" if k in by else "" for k in most)
                lines.append(f"| {title} | {100 * share:.0f} % | {told} |")
    return "\n".join(lines)


def figure(found: Found, path: Path) -> None:
    """The paper's three histograms."""
    with figures.panels(path, len(SHARES)) as axes:
        for axis, share in zip(axes, SHARES, strict=True):
            for number, (split, (title, _)) in enumerate(SPLITS.items()):
                by = histogram(found, split, share)
                where = [k + 0.27 * (number - 1) for k in by]
                axis.bar(where, list(by.values()), width=0.27, label=title)
            axis.set(title=f"{100 * share:.0f} %", xlabel="labels", ylabel="devices of 100")
            axis.legend(fontsize="small")


STUDY = Study(
    "feddyn/figure3",
    "How unlike devices are: labels that have most of a device's examples, on MNIST",
    needs=("mnist",),
    searched="nothing; no model is trained.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
