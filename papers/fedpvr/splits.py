"""FedPVR, figure C.1 and the left of figure 2: how many classes clients have. Labels alone decide it."""

from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from papers import figures
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)
CLIENTS = 10
# Images of a class in the whole training set, and the concentrations that the paper has.
DATA = {"CIFAR-10": (10, 5000, (0.1, 0.5, 100.0)), "CIFAR-100": (100, 500, (0.1, 1.0))}
SAID = {
    "CIFAR-10": "at 0.1 some clients may only have data from a single class",
    "CIFAR-100": "fewer classes at 0.1 than at 1.0",
}
HOW = ("drawn", "cut")


def cell(data: str, concentration: float, draw: int, quick: bool = False) -> Cell:
    """One split."""
    classes, each, _ = DATA[data]
    args = (classes, 50 if quick else each, concentration, draw)
    return Cell(f"{data}-{concentration:g}-{draw}", divided, args, 0.05)


def cells(asked: Asked) -> list[Cell]:
    """All of them."""
    if asked.quick:
        return [cell("CIFAR-10", 0.1, 0, quick=True)]
    return [cell(data, c, draw) for data in DATA for c in DATA[data][2] for draw in DRAWS]


def divided(
    classes: int, each: int, concentration: float, draw: int, *, asked: Asked, folder: Path
) -> dict[str, Any]:
    """Images of each class at each client, as drawn, and cut again as the authors' code does."""
    labels = np.repeat(np.arange(classes), each)
    labels = np.random.default_rng(draw).permutation(labels).astype(np.int32)
    nothing = hf.Examples(np.zeros((len(labels), 1), np.float32), labels)
    found = {}
    for name, equal in (("drawn", False), ("cut", True)):
        split = hf.data.partition.dirichlet_by_class(
            nothing, CLIENTS, concentration, seed=draw, equal_sizes=equal
        )
        found[name] = [
            np.bincount(labels[split.rows(i)], minlength=classes).tolist() for i in range(CLIENTS)
        ]
    return found


def classes_most(counts: list[list[int]]) -> list[int]:
    """Of each client, the number of classes that nine in ten of its images are of."""
    made = []
    for one in counts:
        share = np.cumsum(np.sort(one)[::-1]) / max(1, sum(one))
        made.append(int(np.searchsorted(share, 0.9)) + 1)
    return made


def fewest(found: Found, data: str, concentration: float, how: str) -> list[list[int]]:
    """The same of every draw that was made."""
    names = [f"{data}-{concentration:g}-{draw}" for draw in DRAWS]
    return [classes_most(found[name][how]) for name in names if name in found]


def rows(found: Found) -> list[Row]:
    """One for each data set."""
    return [_row(found, data) for data in DATA]


def _row(found: Found, data: str) -> Row:
    what = f"{data}: classes that nine in ten of a client's images are of"
    concentrations = DATA[data][2]
    each = {(c, how): fewest(found, data, c, how) for c in concentrations for how in HOW}
    if not all(each.values()):
        return Row("figure C.1", what, SAID[data])
    means = {of: float(np.mean(values)) for of, values in each.items()}
    told = [
        f"{c:g}: {means[c, 'drawn']:.1f}, cut again {means[c, 'cut']:.1f}" for c in concentrations
    ]
    rising = [means[c, "cut"] for c in concentrations]
    holds = rising == sorted(rising)
    if data == "CIFAR-10":
        holds = holds and any(1 in one for how in HOW for one in each[0.1, how])
    return Row(
        "figure C.1",
        what,
        SAID[data],
        "; ".join(told) + f" ({len(DRAWS)} draws)",
        "full",
        "as many labels of each class as the data set has",
        Verdict.AGREES if holds else Verdict.DISAGREES,
    )


def table(found: Found) -> str:
    """The fewest, mean and most classes of a client."""
    lines = ["| data | Dirichlet | as drawn | cut again into equal sizes |", "|---|---|---|---|"]
    for data, (_, _, concentrations) in DATA.items():
        for concentration in concentrations:
            each = [fewest(found, data, concentration, how) for how in ("drawn", "cut")]
            if all(each):
                told = [f"{np.mean(of):.1f} ({np.min(of)} to {np.max(of)})" for of in each]
                lines.append(f"| {data} | {concentration:g} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def figure(found: Found, path: Path) -> None:
    """Images of each class at each client on the first draw, cut again."""
    there = [(d, c) for d in DATA for c in DATA[d][2] if f"{d}-{c:g}-0" in found]
    with figures.panels(path, len(there)) as axes:
        for axis, (data, concentration) in zip(axes, there, strict=True):
            counts = np.array(found[f"{data}-{concentration:g}-0"]["cut"])
            axis.imshow(counts, aspect="auto", cmap="Greys", interpolation="nearest")
            axis.set(title=f"{data}, {concentration:g}", xlabel="class", ylabel="client")


STUDY = Study(
    "fedpvr/splits",
    "How many classes clients have, by labels alone",
    needs=(),
    searched="nothing.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
