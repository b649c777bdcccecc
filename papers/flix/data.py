"""LIBSVM's data sets, or generated ones of the same shape."""

from pathlib import Path

import numpy as np

import holdfast as hf

SHAPES = {"mushrooms": (8124, 112), "a6a": (11220, 122), "ijcnn1": (49990, 22), "w6a": (17188, 300)}
ENDINGS = ("", ".bz2", ".gz", ".xz")


def find(name: str, folder: Path) -> Path | None:
    """The file of a data set, compressed or not; None if it is not there."""
    paths = (folder / "libsvm" / f"{name}{ending}" for ending in ENDINGS)
    return next((path for path in paths if path.exists()), None)


def load(name: str, folder: Path) -> hf.Examples:
    """The data set in stored order and 64 bits; a generated one where there is no file."""
    path = find(name, folder)
    return stand_in(*SHAPES[name]) if path is None else hf.data.libsvm(path, dtype=np.float64)


def stand_in(rows: int, columns: int, filled: float = 0.15, seed: int = 0) -> hf.Examples:
    """Sparse 0/1 features whose frequency and meaning drift along the stored order.

    Drift makes clients differ that get consecutive rows, as they do in the real files.
    """
    rng = np.random.default_rng(seed)
    drift = np.linspace(-1, 1, rows)[:, None]
    often = filled * np.exp(0.5 * drift * rng.normal(size=columns))
    x = (rng.random((rows, columns)) < often).astype(np.float64)
    truth = rng.normal(size=columns) + drift * rng.normal(size=columns)
    scores = np.sum((x - often) * truth, axis=1)
    y = (scores + rng.logistic(size=rows) > 0).astype(np.int32)
    return hf.Examples(x, y)
