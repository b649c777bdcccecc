"""A data set from a table: a pandas DataFrame, a Parquet or a CSV file."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.adapters.arrays import as_labels, as_plain, hold_out
from holdfast.data.checks import check_share
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.unpack import (
    damage_said,
    is_packed,
    opened,
    refuse_larger,
    refuse_larger_archive,
)
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

_WHO = "from_table"


@explain_arguments
def from_table(
    table: Any,
    label: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    one_hot: bool = False,
) -> Dataset:
    """A data set from the columns of a table.

    Inputs become 32-bit floating point numbers, a column each. Labels that are names or truth values
    become 0, 1, ... in sorted order. With a client column, a share of every client's rows is kept for
    testing, and everybody keeps at least one to train on.

    Args:
        table: a pandas DataFrame, or the path of a .parquet or .csv file (.csv.gz and the like too).
        label: the column with labels or targets.
        client: the column that says whose a row is; `natural()` then returns the clients.
        features: the columns with inputs; all others unless given.
        test_share: share of the rows, or of every client's, to test on.
        seed: draws them.
        one_hot: turn each input column of names into a column of 0 and 1 per name, in sorted order.

    Example:
        >>> import holdfast as hf
        >>> import pandas as pd
        >>> table = pd.DataFrame(
        ...     {"age": [31, 52, 47, 60], "sick": [0, 1, 0, 1], "clinic": ["a", "a", "b", "b"]}
        ... )
        >>> data = hf.data.from_table(table, label="sick", client="clinic", test_share=0.5)
        >>> data.train.x.shape, data.owners
        ((2, 1), array(['a', 'b'], dtype='<U1'))
    """
    check_share(_WHO, test_share)
    frame = _read(table)
    columns = [str(c) for c in frame.columns]
    for name in columns:
        if columns.count(name) > 1:
            raise HoldfastError(f"{_WHO}: two columns are called `{name}`; rename one.")
    frame = frame.set_axis(columns, axis=1)
    special = [label] if client is None else [label, client]
    if isinstance(features, str):
        features = [features]
    inputs = [c for c in columns if c not in special] if features is None else list(features)
    for name in (*special, *inputs):
        if name not in columns:
            argument = "label" if name == label else "client" if name == client else "features"
            raise HoldfastError(
                f"{_WHO}: no column `{name}`; {did_you_mean(name, columns)}", about=(argument,)
            )
    if not inputs or not len(frame):
        what = "rows" if inputs else "columns with inputs"
        raise HoldfastError(f"{_WHO}: the table has no {what}; give at least one.")
    _check_complete(frame, [*inputs, *special])
    x = np.column_stack([part for name in inputs for part in _numbers(frame[name], one_hot)])
    y, classes = as_labels(as_plain(frame[label]), _WHO)
    owners = None if client is None else as_plain(frame[client])
    return hold_out(Examples(x, y), owners, classes, test_share, seed)


def _read(table: Any) -> Any:
    if hasattr(table, "columns") and hasattr(table, "iloc"):
        return table
    if not isinstance(table, str | os.PathLike):
        raise HoldfastError(
            f"{_WHO}: table is a {type(table).__name__}; give a DataFrame or the path of a file.",
            about=("table",),
        )
    path = Path(table)
    kind = next((s for s in path.suffixes if s in (".parquet", ".csv")), None)
    if kind is None:
        raise HoldfastError(
            f"{_WHO}: {path} is no table; give a path ending in .parquet or .csv.", about=("path",)
        )
    if not path.exists():
        raise HoldfastError(f"{_WHO}: {path} is missing; give the path of a file.", about=("path",))
    try:
        pandas = importlib.import_module("pandas")
        with damage_said(_WHO, path, "check the file"):
            if kind == ".parquet":
                return _parquet(pandas, path)
            if path.suffix == ".zip":
                refuse_larger_archive(path)
            if not is_packed(path):
                return pandas.read_csv(path)
            with opened(path) as file:
                return pandas.read_csv(file)
    except ImportError:
        raise HoldfastError(
            f"{_WHO}: reading {path} needs pandas and pyarrow; `pip install pandas pyarrow`."
        ) from None


def _parquet(pandas: Any, path: Path) -> Any:
    about = importlib.import_module("pyarrow.parquet").read_metadata(path)
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    refuse_larger(str(path), sum(group.total_byte_size for group in groups))
    return pandas.read_parquet(path)


def _check_complete(frame: Any, columns: Sequence[str]) -> None:
    first, total = None, 0
    for name in columns:
        missing = np.flatnonzero(np.asarray(frame[name].isna()))
        total += len(missing)
        if len(missing) and first is None:
            first = (int(missing[0]), name)
    if first is not None:
        more = f" and {total - 1} more" if total > 1 else ""
        raise HoldfastError(
            f"{_WHO}: row {first[0]} (from 0), column `{first[1]}` is missing{more}; drop such rows "
            f"or fill them in."
        )


def _numbers(column: Any, one_hot: bool) -> list[np.ndarray]:
    """One input column as columns of numbers."""
    values = as_plain(column)
    if values.dtype.kind in "biuf":
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise HoldfastError(
                f"{_WHO}: row {bad[0]} (from 0), column `{column.name}` is infinite; clean it first."
            )
        return [values.astype(np.float32)]
    if values.dtype.kind in "mMc":
        raise HoldfastError(
            f"{_WHO}: column `{column.name}` holds {column.dtype}; turn it into numbers, or leave it out "
            f"by features=.",
            about=("features",),
        )
    names, codes = np.unique(values.astype(str), return_inverse=True)
    if not one_hot:
        raise HoldfastError(
            f"{_WHO}: column `{column.name}` holds names such as {str(names[0])!r}; encode it as "
            f"numbers, give one_hot=True, or leave it out by features=.",
            about=("features",),
        )
    return [(codes == k).astype(np.float32) for k in range(len(names))]
