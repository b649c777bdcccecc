"""A split as a picture in a file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.data.clients import Clients
from holdfast.data.split.table import nonzero_counts, owned_labels, owners
from holdfast.errors import HoldfastError, explain_arguments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FORMATS = (".png", ".pdf", ".svg")
# Clients and classes; with more, a heat map.
_MOST_BUBBLES = (100, 30)
_COLUMNS = 200  # of a heat map
_MOST_ROWS = 400  # of a heat map
_MOST_NAMES = 30  # of classes written beside the picture
_INK = "#0072B2"  # Okabe and Ito's blue
_GREY = "#666666"


@explain_arguments
def picture(clients: Clients, path: str | os.PathLike[str], labels: Any = None) -> Path:
    """Save a picture of the split: who owns how many examples of which class.

    Up to 100 clients (and 30 classes) are columns of bubbles whose area is the number of examples. More
    clients are sorted by their commonest class and drawn as a heat map of label shares, neighbours
    together in a column. Above stand the clients' sizes; without labels these are all.

    Args:
        clients: the population.
        path: the file; its ending (.png, .pdf or .svg) is the format.
        labels: one per example of `clients.examples`; its `.y` unless given.

    Example:
        >>> import pathlib, tempfile
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=50, concentration=0.3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hf.data.split.picture(clients, pathlib.Path(folder) / "split.png").name
        'split.png'
    """
    found = owned_labels(clients, labels)
    figure = new_figure("split.picture", path, (9, 4.6))
    if found is None:
        _draw_sizes(figure.subplots(), np.sort(clients.sizes)[::-1], "clients, sorted by size")
    elif len(clients) <= _MOST_BUBBLES[0] and len(found[0]) <= _MOST_BUBBLES[1]:
        _draw_bubbles(figure, clients, *found)
    else:
        _draw_heat_map(figure, clients, *found)
    return save(figure, path)


def new_figure(who: str, path: str | os.PathLike[str], inches: tuple[float, float]) -> "Figure":
    """An empty figure that can be saved under the path."""
    if not isinstance(path, str | os.PathLike) or Path(path).suffix not in _FORMATS:
        raise HoldfastError(
            f"{who}: {path} does not say the format; let it end in {', '.join(_FORMATS)}.",
            about=("path",),
        )
    if not Path(path).parent.is_dir():
        raise HoldfastError(
            f"{who}: the folder of {path} is not there; make it, or give another.", about=("path",)
        )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise HoldfastError(
            f"{who}: matplotlib is missing; install it with `pip install matplotlib`."
        ) from None
    return Figure(figsize=inches, layout="constrained")


def save(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write it in the format that the path ends in."""
    figure.savefig(path, dpi=150)
    return Path(path)


def _two_panels(figure: "Figure") -> tuple["Axes", "Axes"]:
    sizes, main = figure.subplots(2, 1, sharex=True, height_ratios=[1, 3.2])
    for axis in (sizes, main):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(length=0, labelsize=8, colors=_GREY)
    return sizes, main


def _draw_bubbles(figure: "Figure", clients: Clients, names: np.ndarray, y: np.ndarray) -> None:
    from matplotlib.ticker import MaxNLocator

    above, main = _two_panels(figure)
    client, label, amount = nonzero_counts(owners(clients), y, len(names))
    columns, rows = len(clients), len(names)
    # The largest bubble just fills its cell: in points, of a panel about 600 by 220.
    diameter = min(26.0, 600 / columns * 1.5, 220 / rows * 1.25)
    area = diameter**2 * amount / max(1, amount.max(initial=1))
    main.scatter(client, label, s=area, color=_INK, alpha=0.85, linewidths=0)
    main.set_xlim(-0.8, columns - 0.2)
    main.set_ylim(rows - 0.3, -0.7)
    main.set_xlabel(f"client (largest bubble: {amount.max(initial=0):,} examples)")
    main.xaxis.set_major_locator(MaxNLocator(integer=True))
    _name_classes(main, names)
    main.grid(axis="y", color="#eeeeee", linewidth=0.8)
    main.set_axisbelow(True)
    above.bar(np.arange(columns), clients.sizes, color="#bbbbbb", width=0.8)
    above.set_ylabel("examples")


def _draw_heat_map(figure: "Figure", clients: Clients, names: np.ndarray, y: np.ndarray) -> None:
    above, main = _two_panels(figure)
    sizes, n = clients.sizes, len(clients)
    place = _sorted_places(clients, y, len(names))
    columns, rows = min(n, _COLUMNS), min(len(names), _MOST_ROWS)
    column = place * columns // n
    row = y * rows // len(names)
    key = row * columns + column[owners(clients)]
    table = np.bincount(key, minlength=rows * columns).reshape(rows, columns)
    share = table / np.maximum(table.sum(axis=0), 1)
    edges = (0, n, len(names) - 0.5, -0.5)
    image = main.imshow(
        share, aspect="auto", extent=edges, cmap="Blues", vmin=0, interpolation="nearest"
    )
    main.set_xlabel("clients, sorted by their commonest class" + _together(n, columns))
    _name_classes(main, names)
    bar = figure.colorbar(image, ax=[above, main], pad=0.01, aspect=40)
    bar.set_label("share of the column's examples")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, colors=_GREY)
    mean = np.bincount(column, sizes, minlength=columns) / np.bincount(column, minlength=columns)
    middle = (np.arange(columns) + 0.5) * n / columns
    above.bar(middle, mean, width=n / columns, color="#bbbbbb")
    above.set_xlim(0, n)
    above.set_ylabel("examples")


def _together(clients: int, columns: int) -> str:
    return f" (about {clients / columns:,.0f} to a column)" if clients > columns else ""


def _sorted_places(clients: Clients, y: np.ndarray, classes: int) -> np.ndarray:
    """Each client's place from left to right: by commonest class, the purest first; empty ones last."""
    client, label, amount = nonzero_counts(owners(clients), y, classes)
    # The first entry of each client is its commonest.
    best = np.lexsort((label, -amount, client))
    who, first = np.unique(client[best], return_index=True)
    commonest = np.full(len(clients), classes)
    commonest[who] = label[best][first]
    purity = np.zeros(len(clients))
    purity[who] = amount[best][first] / clients.sizes[who]
    place = np.empty(len(clients), np.int64)
    place[np.lexsort((-purity, commonest))] = np.arange(len(clients))
    return place


def _name_classes(axis: "Axes", names: np.ndarray) -> None:
    axis.set_ylabel("class")
    if len(names) <= _MOST_NAMES:
        axis.set_yticks(np.arange(len(names)), [str(name) for name in names])


def _draw_sizes(axis: "Axes", sizes: np.ndarray, what: str) -> None:
    axis.fill_between(
        np.arange(len(sizes) + 1), np.append(sizes, sizes[-1]), step="post", color=_INK
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(length=0, labelsize=8, colors=_GREY)
    axis.set_xlim(0, len(sizes))
    axis.set_ylim(bottom=0)
    axis.set_xlabel(what)
    axis.set_ylabel("examples")
