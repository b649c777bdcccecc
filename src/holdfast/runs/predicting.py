"""Predictions for the rows of a file: what `holdfast predict` writes and says."""

import csv
import dataclasses
import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.preprocessing.columns import numbers, text
from holdfast.data.tables.files import looks_like_data, read_table
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.record.files import write_whole
from holdfast.saved.description import Columns
from holdfast.saved.labels import label_numbers
from holdfast.saved.model import SavedModel

_WHO = "predict"
_ARRAY = ".npy"


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Rows with what was predicted of them.

    Args:
        rows: columns of the file that was read.
        columns: what was predicted, by the names of the columns to write.
        predicted: the label or number of each row.
        truth: the number of the right label, or the right number, where the file has it.
        probabilities: of labels, in the order of their names; None of numbers.
        labels: the names of labels.
    """

    rows: dict[str, np.ndarray]
    columns: dict[str, np.ndarray]
    predicted: np.ndarray
    truth: np.ndarray | None
    probabilities: np.ndarray | None
    labels: tuple[str, ...]

    def write(self, path: Path) -> Path:
        """Into a .csv or a .parquet file."""
        whole = self.rows | self.columns
        if path.suffix == ".parquet":
            frame = _pandas(path).DataFrame(whole)
            made = io.BytesIO()
            frame.to_parquet(made, index=False)
            write_whole(path, made.getvalue())
            return path
        if path.suffix != ".csv":
            raise HoldfastError(f"{path}: give a file that ends in .csv or .parquet.")
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(whole)
        writer.writerows(zip(*(map(_cell, values) for values in whole.values()), strict=True))
        write_whole(path, lines.getvalue())
        return path

    @property
    def measured(self) -> dict[str, float]:
        """How right the predictions are, of rows whose label is known; empty where none is."""
        if self.truth is None or not len(self.truth):
            return {}
        if self.probabilities is None:
            apart = np.asarray(self.predicted, np.float64) - self.truth
            return {
                "mean absolute error": float(np.abs(apart).mean()),
                "root mean squared error": float(np.sqrt((apart**2).mean())),
            }
        right = self.probabilities.argmax(axis=1) == self.truth
        return {"accuracy": float(right.mean())}


def _cell(value: Any) -> Any:
    missing = value is None or (isinstance(value, float | np.floating) and np.isnan(value))
    # All digits, and no `np.float32(...)`.
    return "" if missing else str(value)


def _pandas(path: Path) -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise HoldfastError(
            f"{path}: parquet needs pandas and pyarrow; `pip install pandas pyarrow`."
        ) from None


def predict_file(
    saved: SavedModel, path: Path, ids: Sequence[str] = (), label: str | None = None
) -> Predicted:
    """Predict every row of a .csv or .parquet file, or of an array in a .npy file.

    Args:
        saved: the model.
        path: the file; without a first line of names if the one trained on had none.
        ids: columns that are kept and not used, whatever the model knows.
        label: the column with the right label; that of training unless given, if the file has it.
    """
    columns = saved.description.columns
    rows: dict[str, np.ndarray] = {}
    inputs: Any
    if path.suffix == _ARRAY:
        inputs = _array(path)
    else:
        rows = _table(path, columns)
        for name in (*ids, *(() if label is None else (label,))):
            if name not in rows:
                raise HoldfastError(f"{_WHO}: no column `{name}`; {did_you_mean(name, rows)}")
    label = label if label is not None else None if columns is None else columns.target
    if rows:
        known = () if saved.feature_names is None else saved.feature_names
        unused = {*ids, label} - set(known)
        inputs = {name: values for name, values in rows.items() if name not in unused}
    found = _outputs(saved, inputs)
    truth = rows.get(label) if label is not None and label in rows else None
    shown = _columns(saved, found, rows)
    return Predicted(
        rows or {"row": np.arange(len(found))},
        shown,
        shown["prediction"],
        None if truth is None else _truth(saved, str(label), truth, found),
        found if saved.description.task != "numbers" else None,
        _labels(saved, found),
    )


def _outputs(saved: SavedModel, inputs: Any) -> np.ndarray:
    task = saved.description.task
    if task == "labels":
        raise HoldfastError(
            f"{_WHO}: {saved.model.name} predicts several labels at once; use hf.load and predict_proba."
        )
    found = saved.predict(inputs) if task == "numbers" else saved.predict_proba(inputs)
    if found.ndim != (1 if task == "numbers" else 2):
        raise HoldfastError(
            f"{_WHO}: {saved.model.name} predicts {found.shape[1:]} of each row; use hf.load, which returns "
            f"arrays."
        )
    return found


def _labels(saved: SavedModel, found: np.ndarray) -> tuple[str, ...]:
    if saved.description.task == "numbers":
        return ()
    names = saved.label_names
    return tuple(map(str, range(found.shape[1]))) if names is None else names


def _columns(
    saved: SavedModel, found: np.ndarray, rows: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    if saved.description.task == "numbers":
        made = {"prediction": found}
    else:
        made = {"prediction": saved.named(found.argmax(axis=1))}
        for i, name in enumerate(_labels(saved, found)):
            made[f"probability_{name}"] = found[:, i]
    for name in made:
        if name in rows:
            raise HoldfastError(
                f"{_WHO}: the file has a column `{name}` already, which is to be written; rename it."
            )
    return made


def _array(path: Path) -> np.ndarray:
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise HoldfastError(f"{_WHO}: {path} is no array, or damaged ({error}).") from None
    if not isinstance(found, np.ndarray):
        raise HoldfastError(f"{_WHO}: {path} holds several arrays; give one, in a .npy file.")
    return found


def _table(path: Path, columns: Columns | None) -> dict[str, np.ndarray]:
    separator = None if columns is None else columns.separator
    found = read_table(path, _WHO, None, separator, "table").columns
    names = None if columns is None else columns.names
    # A file like those trained on, which have no line of names.
    if names is not None and looks_like_data(found):
        if len(found) != len(names):
            raise HoldfastError(
                f"{_WHO}: {path} has {len(found)} columns without names, and the files trained on have "
                f"{len(names)}; give it a first line of names."
            )
        found = read_table(path, _WHO, names, separator, "table").columns
    return found


def _truth(
    saved: SavedModel, label: str, values: np.ndarray, probabilities: np.ndarray
) -> np.ndarray | None:
    """What was to be predicted, as the model numbers it; None where no row says it."""
    columns, made = saved.description.columns, saved.preprocessing
    missing = frozenset({""}) if made is None else made.missing_values.column(label)
    if saved.description.task == "numbers":
        found = numbers(values, missing)
        return None if found is None or np.isnan(found).any() else found
    said = [text(value) for value in values]
    if all(value is None or value in missing for value in said):
        return None
    classes = len(_labels(saved, probabilities))
    return label_numbers(values, columns, classes, f"{_WHO}: column `{label}`")
