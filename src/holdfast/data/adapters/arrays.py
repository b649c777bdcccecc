"""A data set from arrays in memory, and what the other adapters share with it."""

from typing import Any

import numpy as np

from holdfast.data.checks import check_share, generator
from holdfast.data.clients import Examples, check_finite, count
from holdfast.data.dataset import Dataset
from holdfast.errors import HoldfastError, explain_arguments


@explain_arguments
def from_arrays(
    x: Any, y: Any, client: Any = None, test_share: float = 0.2, seed: int = 0
) -> Dataset:
    """A data set from arrays with a row per example.

    Inputs and labels become 32-bit numbers. Labels that are names or truth values become 0, 1, ... in
    sorted order; whole numbers stay what they are. With owners, a share of every owner's examples is
    kept for testing, and everybody keeps at least one to train on.

    Args:
        x: inputs.
        y: labels or targets.
        client: whose each example is; `natural()` then returns the clients.
        test_share: share of the examples, or of every client's, to test on.
        seed: draws them.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> x, y = np.random.rand(100, 3), np.repeat(["no", "yes"], 50)
        >>> data = hf.data.from_arrays(x, y, client=np.arange(100) % 5)
        >>> data.classes, data.natural()
        (2, (Clients(5 with 16 to 16 examples, 80 in all), Clients(5 with 4 to 4 examples, 20 in all)))
    """
    check_share("from_arrays", test_share)
    labels, classes = as_labels(y, "from_arrays")
    examples = Examples(as_inputs(x, "from_arrays"), labels)
    n = count(examples)
    check_finite(examples, "from_arrays")
    owners = None if client is None else as_plain(client)
    if owners is not None and owners.shape != (n,):
        raise HoldfastError(
            f"from_arrays: client of shape {owners.shape} for {n} examples; give one per example.",
            about=("client",),
        )
    return hold_out(examples, owners, classes, test_share, seed)


def hold_out(
    examples: Examples, owners: np.ndarray | None, classes: int | None, share: float, seed: int
) -> Dataset:
    """Keep a share for testing: of all, or of every owner's examples."""
    tested = _tested(len(examples.y), owners, share, seed)
    train, test = (Examples(examples.x[rows], examples.y[rows]) for rows in (~tested, tested))
    if owners is None:
        return Dataset(train, test, classes=classes)
    return Dataset(train, test, owners[~tested], owners[tested], classes=classes)


def _tested(n: int, owners: np.ndarray | None, share: float, seed: int) -> np.ndarray:
    group = np.zeros(n, np.int64)
    if owners is not None:
        group = np.unique(owners, return_inverse=True)[1]
    sizes = np.bincount(group)
    kept = np.minimum(np.round(sizes * share).astype(np.int64), sizes - 1)
    shuffled = generator(seed).permutation(n)
    by_group = shuffled[np.argsort(group[shuffled], kind="stable")]
    place = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    tested = np.zeros(n, bool)
    tested[by_group[place < np.repeat(kept, sizes)]] = True
    return tested


def as_inputs(x: Any, who: str) -> np.ndarray:
    """Numbers in 32 bits at most; smaller whole numbers stay small."""
    a = np.asarray(x)
    if a.ndim == 0 or a.dtype.kind not in "biuf":
        raise HoldfastError(
            f"{who}: x is {a.dtype} of shape {a.shape}; give numbers, with a row per example.",
            about=("x",),
        )
    if a.dtype.kind == "f":
        return a.astype(np.float32)
    return a if a.dtype.kind in "iu" and a.dtype.itemsize < 4 else a.astype(np.int32)


def as_labels(y: Any, who: str) -> tuple[np.ndarray, int | None]:
    """Labels as 32-bit numbers, and how many classes there are where that makes sense."""
    a = as_plain(y)
    if a.dtype.kind == "f":
        return a.astype(np.float32), None
    if a.dtype.kind in "iu" and a.ndim:
        nameable = a.ndim == 1 and len(a) and a.min() >= 0
        return a.astype(np.int32), int(a.max()) + 1 if nameable else None
    if a.ndim != 1 or a.dtype.kind not in "bSUTO":
        raise HoldfastError(
            f"{who}: labels are {a.dtype} of shape {a.shape}; give one number or name per example.",
            about=("y",),
        )
    names, codes = np.unique(a, return_inverse=True)
    return codes.astype(np.int32), len(names)


def as_plain(values: Any) -> np.ndarray:
    """An array of numbers or of names rather than of objects, where that is possible."""
    a = np.asarray(values)
    if a.dtype.kind not in "OT":
        return a
    try:
        return np.asarray(a.tolist())
    # Rows of different lengths.
    except ValueError:
        return a
