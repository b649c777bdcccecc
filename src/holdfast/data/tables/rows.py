"""Rows of a table: which are left, whose they are, and when they were."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.data.designs import TEST, TRAIN
from holdfast.data.preprocessing.columns import numbers, texts
from holdfast.data.preprocessing.fit import Settings
from holdfast.data.tables.files import RawTable
from holdfast.errors import HoldfastError, HoldfastWarning

WHO = "table"


def names_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, as several."""
    return (given,) if isinstance(given, str) else tuple(given)


def with_tests(raw: RawTable, tests: RawTable) -> tuple[RawTable, np.ndarray]:
    """Both tables, one behind the other, and what is tested on."""
    absent = [name for name in raw.columns if name not in tests.columns]
    if absent:
        raise HoldfastError(
            f"{WHO}: test rows have no column `{absent[0]}`; give them the columns that training rows have.",
            about=("test_path",),
        )
    told = np.repeat([TRAIN, TEST], [len(raw), len(tests)])
    joined = RawTable(
        {
            name: np.concatenate([values.astype(object), tests.columns[name].astype(object)])
            for name, values in raw.columns.items()
        },
        (*raw.files, *tests.files),
        np.concatenate([raw.file, tests.file + len(raw.files)]),
        np.concatenate([raw.row, tests.row]),
        raw.header,
        raw.separator,
        (*raw.names, *_same_names(raw, tests)),
    )
    return joined, told


def _same_names(raw: RawTable, tests: RawTable) -> list[str]:
    """Files of test rows belong to the client whose training file is called the same."""
    known = {path.name: name for path, name in zip(raw.files, raw.names, strict=True)}
    files = zip(tests.files, tests.names, strict=True)
    return [known.get(path.name, name) for path, name in files]


def complete(
    raw: RawTable,
    inputs: Sequence[str],
    special: Mapping[str, Any],
    settings: Settings,
    told: np.ndarray | None,
) -> tuple[RawTable, np.ndarray | None]:
    """Rows without those that are dropped; refuses what may not be missing."""
    needed = [name for given in special.values() if given is not None for name in names_of(given)]
    for name in inputs:
        _check_numbers(raw, name)
    absent = {name: _absent(raw, name, settings) for name in (*inputs, *needed)}
    if settings.missing == "drop":
        kept = ~np.any([absent[n] for n in (*inputs, special["label"])], axis=0)
        if not kept.any():
            raise HoldfastError(
                f'{WHO}: missing = "drop" leaves no row: each misses a value; ignore columns that are '
                f"mostly empty, or fill them in.",
                about=("missing",),
            )
        raw, told = raw.rows(kept), None if told is None else told[kept]
        absent = {name: where[kept] for name, where in absent.items()}
    refused = needed if settings.missing is not None else [*inputs, *needed]
    first = next((name for name in refused if absent[name].any()), None)
    if first is None:
        return raw, told
    more = sum(int(absent[name].sum()) for name in refused) - 1
    row = int(np.flatnonzero(absent[first])[0])
    remedy = (
        "drop such rows or fill them in"
        if first in needed
        else 'say missing = "mean", "median", "most_frequent" or "drop"'
    )
    raise HoldfastError(
        f"{WHO}: {raw.place(row)}, column `{first}` is missing{f' and {more} more' if more else ''}; "
        f"{remedy}.",
        about=("label",) if first in needed else ("missing",),
    )


def warn_of_dropped(before: RawTable, after: RawTable, columns: Sequence[str] | None) -> None:
    """Of rows that miss a value, when they are most of the rows or all of a client's."""
    left = set(owners_of(after, columns).tolist())
    gone = [
        str(name) for name in dict.fromkeys(owners_of(before, columns).tolist()) if name not in left
    ]
    dropped = len(before) - len(after)
    if gone or 2 * dropped > len(before):
        all_of = f", all of {', '.join(gone[:5])}" + f" and {len(gone) - 5} more" * (len(gone) > 5)
        warnings.warn(
            f'{WHO}: missing = "drop" leaves out {dropped} of {len(before)} rows{all_of if gone else ""}; '
            f"ignore columns that are mostly empty, or fill them in.",
            HoldfastWarning,
            stacklevel=3,
        )


def _check_numbers(raw: RawTable, name: str) -> None:
    """Refuse an input that no model can compute with."""
    values = raw.columns[name]
    if values.dtype.kind in "mMc":
        raise HoldfastError(
            f"{WHO}: column `{name}` holds {values.dtype}; turn it into numbers, or leave it out by "
            f'ignore = ["{name}"].',
            about=("ignore",),
        )
    found = numbers(values, frozenset())
    if found is not None and np.isinf(found).any():
        row = int(np.flatnonzero(np.isinf(found))[0])
        raise HoldfastError(
            f"{WHO}: {raw.place(row)}, column `{name}` is infinite; clean it first.",
            about=("path",),
        )


def _absent(raw: RawTable, name: str, settings: Settings) -> np.ndarray:
    values = raw.columns[name]
    if values.dtype.kind in "mM":
        return np.isnat(values)
    missing = settings.missing_values.column(name)
    if values.dtype.kind in "biuf":  # without a text for each of many numbers
        known = numbers(values, missing)
        assert known is not None
        return np.isnan(known)
    return np.array([value is None for value in texts(values, missing)], bool)


def owners_of(raw: RawTable, columns: Sequence[str] | None) -> np.ndarray:
    """Whose each row is: by its file, or by columns."""
    if columns is None:
        return np.asarray(raw.names)[raw.file]
    if len(columns) == 1:
        values = raw.columns[columns[0]]
        if values.dtype.kind in "iu":
            return values
        return texts(values, frozenset()).astype(str)
    several = [texts(raw.columns[name], frozenset()).astype(str) for name in columns]
    return np.array(["/".join(names) for names in zip(*several, strict=True)])


def times_of(raw: RawTable, column: str) -> np.ndarray:
    """Moments that can be compared: numbers, or dates."""
    values = raw.columns[column]
    found = numbers(values, frozenset()) if values.dtype.kind != "M" else values
    if found is not None:
        return found
    import pandas

    found = pandas.to_datetime(values, format="ISO8601", utc=True, errors="coerce")
    if found.isna().any():
        row = int(np.flatnonzero(found.isna())[0])
        raise HoldfastError(
            f"{WHO}: column `{column}` holds no times: {raw.place(row)} is {str(values[row])!r}; give "
            f"numbers or dates such as 2024-12-31.",
            about=("time",),
        )
    return np.asarray(found.asi8)
