"""The data of the study: bundled digits, or MNIST and EMNIST from a folder of official files."""

import gzip
from pathlib import Path

import numpy as np

import holdfast as hf

DEFAULT_FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data"
Split = tuple[hf.Examples, hf.Examples]  # train, test


def load(name: str, folder: Path = DEFAULT_FOLDER) -> Split:
    """Train and test examples with inputs in [0, 1]; only digits needs no folder."""
    if name == "digits":
        return hf.data.digits()
    reader = {"mnist": _mnist, "emnist": _emnist}[name]
    return reader(folder / name)


def hold_out(train: hf.Examples, share: float, seed: int) -> Split:
    """Two disjoint random parts of the training data: the rest, and a part of size `share`."""
    order = np.random.default_rng(seed).permutation(len(train.y))
    cut = round(len(order) * share)
    return select(train, order[cut:]), select(train, order[:cut])


def select(examples: hf.Examples, rows: np.ndarray) -> hf.Examples:
    """Some of the examples."""
    return hf.Examples(examples.x[rows], examples.y[rows])


def _mnist(folder: Path) -> Split:
    return tuple(
        _as_examples(
            _idx(folder / f"{part}-images-idx3-ubyte.gz"),
            _idx(folder / f"{part}-labels-idx1-ubyte.gz"),
        )
        for part in ("train", "t10k")
    )  # type: ignore[return-value]


def _idx(path: Path) -> np.ndarray:
    raw = gzip.decompress(path.read_bytes())
    axes = raw[3]  # the header: two zeros, the type, the number of axes, then their lengths
    shape = np.frombuffer(raw, ">u4", axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _emnist(folder: Path) -> Split:
    from scipy.io import loadmat  # type: ignore[import-untyped]

    files = sorted(folder.glob("emnist-balanced*.mat"))
    if not files:
        raise FileNotFoundError(2, "no such file", str(folder / "emnist-balanced.mat"))
    parts = loadmat(files[0], simplify_cells=True)["dataset"]
    return tuple(  # type: ignore[return-value]
        _as_examples(parts[part]["images"], parts[part]["labels"]) for part in ("train", "test")
    )


def _as_examples(images: np.ndarray, labels: np.ndarray) -> hf.Examples:
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    return hf.Examples(pixels, labels.ravel().astype(np.int32))
