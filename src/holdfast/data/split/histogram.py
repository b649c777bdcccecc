"""How many classes make up most of a client's examples: a histogram over clients, as in FedDyn."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.clients import Clients
from holdfast.data.split.drawing import new_figure, save
from holdfast.data.split.table import counts
from holdfast.errors import HoldfastError, explain_arguments

_SHARES = (0.4, 0.6, 0.8)
_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")  # Okabe and Ito's


@explain_arguments
def histogram(
    clients: Clients, shares: Sequence[float] = _SHARES, labels: Any = None
) -> np.ndarray:
    r"""How many clients need $k$ classes for a share of their examples: (shares, classes).

    A client needs $k$ classes for 80 % if its $k$ commonest ones, and no fewer, hold at least 80 % of
    its examples. Column $k - 1$ of the row counts such clients. Where every client has ten classes
    alike, all need 4, 6 and 8 for 40, 60 and 80 %. Clients without examples are not counted.

    Args:
        clients: the population.
        shares: of a client's examples, above 0 and at most 1.
        labels: one per example of `clients.examples`; its `.y` unless given.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=50, concentration=0.3)
        >>> hf.data.split.histogram(clients)
        array([[32, 16,  2,  0,  0,  0,  0,  0,  0,  0],
               [ 9, 25, 14,  2,  0,  0,  0,  0,  0,  0],
               [ 2,  7, 20, 13,  7,  1,  0,  0,  0,  0]])

    Reference: Acar et al., "Federated learning based on dynamic regularization", 2021, figure 3.
    """
    wanted = np.asarray(shares).reshape(-1)
    if (
        wanted.dtype.kind not in "fiu"
        or not ((wanted > 0) & (wanted <= 1)).all()
        or not len(wanted)
    ):
        raise HoldfastError(
            f"split.histogram: shares={shares}; give numbers above 0, at most 1, such as 0.8.",
            about=("shares",),
        )
    table = -np.sort(-counts(clients, labels), axis=1)
    table = table[table.sum(axis=1) > 0]
    held, size = np.cumsum(table, axis=1), table.sum(axis=1, keepdims=True)
    # A whole number of examples that rounding puts below the share is the share.
    needed = [(held < share * size - 1e-9 * size).sum(axis=1) for share in wanted]
    return np.array([np.bincount(k, minlength=table.shape[1]) for k in needed])


@explain_arguments
def histogram_picture(
    splits: Clients | Mapping[str, Clients],
    path: str | os.PathLike[str],
    shares: Any = _SHARES,
    labels: Any = None,
) -> Path:
    """Save FedDyn's figure 3: `histogram` of one split, or of several by name, a panel per share.

    Args:
        splits: the population; or several under their names, with the same classes.
        path: the file; its ending (.png, .pdf or .svg) is the format.
        shares: of a client's examples, as many as there shall be panels.
        labels: one per example of each split's examples; their `.y` unless given.

    Example:
        >>> import pathlib, tempfile
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> splits = {
        ...     "Dirichlet(0.3)": hf.data.partition.dirichlet(train, 50, 0.3),
        ...     "stratified": hf.data.partition.stratified(train, 50),
        ... }
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hf.data.split.histogram_picture(splits, pathlib.Path(folder) / "split.png").name
        'split.png'
    """
    named = splits if isinstance(splits, Mapping) else {"": splits}
    if not named:
        raise HoldfastError("split.histogram_picture: no split; give one.", about=("splits",))
    shares = np.atleast_1d(shares)
    figure = new_figure("split.histogram_picture", path, (9, 3.2))
    tables = {name: histogram(clients, shares, labels) for name, clients in named.items()}
    classes = max(table.shape[1] for table in tables.values())
    panels = np.atleast_1d(figure.subplots(1, len(shares), sharey=True))
    width = 0.8 / len(tables)
    for panel, share, row in zip(panels, shares, range(len(shares)), strict=True):
        for i, (name, table) in enumerate(tables.items()):
            place = np.arange(1, table.shape[1] + 1) - 0.4 + width * (i + 0.5)
            panel.bar(place, table[row], width, color=_COLORS[i % len(_COLORS)], label=name)
        panel.set_title(f"{share:.0%} of a client's examples", fontsize=9)
        panel.set_xlabel("are of so many classes")
        panel.set_xlim(0.4, classes + 0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(length=0, labelsize=8, colors="#666666")
    panels[0].set_ylabel("clients")
    if "" not in tables:
        panels[-1].legend(frameon=False, fontsize=8)
    return save(figure, path)
