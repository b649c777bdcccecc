"""New rows, as people have them, to the inputs a model was trained on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.saved.description import ArrayType, Columns

_WHO = "predict"


def names_of(rows: Any) -> list[str] | None:
    """The names of a table's columns: of a data frame, or of a dictionary of columns; None of arrays."""
    if isinstance(rows, Mapping):
        return [str(name) for name in rows]
    names = getattr(rows, "column_names", None)  # as pyarrow calls them
    names = getattr(rows, "columns", None) if names is None else names
    return None if names is None else [str(name) for name in names]


def column(rows: Any, name: str) -> np.ndarray:
    """One column of a table."""
    names = names_of(rows)
    assert names is not None
    if isinstance(rows, Mapping):
        return np.asarray(rows[_key(rows, name)])
    if hasattr(rows, "iloc"):  # by place: names may be numbers
        return np.asarray(rows.iloc[:, names.index(name)])
    return np.asarray(rows[name])


def _key(rows: Mapping[Any, Any], name: str) -> Any:
    return next(key for key in rows if str(key) == name)


def inputs(
    rows: Any, x: ArrayType, columns: Columns | None, preprocessing: Any | None
) -> np.ndarray:
    """What the model computes with, one row per example."""
    names = names_of(rows)
    if preprocessing is not None:
        return _preprocessed(rows, names, preprocessing, columns)
    if names is None:
        return _arrays(rows, x)
    if columns is None:
        raise HoldfastError(
            f"{_WHO}: a table is given, and the model was saved without the names of its columns; give the "
            f"arrays it was trained on, or save it by run.save(path, data=...)."
        )
    width = int(np.prod(x.shape))
    wanted = columns.features
    if wanted is None:
        if len(names) != width:
            raise HoldfastError(
                f"{_WHO}: a table of {len(names)} columns, and the model takes {width}, which have no names; "
                f"give these alone, in their order."
            )
        wanted = tuple(names)
    check_columns(names, wanted, columns)
    found = np.column_stack([_numbers(column(rows, name), name, x) for name in wanted])
    return found.astype(x.dtype).reshape(len(found), *x.shape)


def _preprocessed(
    rows: Any, names: list[str] | None, preprocessing: Any, columns: Columns | None
) -> np.ndarray:
    wanted = list(preprocessing.columns)
    if names is None:
        given = np.asarray(rows)
        if given.ndim != 2 or given.shape[1] != len(wanted):
            raise HoldfastError(
                f"{_WHO}: an array of shape {given.shape}, and the model takes {len(wanted)} columns "
                f"({_listed(wanted)}); give (rows, {len(wanted)}), or a table with these names."
            )
        rows, names = {name: given[:, i] for i, name in enumerate(wanted)}, wanted
    check_columns(names, wanted, columns, preprocessing.others)
    found: np.ndarray = preprocessing.transform({name: column(rows, name) for name in wanted})
    return found


def check_columns(
    names: Sequence[str],
    wanted: Sequence[str],
    columns: Columns | None,
    others_known: Sequence[str] = (),
) -> None:
    """Refuse a table without a column the model needs, or with one that the table trained on had not."""
    for name in names:
        if names.count(name) > 1:
            raise HoldfastError(f"{_WHO}: two columns are called `{name}`; rename one.")
    expected = {*wanted, *others_known, *(() if columns is None else (columns.target,))}
    others = [name for name in names if name not in expected]
    for name in wanted:
        if name not in names:
            missing = sum(n not in names for n in wanted) - 1
            more = f", and {missing} more are missing" if missing else ""
            # what the rows have instead, not what the model knows
            near = did_you_mean(name, others or names).replace("known are", "there are", 1)
            raise HoldfastError(f"{_WHO}: no column `{name}`{more}; {near}")
    if others:
        raise HoldfastError(
            f"{_WHO}: unknown column `{others[0]}`; {did_you_mean(others[0], wanted)} Leave out what the "
            f"model was not trained with."
        )


def _listed(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _numbers(values: np.ndarray, name: str, x: ArrayType) -> np.ndarray:
    if values.dtype.kind not in "biuf":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise HoldfastError(
                f"{_WHO}: column `{name}` holds {str(values[0])!r}, and the model takes numbers; give "
                f"numbers."
            ) from None
    _check_finite(values, f"column `{name}`", x)
    return values


def _check_finite(values: np.ndarray, what: str, x: ArrayType) -> None:
    if values.dtype.kind != "f":
        return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        kind = "NaN" if np.isnan(values[tuple(bad[0])]) else "infinite"
        raise HoldfastError(
            f"{_WHO}: row {int(bad[0][0])} (from 0), {what} is {kind}, and nothing fills in missing values "
            f"in this model; fill them in or leave such rows out."
        )
    if np.dtype(x.dtype).kind in "iu" and (values != np.floor(values)).any():
        raise HoldfastError(
            f"{_WHO}: {what} holds fractions, and the model takes whole numbers ({x.dtype})."
        )


def _arrays(rows: Any, x: ArrayType) -> np.ndarray:
    given = np.asarray(rows)
    if given.dtype.kind not in "biuf":
        raise HoldfastError(
            f"{_WHO}: an array of {given.dtype} is given, and the model takes numbers ({x.dtype})."
        )
    if given.ndim != len(x.shape) + 1 or given.shape[1:] != x.shape:
        wanted = ", ".join(["rows", *map(str, x.shape)])
        raise HoldfastError(
            f"{_WHO}: an array of shape {given.shape}, and the model takes ({wanted}); "
            + ("give x[None] for a single row." if given.shape == x.shape else "give that shape.")
        )
    trained = np.dtype(x.dtype)
    if len(x.shape) > 1 and trained.kind != given.dtype.kind:
        raise HoldfastError(
            f"{_WHO}: an array of {given.dtype}, and the model was trained on {x.dtype}; give what it was "
            f"trained on, scaled alike."
        )
    _check_finite(given, "the array", x)
    return given.astype(trained)
