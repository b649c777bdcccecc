"""A split drawn with characters."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.clients import Clients
from holdfast.data.split.table import class_names, counts, owned_labels
from holdfast.errors import HoldfastError, explain_arguments

_HEAD = "client  examples  "
_LONGEST_NAME = 24
_MOST_NAMES = 12
_LENGTHS = " ▏▎▍▌▋▊▉█"  # eighths of a character
_HEIGHTS = "·▁▂▃▄▅▆▇█"


@explain_arguments
def sketch(
    clients: Clients,
    width: int = 80,
    labels: Any = None,
    first: int = 20,
    label_names: Sequence[str] | None = None,
) -> str:
    """The split for a terminal: a line per client, a column per class, height for the share.

    The last line says which share a full block is; a dot is none at all. Neighbouring classes share a
    column where there are more than fit. Without labels, bars show the clients' sizes.

    Args:
        clients: the population.
        width: characters per line, at least 30.
        labels: one per example of `clients.examples`; its `.y` unless given.
        first: how many clients to show.
        label_names: what the labels 0, 1, ... are called.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=50, concentration=0.3)
        >>> print(hf.data.split.sketch(clients, first=3))
        client  examples  classes
             0        29  █ ▅ ▁ ▄ ▁ ▁ · ▁ · ▁
             1        29  ▆ · ▆ · ▁ · ▃ · ▃ ▃
             2        29  · █ · · ▂ ▃ · · █ ·
        █ is 41% of a client's examples; 47 more not shown
    """
    for name, value, least in (("width", width, 30), ("first", first, 1)):
        if value < least:
            raise HoldfastError(
                f"split.sketch: {name}={value}; give a number of at least {least}.", about=(name,)
            )
    shown = clients.subset(range(min(first, len(clients))))
    names = [_shortened(clients.name(i)) for i in range(len(shown))]
    wide = max(len("client"), *map(len, names))
    head = f"{'client':<{wide}}  examples  " if clients.names is not None else _HEAD
    room = width - len(head)
    notes: list[str] = []
    if owned_labels(shown, labels) is None:
        lines, cells = [head], _bars(shown.sizes, int(clients.sizes.max()), room)
    else:
        lines, (cells, notes) = [head + "classes"], _columns(shown, labels, room)
        if label_names is not None:
            notes.insert(0, _called(class_names(clients, label_names)))
    side = ">" if clients.names is None else "<"
    for name, size, cell in zip(names, shown.sizes, cells, strict=True):
        lines.append(f"{name:{side}{wide}}  {size:>8}  {cell}")
    if rest := len(clients) - len(shown):
        notes.append(f"{rest:,} more not shown")
    lines += textwrap.wrap("; ".join(notes), width)
    return "\n".join(line.rstrip() for line in lines)


def _shortened(name: str) -> str:
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _called(names: Sequence[str]) -> str:
    """What the columns stand for, of the first few."""
    few = ", ".join(_shortened(name) for name in names[:_MOST_NAMES])
    rest = len(names) - _MOST_NAMES
    return f"classes are {few}{f' and {rest} more' if rest > 0 else ''}"


def _columns(shown: Clients, labels: Any, room: int) -> tuple[list[str], list[str]]:
    """A cell per client, and what to know to read them."""
    table = counts(shown, labels)
    classes = table.shape[1]
    together = -(-classes // room)  # classes in a column
    edges = np.arange(0, classes, together)
    share = np.add.reduceat(table, edges, axis=1) / np.maximum(shown.sizes, 1)[:, None]
    largest = share.max(initial=0)
    heights = np.ceil(share * 8 / (largest or 1)).astype(int)
    gap = " " if 2 * len(edges) <= room else ""
    cells = [gap.join(_HEIGHTS[h] for h in row) for row in heights]
    notes = [f"█ is {largest:.0%} of a client's examples"]
    return cells, notes if together == 1 else [*notes, f"{together:,} classes to a column"]


def _bars(sizes: np.ndarray, largest: int, room: int) -> list[str]:
    eighths = np.ceil(sizes / max(largest, 1) * room * 8).astype(int)
    return [_LENGTHS[8] * (n // 8) + _LENGTHS[n % 8].strip() for n in eighths]
