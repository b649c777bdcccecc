"""LIBSVM's data sets in stored order, and generated ones of the same make."""

from pathlib import Path

import numpy as np

import holdfast as hf

# The paper's, with a9a, which is at hand, in the place of w6a, which is not.
NAMES = ("mushrooms", "a6a", "ijcnn1", "a9a")
PLACES = {"a9a": "w6a"}
QUICK = (400, 22)  # examples and columns of a generated one
ENDINGS = ("", ".bz2", ".gz", ".xz")


def load(name: str, folder: Path) -> hf.Examples:
    """The data set in stored order and 64 bits, from a file that may be compressed."""
    paths = [folder / "libsvm" / f"{name}{ending}" for ending in ENDINGS]
    there = [path for path in paths if path.exists()]
    return hf.data.libsvm(there[0] if there else paths[0], dtype=np.float64)


def title(name: str) -> str:
    """The data set in rows: which of the paper's it stands for."""
    return f"{PLACES[name]} in the paper, here {name}" if name in PLACES else name


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
