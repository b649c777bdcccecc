"""A data set from arrays in memory, and what the other adapters share with it."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jax import tree

from holdfast.data.checks import warn_of_scales
from holdfast.data.clients import Examples, check_finite, count
from holdfast.data.dataset import Dataset
from holdfast.data.designs import TEST, TRAIN, VALIDATION, Design, told_parts
from holdfast.errors import HoldfastError, HoldfastWarning, explain_arguments

_WHO = "from_arrays"
TargetKind = Literal["classification", "regression"]


@explain_arguments
def from_arrays(
    x: Any,
    y: Any,
    client: Any = None,
    test_share: float | None = None,
    seed: int = 0,
    group: Any = None,
    time: Any = None,
    split: Any = None,
    leave_out: str | Sequence[str] = (),
    unseen: float = 0.0,
    validation_share: float = 0.0,
    target: TargetKind | None = None,
) -> Dataset:
    """A data set from arrays with a row per example.

    Inputs and labels become 32-bit numbers. Labels that are names or truth values become 0, 1, ... in
    sorted order, and so do whole numbers that begin above 0 (1 to 6, say), with a warning; other whole
    numbers stay what they are. With owners, a share of every owner's examples is kept for testing, and
    everybody keeps at least one to train on.

    Args:
        x: inputs.
        y: labels or targets.
        client: whose each example is; `natural()` then returns the clients.
        test_share: share of the examples, or of every client's, to test on; 0.2 unless the test examples
            are said otherwise.
        seed: draws them.
        group: examples of one group are never divided, such as windows of one recording.
        time: when each example was; the last of every client's are tested on.
        split: `train`, `validation` or `test` for each example.
        leave_out: clients that are tested on and train nothing.
        unseen: share of the clients that are tested on and train nothing, drawn.
        validation_share: share of the examples to choose by, in the way test examples are taken.
        target: `classification` or `regression`; by the labels unless given.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> x, y = np.random.rand(100, 3), np.repeat(["no", "yes"], 50)
        >>> data = hf.data.from_arrays(x, y, client=np.arange(100) % 5)
        >>> data.classes, data.natural()
        (2, (Clients(5 with 16 to 16 examples, 80 in all), Clients(5 with 4 to 4 examples, 20 in all)))
    """
    left_out = (leave_out,) if isinstance(leave_out, str) else tuple(map(str, leave_out))
    design = Design(test_share, validation_share, left_out, unseen, seed)
    said = {"split": split, "group": group, "time": time}
    given = [name for name, values in said.items() if values is not None]
    design.check(_WHO, client is not None, given)
    labels, names, classes = _labels(y, target)
    examples = Examples(as_inputs(x, _WHO), labels)
    n = count(examples)
    check_finite(examples, _WHO)
    rows = {
        name: None if values is None else _per_example(values, name, n)
        for name, values in {**said, "client": client}.items()
    }
    told = None if rows["split"] is None else told_parts(rows["split"].tolist(), "split", _WHO)
    part = design.parts(_WHO, rows["client"], n, rows["group"], rows["time"], told)
    check_parts(_WHO, part, design, tested=bool(test_share))
    ordered = group is not None or time is not None
    found = divided(examples, rows["client"], part, classes, names, ordered=ordered)
    remedy = "divide each column by its deviation among the training examples, or give a table"
    warn_of_scales(_WHO, found.train.x, None, remedy)
    return found


def _per_example(values: Any, name: str, n: int) -> np.ndarray:
    a = as_plain(values)
    if a.shape != (n,):
        raise HoldfastError(
            f"{_WHO}: {name} of shape {a.shape} for {n} examples; give one per example.",
            about=(name,),
        )
    return a


def _labels(
    y: Any, target: TargetKind | None
) -> tuple[np.ndarray, Sequence[str] | None, int | None]:
    """Labels as numbers, what they are called if they have names, and how many classes there are."""
    plain = as_plain(y)
    if target == "regression":
        if plain.dtype.kind not in "iuf":
            raise HoldfastError(
                f"{_WHO}: labels are {plain.dtype}; a regression needs numbers.", about=("target",)
            )
        return plain.astype(np.float32), None, None
    whole = plain.dtype.kind in "iu" or (
        target is not None and bool((plain == np.round(plain)).all())
    )
    if target is not None and plain.dtype.kind == "f" and not whole:
        raise HoldfastError(
            f'{_WHO}: labels are fractions; say target = "regression", or give classes.',
            about=("target",),
        )
    labels, classes = as_labels(plain.astype(np.int64) if whole else plain, _WHO)
    if plain.ndim != 1 or not len(plain) or (plain.dtype.kind in "f" and not whole):
        return labels, None, classes
    different = np.unique(plain)
    if not whole:
        return labels, [str(name) for name in different], classes
    if different[0] < 1 and target is None:
        return labels, None, classes
    if different[0] >= 1 and target is None:
        warnings.warn(
            f"{_WHO}: labels are {different[0]} to {different[-1]}; they became {len(different)} classes "
            f'called by these numbers. Say target = "classification" if that is right, "regression" '
            f"if they are numbers to predict.",
            HoldfastWarning,
            stacklevel=3,
        )
    codes = np.searchsorted(different, plain).astype(np.int32)
    return codes, [str(int(name)) for name in different], len(different)


def check_parts(who: str, part: np.ndarray, design: Design, tested: bool) -> None:
    """Refuse a design that leaves a part without examples; the test part, if it must have some."""
    if not (part == TRAIN).any():
        raise HoldfastError(f"{who}: no row is left to train on; test on fewer.", about=("split",))
    if design.validation_share and not (part == VALIDATION).any():
        raise HoldfastError(
            f"{who}: validation_share={design.validation_share} takes no row: clients have too few rows or "
            f"groups; give a larger share, or none.",
            about=("validation_share",),
        )
    if tested and not (part == TEST).any():
        raise HoldfastError(
            f"{who}: no row is left to test on: clients have too few rows or groups; give a larger "
            f"test_share, or test_share = 0.",
            about=("test_share",),
        )


def divided(
    examples: Examples,
    owners: np.ndarray | None,
    part: np.ndarray,
    classes: int | None,
    names: Sequence[str] | None,
    **about: Any,
) -> Dataset:
    """A data set of examples by their parts: to train on, to choose by, to test on."""

    def of(which: int) -> tuple[Examples, np.ndarray | None]:
        rows = part == which
        return tree.map(lambda a: a[rows], examples), None if owners is None else owners[rows]

    (train, trained), (test, tested) = of(TRAIN), of(TEST)
    validation, validated = of(VALIDATION)
    some = len(validation.y) > 0
    return Dataset(
        train,
        test,
        trained,
        tested,
        classes=classes,
        label_names=None if names is None else tuple(names),
        validation=validation if some else None,
        validation_owners=validated if some else None,
        **about,
    )


def hold_out(
    examples: Examples, owners: np.ndarray | None, classes: int | None, share: float, seed: int
) -> Dataset:
    """Keep a share for testing: of all, or of every owner's examples."""
    part = Design(share, seed=seed).parts("data", owners, len(examples.y))
    return divided(examples, owners, part, classes, None)


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
