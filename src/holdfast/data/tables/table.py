"""A data set from a table: one file, a file for each client, or a data frame."""

import dataclasses
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from holdfast.data.adapters.arrays import TargetKind, check_parts, divided
from holdfast.data.checks import warn_of_scales
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.designs import TRAIN, Design, told_parts
from holdfast.data.preprocessing.columns import MissingValues, numbers, text, texts
from holdfast.data.preprocessing.fit import Missing, Scale, Settings, fit
from holdfast.data.preprocessing.fitted import Preprocessing
from holdfast.data.tables.files import Columns, Frame, Paths, RawTable, looks_like_data, read_table
from holdfast.data.tables.labels import (
    Labels,
    class_weights,
    fit_target,
    read_label,
)
from holdfast.data.tables.rows import (
    WHO,
    complete,
    names_of,
    owners_of,
    times_of,
    warn_of_dropped,
    with_tests,
)
from holdfast.errors import HoldfastError, HoldfastWarning, did_you_mean, explain_arguments

_EVERYWHERE = "*"
_ENOUGH_TO_TELL = 20  # rows
Value = str | float


@explain_arguments
def table(
    path: Paths | Frame | Columns,
    label: str,
    client: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    test_share: float | None = None,
    seed: int = 0,
    one_hot: bool | None = None,
    scale: Scale = "standard",
    missing: Missing | None = None,
    indicator: bool = False,
    categorical: Sequence[str] = (),
    na_values: Value | Sequence[Value] | Mapping[str, Value | Sequence[Value]] = (),
    ignore: Sequence[str] = (),
    target: TargetKind | None = None,
    positive: Value | Sequence[Value] | None = None,
    label_names: Sequence[str] | None = None,
    class_weight: Literal["balanced"] | Mapping[str, float] | None = None,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    test_path: Paths | None = None,
    split: str | None = None,
    group: str | None = None,
    time: str | None = None,
    leave_out: str | Sequence[str] = (),
    unseen: float = 0.0,
    validation_share: float = 0.0,
    preprocessing: Preprocessing | None = None,
) -> Dataset:
    """A data set from the columns of a table, or of a file for each client.

    Inputs become 32-bit numbers by a preprocessing that is fitted on the training rows alone, from sums,
    counts and quantile sketches of each client, and kept as `Dataset.preprocessing`: what is missing is
    filled in, categories become columns of 0 and 1, numbers are scaled. Labels become 0, 1, ... in sorted
    order and keep their names; the number to predict of a regression is scaled by its mean and deviation
    (`Preprocessing.restore` undoes that) unless `scale` is `none`.

    Args:
        path: a .csv or .parquet file (.csv.gz and the like too), a folder of them, a pattern such as
            `sites/*.csv`; in Python also a pandas DataFrame or a mapping from names to values.
        label: the column to predict.
        client: the column that says whose a row is, or several, which say so together; of several files
            each is a client unless given.
        features: the columns to predict from; all others unless given.
        test_share: share of the rows, or of every client's, to test on; 0.2 unless the test rows are said
            otherwise.
        seed: draws test and validation rows.
        one_hot: whether all columns of words become columns of 0 and 1 (True) or are refused (False);
            unless given those of at most 20 words do.
        scale: `standard` (mean and deviation), `robust` (median and quartiles) or `none`.
        missing: what a missing number becomes: `mean`, `median` or `most_frequent` of the training rows
            (categories: the most frequent), or `drop` leaves such rows out; refused unless given.
        indicator: besides, a column of 0 and 1 says where an input was missing.
        categorical: columns whose values are categories, though they be numbers. A category that no
            training row has is 0 in all of its columns.
        na_values: what stands for a missing value besides an empty cell, such as `["?", -9]`; or by
            column, `{"chol": [0], "*": ["?"]}`.
        ignore: columns to leave out.
        target: `classification` or `regression`; by the labels unless given.
        positive: labels that become class 1, all others class 0.
        label_names: the labels in the order of their classes; sorted unless given.
        class_weight: weights of the classes in the loss: `balanced`, or by name.
        columns: names of the columns, for files without a first line of them.
        separator: what stands between the cells of a text file; a comma, or a tab in .tsv.
        test_path: rows to test on, in files of their own.
        split: a column that says `train`, `validation` or `test`.
        group: a column whose values are never divided, such as the recording a window is of.
        time: a column by which the last of every client's rows are tested on.
        leave_out: clients that are tested on and train nothing.
        unseen: share of the clients that are tested on and train nothing, drawn.
        validation_share: share of the rows to choose by, in the way test rows are taken.
        preprocessing: one that is fitted already, to be used instead of fitting another.

    Example:
        >>> import holdfast as hf
        >>> table = {
        ...     "age": [31, 52, "?", 60, 44, 70],
        ...     "sick": [0, 1, 0, 1, 0, 1],
        ...     "clinic": ["a", "a", "a", "b", "b", "b"],
        ... }
        >>> data = hf.data.table(table, "sick", "clinic", na_values="?", missing="median")
        >>> data.train.x.shape, data.owners.tolist(), data.label_names
        ((4, 1), ['a', 'a', 'b', 'b'], ('0', '1'))
        >>> round(data.preprocessing.transform({"age": [48]}).item(), 2)
        -0.09
    """
    design = Design(test_share, validation_share, names_of(leave_out), unseen, seed)
    settings = Settings(
        scale, missing, indicator, names_of(categorical), one_hot, missing_values(na_values)
    )
    raw = read_table(path, WHO, columns, separator, "path")
    own_clients = None if client is None else names_of(client)
    said = {"split": split, "group": group, "time": time}
    special = {"label": label, "client": own_clients} | said
    inputs = inputs_of(raw, special, features, names_of(ignore), settings.categorical)
    told: np.ndarray | None = None
    per_file = own_clients is None and len(raw.files) > 1
    if test_path is not None:
        raw, told = with_tests(raw, read_table(test_path, WHO, columns, separator, "test_path"))
    owned = own_clients is not None or per_file
    given = [name for name in said if said[name] is not None]
    design.check(WHO, owned, [*given, *(["test_path"] if test_path is not None else [])])
    before = raw
    raw, told = complete(raw, inputs, special, settings, told)
    if missing == "drop" and owned:
        warn_of_dropped(before, raw, own_clients)
    owners = owners_of(raw, own_clients) if owned else None
    labels = read_label(raw, label, target, positive, label_names, settings.missing_values, WHO)
    if split is not None:
        told = told_parts(raw.columns[split].tolist(), split, WHO)
    part = design.parts(
        WHO,
        owners,
        len(raw),
        None if group is None else texts(raw.columns[group], frozenset()).astype(str),
        None if time is None else times_of(raw, time),
        told,
    )
    check_parts(WHO, part, design, tested=test_share != 0)
    made = preprocessing or _fitted(raw, inputs, labels, part, owners, settings)
    _warn(raw, inputs, part, settings, made)
    found = _dataset(raw, made, labels, part, owners, class_weight)
    return dataclasses.replace(found, ordered=group is not None or time is not None)


