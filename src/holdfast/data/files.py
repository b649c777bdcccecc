"""Data of your own, from files of arrays."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.data.adapters.arrays import TargetKind, from_arrays
from holdfast.data.clients import Examples, count
from holdfast.data.dataset import Dataset
from holdfast.data.unpack import damage_said, refuse_larger_archive
from holdfast.errors import HoldfastError, explain_arguments

_PER_EXAMPLE = ("client", "group", "time", "split")


@explain_arguments
def arrays(
    path: str | os.PathLike[str],
    test_share: float | None = None,
    seed: int = 0,
    leave_out: str | Sequence[str] = (),
    unseen: float = 0.0,
    validation_share: float = 0.0,
    target: TargetKind | None = None,
) -> Dataset:
    """Arrays of your own: an .npz file with `x` and `y`, a row per example, and maybe `client`.

    It may hold `group`, `time` and `split` too, which say how test examples are taken: see
    `hf.data.from_arrays`.

    Args:
        path: the file, written by `numpy.savez(path, x=x, y=y, client=client)`.
        test_share: share of the rows (of every client's, if they are known) kept for testing; 0.2 unless
            the test rows are said otherwise.
        seed: which rows those are is a function of it.
        leave_out: clients that are tested on and train nothing.
        unseen: share of the clients that are tested on and train nothing, drawn.
        validation_share: share of the rows to choose by, in the way test rows are taken.
        target: `classification` or `regression`; by the labels unless given.
    """
    path = _existing(path, "arrays")
    with damage_said("arrays", path, "give a file of numpy.savez"):
        refuse_larger_archive(path)
        with np.load(path) as file:
            stored = {name: file[name] for name in file.files}
    if not {"x", "y"} <= set(stored):
        raise HoldfastError(
            f"arrays: {path} holds {', '.join(stored) or 'nothing'}; it needs `x` and `y`, written by "
            f"numpy.savez(path, x=x, y=y).",
            about=("path",),
        )
    return from_arrays(
        stored["x"],
        stored["y"],
        test_share=test_share,
        seed=seed,
        leave_out=leave_out,
        unseen=unseen,
        validation_share=validation_share,
        target=target,
        **{name: stored[name] for name in _PER_EXAMPLE if name in stored},
    )


@explain_arguments
def mapped(path: str | os.PathLike[str]) -> Dataset:
    """Arrays of your own larger than memory: a folder of .npy files, of which only what is needed is read.

    The folder holds `x.npy` and `y.npy` with a row per training example, `client.npy` with whose it is
    (then `natural` is a partition), and `test_x.npy` and `test_y.npy`. A client's rows are read fastest
    if they lie together.

    Args:
        path: the folder; `numpy.save` writes such files, `numpy.lib.format.open_memmap` bit by bit.

    Example:
        >>> import tempfile, numpy as np, holdfast as hf
        >>> folder = tempfile.mkdtemp()
        >>> for name in ("x", "test_x"):
        ...     np.save(f"{folder}/{name}.npy", np.ones((6, 2), np.float32))
        >>> for name in ("y", "test_y", "client"):
        ...     np.save(f"{folder}/{name}.npy", np.arange(6) // 2)
        >>> hf.data.partition.natural(hf.data.mapped(folder)).sizes.tolist()
        [2, 2, 2]
    """
    folder = Path(path)
    stored: dict[str, np.ndarray] = {}
    for name in ("x", "y", "test_x", "test_y", "client"):
        file = folder / f"{name}.npy"
        if not file.exists() and name == "client":
            continue
        with damage_said(
            "mapped",
            file,
            "give a folder with x.npy, y.npy, test_x.npy, test_y.npy and maybe client.npy, as of numpy.save",
        ):
            stored[name] = found = np.load(file, mmap_mode="r")
            # The mapping begins where the header says that the numbers do.
            if found.offset + found.nbytes != file.stat().st_size:
                raise ValueError(
                    f"its header says {found.dtype} of shape {found.shape}, and its size another"
                )
    train, test = Examples(stored["x"], stored["y"]), Examples(stored["test_x"], stored["test_y"])
    for what in (train, test):
        count(what)
    owners = stored.get("client")
    if owners is not None and len(owners) != len(train.y):
        raise HoldfastError(
            f"mapped: client.npy has {len(owners)} rows and y.npy {len(train.y)}; give one per example.",
            about=("path",),
        )
    y = train.y
    labels = y.ndim == 1 and np.issubdtype(y.dtype, np.integer)
    classes = int(max(y.max(), test.y.max())) + 1 if labels else None
    return Dataset(train, test, owners, classes=classes)


def _existing(path: str | os.PathLike[str], owner: str) -> Path:
    if not Path(path).is_file():
        raise HoldfastError(
            f"{owner}: {path} does not exist; give the path of a file.", about=("path",)
        )
    return Path(path)
