"""What a table says is to be predicted: classes with names, or a number."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from holdfast.data.adapters.arrays import TargetKind
from holdfast.data.preprocessing.columns import MissingValues, numbers, text, texts
from holdfast.data.preprocessing.fit import Settings, fit
from holdfast.data.preprocessing.fitted import Number, Preprocessing, Target
from holdfast.data.tables.files import RawTable
from holdfast.errors import HoldfastError, did_you_mean

# Whole numbers that differ more than classes do: a file must say what they are.
MOST_CLASSES = 100
_MOST_NAMED = 4
# The column that a regression's numbers are asked for by.
TARGET = "target"


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """What is to be predicted, of every row.

    Args:
        y: numbers of classes, or the numbers to predict as they came.
        names: of the classes; None for a regression.
    """

    y: np.ndarray
    names: tuple[str, ...] | None = None


def read_label(
    table: RawTable,
    label: str,
    kind: TargetKind | None,
    positive: Any,
    names: Sequence[str] | None,
    missing: MissingValues,
    who: str,
) -> Labels:
    """Labels of all rows, which have one; in the order of `names`, where given."""
    values = table.columns[label]
    said = texts(values, missing.column(label))
    if positive is not None and kind == "regression":
        raise HoldfastError(
            f"{who}: positive={positive!r} makes two classes of `{label}`, and target is regression; give "
            f"one of them.",
            about=("positive",),
        )
    found = numbers(values, missing.column(label))
    if positive is None and (kind == "regression" or (kind is None and fractional(found))):
        return _regression(table, label, found, said, who)
    different = sorted(set(said), key=_order)
    if positive is not None:
        return _binary(label, said, different, positive, names, who)
    if kind is None and found is not None and len(different) > MOST_CLASSES:
        raise HoldfastError(
            f"{who}: `{label}` has {len(different)} different whole numbers; say "
            f'target = "regression" or target = "classification".',
            about=("target",),
        )
    order = different if names is None else [str(text(name)) for name in names]
    for k, name in enumerate(order):
        if name in order[:k]:
            raise HoldfastError(
                f"{who}: label_names has `{name}` twice; give each label once.",
                about=("label_names",),
            )
    place = {name: k for k, name in enumerate(order)}
    strange = next((k for k, name in enumerate(said) if name not in place), None)
    if strange is not None:
        raise HoldfastError(
            f"{who}: {table.place(strange)}, `{label}` is {said[strange]!r}, which is none of the labels "
            f"{', '.join(order[:10])}.",
            about=("label",),
        )
    return Labels(np.array([place[s] for s in said], np.int32), tuple(order))


def fractional(found: np.ndarray | None) -> bool:
    """Whether these are numbers, and not all of them whole."""
    return found is not None and bool((found != np.round(found)).any())


def _order(name: str) -> tuple[int, float, str]:
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name


def _regression(
    table: RawTable, label: str, found: np.ndarray | None, said: np.ndarray, who: str
) -> Labels:
    if found is None or not np.isfinite(found).all():
        wrong = next(k for k, s in enumerate(said) if _order(s)[0] or not np.isfinite(float(s)))
        raise HoldfastError(
            f"{who}: {table.place(wrong)}, column `{label}` is {said[wrong]!r}; a regression needs a finite "
            f"number in every row.",
            about=("label",),
        )
    return Labels(found)


def _binary(
    label: str,
    said: np.ndarray,
    different: list[str],
    positive: Any,
    names: Sequence[str] | None,
    who: str,
) -> Labels:
    if names is not None and len(names) != 2:
        raise HoldfastError(
            f"{who}: positive makes two classes, and label_names has {len(names)}; give two names.",
            about=("label_names",),
        )
    listed = positive if isinstance(positive, list | tuple) else [positive]
    wanted = [str(text(value)) for value in listed]
    for value in wanted:
        if value not in different:
            raise HoldfastError(
                f"{who}: positive: no row has {value!r} in `{label}`; {did_you_mean(value, different)}",
                about=("positive",),
            )
    others = [name for name in different if name not in wanted]
    if not others:
        raise HoldfastError(
            f"{who}: positive={wanted} are all values that `{label}` has; leave some for the other class.",
            about=("positive",),
        )
    return Labels(
        np.isin(said, wanted).astype(np.int32),
        (_together(others, "other"), _together(wanted, "positive"))
        if names is None
        else tuple(names),
    )


def _together(names: Sequence[str], many: str) -> str:
    return "/".join(names) if len(names) <= _MOST_NAMED else many


def fit_target(clients: Sequence[np.ndarray], who: str) -> Target:
    """How the numbers of a regression are scaled: by mean and deviation of all clients' training rows."""
    return target_of(fit([{TARGET: y} for y in clients], Settings(), who))


def target_of(made: Preprocessing) -> Target:
    """The scale of the only column."""
    one = made.inputs[0]
    assert isinstance(one, Number)
    return Target(one.centre, one.scale)


def class_weights(
    given: Literal["balanced"] | Mapping[str, float],
    y: np.ndarray,
    names: Sequence[str] | None,
    who: str,
) -> tuple[float, ...]:
    r"""One weight per class: $n / (k\, n_c)$ by the counts of training rows, or as given by name.

    Balanced weights are scikit-learn's; a class that no training row has weighs 1.
    """
    if names is None:
        raise HoldfastError(
            f"{who}: class_weight is for classes, and a regression has none; leave it out.",
            about=("class_weight",),
        )
    if given == "balanced":
        counts = np.bincount(y, minlength=len(names))
        there = counts > 0
        balanced = counts.sum() / (there.sum() * np.maximum(counts, 1))
        return tuple(float(w) for w in np.where(there, balanced, 1.0))
    if not isinstance(given, Mapping):
        raise HoldfastError(
            f'{who}: class_weight={given!r}; give "balanced", or a weight by the name of each class.',
            about=("class_weight",),
        )
    weights = {str(text(name)): float(weight) for name, weight in given.items()}
    for name, weight in weights.items():
        if name not in names:
            raise HoldfastError(
                f"{who}: class_weight: no class is called `{name}`; {did_you_mean(name, names)}",
                about=("class_weight",),
            )
        if not 0 < weight < np.inf:
            raise HoldfastError(
                f"{who}: class_weight of `{name}` is {weight}; give a number above 0.",
                about=("class_weight",),
            )
    return tuple(weights.get(name, 1.0) for name in names)
