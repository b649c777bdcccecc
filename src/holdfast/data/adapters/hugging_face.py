"""A data set from Hugging Face's `datasets`, known by what it can do, so that nothing need be installed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.adapters.arrays import as_inputs, as_labels, as_plain, hold_out
from holdfast.data.checks import check_share
from holdfast.data.clients import Examples, check_finite
from holdfast.data.dataset import Dataset
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

_WHO = "from_hugging_face"
_PLAIN_MODES = ("L", "RGB", "I;16")  # of images: what needs no conversion


@explain_arguments
def from_hugging_face(
    dataset: Any,
    features: str | Sequence[str],
    label: str,
    client: str | None = None,
    test_share: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """A data set from a `datasets.Dataset`, or from a `DatasetDict` with its own test split.

    Images become arrays (rows, height, width, channels) of numbers in [0, 1]. One column of numbers
    or of lists is taken as it is; several are put side by side. A `DatasetDict` is trained on its
    split `train` and tested on `test`, or else on `validation`; where there is neither, and for a
    `Dataset`, a share is kept for testing (with a client column, of every client's rows).

    Args:
        dataset: a `datasets.Dataset` or `datasets.DatasetDict`, loaded without streaming.
        features: the column, or columns, with inputs.
        label: the column with labels or targets.
        client: the column that says whose a row is; `natural()` then returns the clients.
        test_share: share of the rows, or of every client's, to test on, where there is no test split.
        seed: draws them.

    Example:
        >>> import holdfast as hf
        >>> class Columns(dict):  # stands for a datasets.Dataset
        ...     column_names = property(list)
        >>> flowers = Columns(long=[5.1, 7.0, 4.9], wide=[3.5, 3.2, 3.0], kind=["a", "b", "a"])
        >>> data = hf.data.from_hugging_face(flowers, features=["long", "wide"], label="kind")
        >>> data.train.x.shape, data.classes
        ((2, 2), 2)
    """
    check_share(_WHO, test_share)
    names = [features] if isinstance(features, str) else list(features)
    parts = _splits(dataset)
    columns = [Columns(part, names, label, client) for part in parts]
    x = np.concatenate([c.x for c in columns])
    y, classes = as_labels(np.concatenate([c.y for c in columns]), _WHO)
    classes = columns[0].classes or classes
    owners = None if client is None else np.concatenate([c.owners for c in columns])
    if len(parts) == 1:
        return hold_out(Examples(x, y), owners, classes, test_share, seed)
    n = len(columns[0].y)
    train, test = Examples(x[:n], y[:n]), Examples(x[n:], y[n:])
    if owners is None:
        return Dataset(train, test, classes=classes)
    return Dataset(train, test, owners[:n], owners[n:], classes=classes)


class Columns:
    """Inputs, labels and owners of one split, as arrays; labels as they came."""

    def __init__(
        self, part: Any, features: Sequence[str], label: str, client: str | None, who: str = _WHO
    ) -> None:
        known = getattr(part, "column_names", None)
        if known is None or not hasattr(part, "__getitem__"):
            raise HoldfastError(
                f"{who}: a {type(part).__name__} has no columns to read; give a datasets.Dataset, "
                f"loaded without streaming.",
                about=("dataset",),
            )
        wanted = [*features, label] if client is None else [*features, label, client]
        for name in wanted:
            if name not in known:
                argument = "label" if name == label else "client" if name == client else "features"
                raise HoldfastError(
                    f"{who}: no column `{name}`; {did_you_mean(name, known)}", about=(argument,)
                )
        if not features:
            raise HoldfastError(
                f"{who}: no features; give at least one column of {known}.", about=("features",)
            )
        about = getattr(part, "features", None) or {}
        inputs = [_array(_values(part, name, who), name, about.get(name), who) for name in features]
        self.x = inputs[0] if len(inputs) == 1 else _side_by_side(inputs, features, who)
        self.y = as_plain(_values(part, label, who))
        self.owners = None if client is None else as_plain(_values(part, client, who))
        self.classes: int | None = getattr(about.get(label), "num_classes", None)


def _splits(dataset: Any) -> list[Any]:
    """The part to train on and, where there is one, the part to test on."""
    if not isinstance(dataset, dict) or isinstance(getattr(dataset, "column_names", None), list):
        return [dataset]
    if "train" not in dataset:
        raise HoldfastError(
            f"{_WHO}: splits are {', '.join(dataset)}; give a DatasetDict with `train`, or one split.",
            about=("dataset",),
        )
    test = next((dataset[name] for name in ("test", "validation") if name in dataset), None)
    return [dataset["train"]] if test is None else [dataset["train"], test]


def _values(part: Any, name: str, who: str) -> list[Any]:
    values = list(part[name])
    missing = next((i for i, value in enumerate(values) if value is None), None)
    if missing is not None:
        raise HoldfastError(
            f"{who}: row {missing} (from 0), column `{name}` is missing; drop such rows or fill them in."
        )
    return values


def _array(values: list[Any], name: str, kind: Any, who: str) -> np.ndarray:
    """A column of inputs as one array."""
    if values and hasattr(values[0], "convert") and hasattr(values[0], "mode"):
        return _pixels(values, name, who)
    if values and isinstance(values[0], str | bytes):
        raise HoldfastError(f"{who}: column `{name}` holds text; turn it into numbers first.")
    try:
        a = as_inputs(np.asarray(values), f"{who}: column `{name}`")
    except HoldfastError:
        raise
    except ValueError:
        raise HoldfastError(
            f"{who}: rows of column `{name}` differ in length; pad or cut them to one length."
        ) from None
    # Decoded already, as with_format does.
    if type(kind).__name__ == "Image" and a.dtype.kind == "u":
        return _scaled(a)
    check_finite({name: a}, who)
    return a


def _pixels(images: list[Any], name: str, who: str) -> np.ndarray:
    first = _one_image(images[0])
    x = np.empty((len(images), *first.shape), np.float32)
    for i, image in enumerate(images):
        pixels = _one_image(image)
        if pixels.shape != first.shape:
            raise HoldfastError(
                f"{who}: column `{name}`, row {i} (from 0) is an image of shape {pixels.shape}, row 0 "
                f"one of {first.shape}; bring all to one size and mode."
            )
        x[i] = pixels
    return x


def _one_image(image: Any) -> np.ndarray:
    """Height, width and channels (1 or 3), in [0, 1]."""
    if image.mode not in _PLAIN_MODES:
        image = image.convert("L" if image.mode in ("1", "LA") else "RGB")
    return _scaled(np.asarray(image)[None])[0]


def _scaled(pixels: np.ndarray) -> np.ndarray:
    """Images of whole numbers in [0, 1], with an axis for channels."""
    x = pixels.astype(np.float32) / np.iinfo(pixels.dtype).max
    return x[..., None] if x.ndim == 3 else x


def _side_by_side(inputs: list[np.ndarray], names: Sequence[str], who: str) -> np.ndarray:
    for a, name in zip(inputs, names, strict=True):
        if a.ndim > 2:
            raise HoldfastError(
                f"{who}: column `{name}` has rows of shape {a.shape[1:]}, which cannot stand beside "
                f"other columns; give it alone.",
                about=("features",),
            )
    flat = [a.reshape(len(a), -1).astype(np.float32) for a in inputs]
    return np.concatenate(flat, axis=1)
