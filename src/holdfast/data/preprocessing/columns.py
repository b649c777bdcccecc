"""Columns of a table as they came, as numbers or as words: what is missing, and what is the same value."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError

_TRUTH = {"True": 1.0, "False": 0.0}


@dataclasses.dataclass(frozen=True)
class MissingValues:
    """What stands for a missing value, besides an empty cell: in all columns, and in some.

    Args:
        everywhere: values, as text: "?", "-9".
        of: the same for one column more: pairs of its name and the values.
    """

    everywhere: tuple[str, ...] = ()
    of: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def column(self, name: str) -> frozenset[str]:
        """What is missing in one column."""
        return frozenset(("", *self.everywhere, *dict(self.of).get(name, ())))


def text(value: Any) -> str | None:
    """One value as text, so that equal values have equal texts; None where it is missing.

    Example:
        >>> text(3.0), text(" 3 "), text("03"), text("yes"), text(float("nan"))
        ('3', '3', '3', 'yes', None)
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return None
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    written = value.decode() if isinstance(value, bytes) else str(value)
    written = written.strip()
    meant = _number(written)
    return written if meant is None else text(meant)


def _number(written: str) -> float | None:
    try:
        return float(written)
    except ValueError:
        return None


def texts(values: np.ndarray, missing: frozenset[str]) -> np.ndarray:
    """A column as texts, None where it is missing."""
    if values.dtype.kind in "mMc":
        raise ValueError(f"holds {values.dtype}")
    found, place = _different(values)
    said = [text(value) for value in found]
    named = np.array([None if s is None or s in missing else s for s in said], object)
    return named[place] if len(named) else np.zeros(0, object)


def _different(values: np.ndarray) -> tuple[Sequence[Any], np.ndarray]:
    """Different values, and which of them each is: a column has few, or is made of numbers."""
    if values.dtype.kind == "O":
        known: dict[Any, int] = {}
        # True and 1 are one key of a dictionary, and two texts.
        keys = [(type(value), value) for value in values]
        place = np.fromiter((known.setdefault(key, len(known)) for key in keys), int, len(keys))
        return [value for _, value in known], place
    found, place = np.unique(values, return_inverse=True)
    return found.tolist(), place


def numbers(values: np.ndarray, missing: frozenset[str]) -> np.ndarray | None:
    """A column as 64-bit numbers, NaN where it is missing; None if a value is no number."""
    if values.dtype.kind in "biuf":
        found = values.astype(np.float64)
        for value in missing:
            number = _number(value)
            if number is not None:
                found[found == number] = np.nan
        return found
    said = texts(values, missing)
    known = {t: _TRUTH.get(t, _number(t)) for t in set(said) if t is not None}
    if any(number is None for number in known.values()):
        return None
    return np.array([np.nan if t is None else known[t] for t in said], np.float64)


def raw_columns(table: Any, who: str) -> dict[str, np.ndarray]:
    """The columns of a data frame, or of a mapping from names to values, by name."""
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        names = [str(name) for name in table.columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise HoldfastError(f"{who}: two columns are called `{twice}`; rename one.")
        return {name: _of_series(table.iloc[:, k]) for k, name in enumerate(names)}
    if not isinstance(table, Mapping):
        raise HoldfastError(
            f"{who}: a {type(table).__name__} has no named columns; give a data frame, or a mapping from "
            f"names to values."
        )
    found = {str(name): plain(values) for name, values in table.items()}
    sizes = {name: len(values) for name, values in found.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"`{name}` has {size}" for name, size in list(sizes.items())[:5])
        raise HoldfastError(f"{who}: columns differ in length: {listed}; give all the same.")
    return found


def _of_series(series: Any) -> np.ndarray:
    a = np.asarray(series)
    return a if a.dtype.kind in "biufmMc" else plain(series.to_numpy(dtype=object))


def plain(values: Any) -> np.ndarray:
    """Values as an array: of numbers, or of objects where there are words or nothing."""
    a = np.asarray(values)
    if a.ndim == 0:
        a = a[None]
    return a if a.dtype.kind in "biufmMcO" else a.astype(object)
