"""The split of a run, made ready to be drawn."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from holdfast.runs.results import Results

_MOST_ROWS = 100  # of classes; with more, neighbours share a row
_BINS = 30


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Who has how many examples, of which class where that is known.

    Clients stand in the order of their commonest class, which shows the pattern at a glance.
    """

    folders: list[str]  # whose split it is
    statistics: str
    sizes: np.ndarray  # of all clients, by client
    counts: np.ndarray | None  # classes by clients, in the order of `clients`
    clients: np.ndarray  # the number of the client in each column
    classes: list[str]  # the name of each row
    names: list[str]  # what the client in each column is called: its number where it has no name
    named: bool = False  # whether clients have names

    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        """How many clients have how many examples: edges and numbers."""
        least = int(self.sizes.min()) if self.sizes.size else 0
        most = int(self.sizes.max(initial=least))
        # Whole numbers wide: otherwise some bins hold one size more than others, and a comb appears.
        width = -(-(most - least + 1) // _BINS)
        numbers, edges = np.histogram(self.sizes, np.arange(least, most + width + 1, width))
        return edges, numbers


def splits(results: Results) -> list[Split]:
    """One for each different split of the folders: runs over the same data share it."""
    found: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for folder in results.folders:
        about = folder.split()
        found.setdefault(repr(about), (about, []))[1].append(folder.path.resolve().name)
    return [_split(about, names) for about, names in found.values()]


def _split(about: dict[str, Any], folders: list[str]) -> Split:
    sizes = np.asarray(about.get("sizes", ()), dtype=int)
    counts = np.asarray(about.get("counts") or np.zeros((0, 0)), dtype=int)
    statistics = about.get("statistics", "") or _sizes_in_words(sizes)
    if counts.ndim != 2 or not counts.size:
        return Split(folders, statistics, sizes, None, np.arange(len(sizes)), [], [])
    if not sizes.size:
        sizes = counts.sum(axis=1)
    table, classes = _together(counts.T, about.get("label_names"))
    order = _by_commonest(table)
    given = about.get("names")
    names = [str(i) if given is None else given[i] for i in order.tolist()]
    return Split(
        folders, statistics, sizes, table[:, order], order, classes, names, given is not None
    )


def _sizes_in_words(sizes: np.ndarray) -> str:
    if not sizes.size:
        return ""
    return (
        f"{len(sizes):,} clients own {sizes.sum():,} examples: {sizes.min():,} to {sizes.max():,}, "
        f"median {np.median(sizes):,g}"
    )


def _together(table: np.ndarray, called: list[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """Neighbouring classes in one row where there are more than fit."""
    classes = len(table)
    edges = np.unique(np.linspace(0, classes, min(classes, _MOST_ROWS) + 1).round().astype(int))
    each = [str(k) for k in range(classes)] if called is None else called
    names = [
        each[low] if high == low + 1 else f"{each[low]} to {each[high - 1]}"
        for low, high in itertools.pairwise(edges.tolist())
    ]
    return np.add.reduceat(table, edges[:-1], axis=0), names


def _by_commonest(table: np.ndarray) -> np.ndarray:
    """Clients by commonest class, the purest first; those without examples last."""
    sizes = table.sum(axis=0)
    commonest = np.where(sizes > 0, table.argmax(axis=0), len(table))
    purity = table.max(axis=0) / np.maximum(sizes, 1)
    return np.lexsort((-purity, commonest))
