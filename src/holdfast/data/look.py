"""What a notebook shows of a data set and of a population."""

from typing import Any

import numpy as np
from jax import tree

from holdfast import markup
from holdfast.data.clients import Clients, count
from holdfast.data.dataset import Dataset
from holdfast.data.split.table import counts, has_classes, owned_labels
from holdfast.trees import paths

_MOST_CLIENTS = 20  # in a table; of more, a picture
_MOST_CLASSES = 30
_MOST_NAMES = 12  # of features
_MOST_COLUMNS = 60  # of the picture


def clients_as_html(clients: Clients) -> str:
    """How many examples of which class each client has; of very many clients a picture."""
    sizes = clients.sizes
    labels = _classes(clients)
    about = f"{_plural(len(clients), 'client')} with {int(sizes.sum()):,} examples, {_range(sizes)} each"
    if labels is not None:
        about += f", {_plural(len(labels), 'class', 'es')}"
    if clients.populations is not None:
        about += f", of {_plural(len(clients.populations), 'population')}"
    parts = [_each(clients, labels)] if len(clients) <= _MOST_CLIENTS else _many(clients, labels)
    return markup.card("Clients", about, *parts)


def _classes(clients: Clients) -> np.ndarray | None:
    """The classes, where labels are classes and not too many to show."""
    found = owned_labels(clients, None) if has_classes(clients) else None
    return None if found is None or len(found[0]) > _MOST_CLASSES else found[0]


def _each(clients: Clients, labels: np.ndarray | None) -> markup.Safe:
    sizes, most = clients.sizes, int(clients.sizes.max())
    names = ["client", "examples", ""]
    if labels is None:
        table = None
    else:
        table, names = counts(clients), [*names, f"classes {labels[0]} to {labels[-1]}"]
    rows: list[list[str | markup.Safe]] = []
    for i, size in enumerate(sizes):
        row: list[str | markup.Safe] = [clients.name(i), f"{size:,}", markup.bar(size, most)]
        if table is not None and labels is not None:
            said = [f"{name}: {n}" for name, n in zip(labels, table[i], strict=True)]
            row.append(markup.shares(table[i].tolist(), said))
        rows.append(row)
    return markup.table(names, rows)


def _many(clients: Clients, labels: np.ndarray | None) -> list[markup.Safe]:
    if labels is None:
        sizes = np.sort(clients.sizes)[::-1]
        shown = sizes[np.linspace(0, len(sizes) - 1, 2 * _MOST_COLUMNS).astype(int)]
        picture = markup.curve(shown.tolist(), 480, 60)
        return [picture, markup.line("Sizes of clients, from the largest to the smallest.")]
    table = counts(clients)
    commonest = np.where(table.sum(1) > 0, table.argmax(1), len(labels))
    order = np.argsort(commonest, kind="stable")
    columns = np.array_split(table[order], min(_MOST_COLUMNS, len(clients)))
    shares = [part.sum(0) / max(1, part.sum()) for part in columns]
    said = "Clients from left to right by their commonest class, classes from top to bottom; darker is more."
    return [markup.heat_map([share.tolist() for share in shares]), markup.line(said)]


def dataset_as_html(data: Dataset) -> str:
    """How many examples of which class to train and to test on, and what they are made of."""
    parts = {"to train on": data.train, "to test on": data.test, "to choose by": data.validation}
    sizes = {name: count(part) for name, part in parts.items() if part is not None}
    about = ", ".join(f"{size:,} examples {name}" for name, size in sizes.items())
    shapes = zip(paths(data.train), tree.leaves(data.train), strict=True)
    lines = ["; ".join(f"{name} {_shape(a)}" for name, a in shapes)]
    if data.owners is not None:
        lines.append(_whose(np.unique(np.asarray(data.owners))))
    if data.feature_names is not None:
        shown = ", ".join(data.feature_names[:_MOST_NAMES])
        more = len(data.feature_names) - _MOST_NAMES
        lines.append(f"features: {shown}{f' and {more} more' if more > 0 else ''}")
    if data.vocabulary is not None:
        lines.append(f"{data.vocabulary:,} symbols")
    return markup.card("Dataset", about, *map(markup.line, lines), *_labels(data, sizes))


def _labels(data: Dataset, sizes: dict[str, int]) -> list[markup.Safe]:
    """A table of classes, where labels are classes and not too many to show."""
    y = np.asarray(data.train.y)
    if (
        data.classes is None
        or data.classes > _MOST_CLASSES
        or y.ndim != 1
        or y.dtype.kind not in "iu"
    ):
        return []
    of = [part for part in (data.train, data.test, data.validation) if part is not None]
    columns = [np.bincount(np.asarray(part.y), minlength=data.classes) for part in of]
    most = int(columns[0].max())
    rows: list[list[str | markup.Safe]] = [
        [
            str(i) if data.label_names is None else data.label_names[i],
            *(f"{column[i]:,}" for column in columns),
            markup.bar(columns[0][i], most),
        ]
        for i in range(data.classes)
    ]
    return [markup.table(["class", *sizes, ""], rows)]


def _whose(people: np.ndarray) -> str:
    shown = ", ".join(map(str, people[:_MOST_NAMES].tolist()))
    more = len(people) - _MOST_NAMES
    return f"{_plural(len(people), 'owner')}: {shown}{f' and {more:,} more' if more > 0 else ''}"


def _shape(a: Any) -> str:
    return (
        f"{np.shape(a)[1:]} {np.asarray(a).dtype}" if np.ndim(a) > 1 else str(np.asarray(a).dtype)
    )


def _range(sizes: np.ndarray) -> str:
    low, high = int(sizes.min()), int(sizes.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _plural(number: int, word: str, ending: str = "s") -> str:
    return f"{number:,} {word}{ending if number != 1 else ''}"