def missing_values(given: Any) -> MissingValues:
    """What stands for a missing value, as `na_values` has it."""

    def listed(values: Any) -> tuple[str, ...]:
        several = values if isinstance(values, list | tuple) else [values]
        return tuple(str(text(value)) for value in several)

    if not isinstance(given, Mapping):
        return MissingValues(listed(given))
    own = {str(name): listed(values) for name, values in given.items()}
    return MissingValues(own.pop(_EVERYWHERE, ()), tuple(own.items()))


def inputs_of(
    raw: RawTable,
    special: Mapping[str, Any],
    features: Sequence[str] | None,
    ignore: Sequence[str],
    categorical: Sequence[str],
) -> list[str]:
    """The columns to predict from; refuses names that no column has."""
    if not len(raw):
        raise HoldfastError(f"{WHO}: the table has no rows; give at least one.", about=("path",))
    named: dict[str, str] = {}
    for argument, given in special.items():
        for name in () if given is None else names_of(given):
            named[name] = argument
            _check_column(raw, name, argument)
    for argument, names in (("ignore", ignore), ("categorical", categorical)):
        for name in names:
            _check_column(raw, name, argument)
    if features is None:
        inputs = [name for name in raw.columns if name not in named and name not in ignore]
    else:
        inputs = list(names_of(features))
    for name in inputs:
        _check_column(raw, name, "features")
        if name == special["label"]:
            raise HoldfastError(
                f"{WHO}: `{name}` is the label and among the features; leave it out there.",
                about=("features",),
            )
    if not inputs:
        raise HoldfastError(
            f"{WHO}: the table has no columns with inputs; give at least one.", about=("features",)
        )
    return inputs


