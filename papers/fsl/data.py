"""The data of the study: bundled digits, or MNIST and EMNIST from a folder of official files."""

from pathlib import Path

import numpy as np

import holdfast as hf

DEFAULT_FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data"
Split = tuple[hf.Examples, hf.Examples]  # train, test


def load(name: str, folder: Path = DEFAULT_FOLDER) -> Split:
    """Train and test examples with inputs in [0, 1]; only digits needs no folder."""
    if name == "emnist":  # the official file, or a part of it
        parts = sorted((folder / name).glob("emnist-balanced*.mat"))
        found = hf.data.emnist(folder=folder, file=parts[0].name if parts else None)
    else:
        found = hf.data.mnist(folder=folder) if name == "mnist" else hf.data.digits()
    return found.train, found.test


def hold_out(train: hf.Examples, share: float, seed: int) -> Split:
    """Two disjoint random parts of the training data: the rest, and a part of size `share`."""
    order = np.random.default_rng(seed).permutation(len(train.y))
    cut = round(len(order) * share)
    return select(train, order[cut:]), select(train, order[:cut])


def select(examples: hf.Examples, rows: np.ndarray) -> hf.Examples:
    """Some of the examples."""
    return hf.Examples(examples.x[rows], examples.y[rows])
