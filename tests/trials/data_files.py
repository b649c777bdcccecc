"""Trials of data files: damaged, each is read or refused in one line that names it."""

import bz2
import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import scipy.io

import holdfast as hf
from holdfast.data.images import read_idx
from tests.trials.damage import KINDS, damage


def make(place: Path) -> dict[str, tuple[Path, Any]]:
    """Good files of every kind, and how each is read."""
    place.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(0, 3, 40)
    np.savez_compressed(place / "packed.npz", x=x, y=y, client=y)
    np.savez(place / "plain.npz", x=x, y=y)
    (place / "mapped").mkdir(exist_ok=True)
    for name, values in (("x", x), ("y", y), ("test_x", x), ("test_y", y), ("client", y)):
        np.save(place / "mapped" / f"{name}.npy", values)
    table = pandas.DataFrame(x, columns=list("abcde")).assign(label=y)
    for name in ("table.csv", "packed.csv.gz"):
        table.to_csv(place / name, index=False)
    table.to_parquet(place / "table.parquet")
    pairs = (" ".join(f"{k + 1}:{v:.3f}" for k, v in enumerate(row)) for row in x)
    lines = "".join(f"{label} {row}\n" for label, row in zip(y, pairs, strict=True)).encode()
    (place / "lines.libsvm").write_bytes(lines)
    (place / "lines.bz2").write_bytes(bz2.compress(lines))
    words = b"to be or not to be, that is the question\n" * 30
    (place / "words.txt.gz").write_bytes(gzip.compress(words))
    posts = "".join(
        f'{{"text": "{words[:90].decode().strip()[:40]}", "author": {k % 3}}}\n' for k in range(30)
    )
    (place / "posts.jsonl").write_text(posts)
    images = bytes([0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 5]) + bytes(range(100))
    (place / "images.idx").write_bytes(images)
    (place / "images.gz").write_bytes(gzip.compress(images))
    part = {"images": np.zeros((9, 784), np.uint8), "labels": np.arange(9), "writers": np.arange(9)}
    both = {"dataset": {"train": part, "test": part}}
    scipy.io.savemat(place / "emnist.mat", both, do_compression=True)
    scipy.io.savemat(place / "plain.mat", both, do_compression=False)

    def idx(path):
        return read_idx(path.read_bytes(), str(path))

    readers = {
        "packed.npz": hf.data.arrays,
        "plain.npz": hf.data.arrays,
        "table.csv": lambda path: hf.data.table(path, "label"),
        "packed.csv.gz": lambda path: hf.data.table(path, "label"),
        "table.parquet": lambda path: hf.data.table(path, "label"),
        "lines.libsvm": hf.data.libsvm,
        "lines.bz2": hf.data.libsvm,
        "words.txt.gz": lambda path: hf.data.text(path, window=10),
        "posts.jsonl": lambda path: hf.data.text(path, window=5),
        "images.idx": idx,
        "images.gz": idx,
        "emnist.mat": lambda path: hf.data.emnist(folder=path.parent, file=path.name),
        "plain.mat": lambda path: hf.data.emnist(folder=path.parent, file=path.name),
    }
    found = {name: (place / name, read) for name, read in readers.items()}
    for name in ("x", "y", "test_x", "client"):
        path = place / "mapped" / f"{name}.npy"
        found[f"mapped {name}"] = path, lambda path: hf.data.mapped(path.parent)
    for path, read in found.values():
        read(path)
    return found


def damaged_data(files: dict[str, tuple[Path, Any]], seed: int) -> str:
    """One damaged file is read, or refused in one line with its name."""
    draw = random.Random(seed)
    name = draw.choice(sorted(files))
    path, read = files[name]
    # Who asks for one of these is told by the loader of the set that it is missing.
    kind = draw.choice(KINDS[:-1] if name.startswith("images") else KINDS)
    before = path.read_bytes()
    damage(path, kind, draw)
    try:
        read(path)
    except hf.HoldfastError as error:
        said = str(error)
        assert "\n" not in said, f"{name} {kind}: {said}"
        assert ";" in said, f"{name} {kind}: {said}"
        return "refused"
    except Exception as error:
        raise AssertionError(f"{name} {kind}: {type(error).__name__} {error}") from error
    finally:
        path.write_bytes(before)
    return "read"