def _check_column(raw: RawTable, name: str, argument: str) -> None:
    if name in raw.columns:
        return
    hint = did_you_mean(name, raw.columns)
    if raw.files and raw.header and looks_like_data(raw.columns):
        hint += " The first line looks like data: give names by `columns`."
    raise HoldfastError(f"{WHO}: no column `{name}`; {hint}", about=(argument,))


def _fitted(
    raw: RawTable,
    inputs: Sequence[str],
    labels: Labels,
    part: np.ndarray,
    owners: np.ndarray | None,
    settings: Settings,
) -> Preprocessing:
    """From every client's training rows."""
    trained = np.flatnonzero(part == TRAIN)
    whose = np.zeros(len(trained)) if owners is None else owners[trained]
    place = np.unique(whose, return_inverse=True)[1]
    order = trained[np.argsort(place, kind="stable")]
    clients = np.split(order, np.cumsum(np.bincount(place))[:-1])
    made = fit([{n: raw.columns[n][rows] for n in inputs} for rows in clients], settings, WHO)
    target = None
    if labels.names is None and settings.scale != "none":
        target = fit_target([labels.y[rows] for rows in clients], WHO)
    others = tuple(name for name in raw.columns if name not in inputs)
    return dataclasses.replace(made, target=target, others=others)


_IDENTIFIER = re.compile(r"(^|[_ .-])(id|ids|nr|no|number|uuid|key|mrn|ssn)$|_?[iI][dD]$")


def _warn(
    raw: RawTable,
    inputs: Sequence[str],
    part: np.ndarray,
    settings: Settings,
    made: Preprocessing,
) -> None:
    """Of a column that looks like a number of the patient, and of scales that nothing makes alike."""
    for name in inputs:
        values = numbers(raw.columns[name], settings.missing_values.column(name))
        if values is None or len(values) < _ENOUGH_TO_TELL or not _IDENTIFIER.search(name):
            continue
        if len(np.unique(values)) == len(values):
            warnings.warn(
                f"{WHO}: column `{name}` has another value in each row and is used as an input; if it is a "
                f'number of the person, say ignore = ["{name}"].',
                HoldfastWarning,
                stacklevel=3,
            )
    if settings.scale == "none":
        trained = raw.rows(np.flatnonzero(part == TRAIN)).columns
        warn_of_scales(WHO, made.of_columns(trained), made.feature_names, 'say scale = "standard"')


def _dataset(
    raw: RawTable,
    made: Preprocessing,
    labels: Labels,
    part: np.ndarray,
    owners: np.ndarray | None,
    weights: Any,
) -> Dataset:
    y: Any = labels.y
    if labels.names is None:
        y = y if made.target is None else (y - made.target.centre) / made.target.scale
        y = y.astype(np.float32)
    x = made.of_columns(raw.columns)

    weighted = None
    if weights is not None:
        weighted = class_weights(weights, y[part == TRAIN], labels.names, WHO)
    return divided(
        Examples(x, y),
        owners,
        part,
        None if labels.names is None else len(labels.names),
        labels.names,
        feature_names=made.feature_names,
        preprocessing=made,
        class_weights=weighted,
    )
