"""A fitted preprocessing: from the columns of a table to the numbers that a model was trained on."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.data.preprocessing.columns import MissingValues, numbers, raw_columns, texts
from holdfast.errors import HoldfastError, did_you_mean

_WHO = "preprocessing"


@dataclasses.dataclass(frozen=True)
class Number:
    r"""An input that is a number: what is missing is filled in, then $(v - \text{centre}) / \text{scale}$.

    Args:
        name: its column.
        fill: what a missing value becomes; None where one is refused.
        indicator: whether a column of 0 and 1 says where it was missing.
        centre: what is subtracted: a mean, or a median.
        scale: what it is divided by then: a deviation, or a distance of quartiles.
    """

    name: str
    fill: float | None = None
    indicator: bool = False
    centre: float = 0.0
    scale: float = 1.0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What its columns are called, as scikit-learn does."""
        return (self.name, *_indicator(self))

    def transform(self, values: np.ndarray, missing: frozenset[str]) -> list[np.ndarray]:
        """Its columns, of the values of a table."""
        found = numbers(values, missing)
        if found is None:
            row, word = _first_word(texts(values, missing))
            raise HoldfastError(
                f"{_WHO}: row {row} (from 0), column `{self.name}` is {word!r}; give a number, or leave it "
                f"empty if it is missing."
            )
        if np.isinf(found).any():
            row = int(np.flatnonzero(np.isinf(found))[0])
            raise HoldfastError(
                f"{_WHO}: row {row} (from 0), column `{self.name}` is infinite; clean it first."
            )
        absent = np.isnan(found)
        _check_filled(self, absent)
        filled = np.where(absent, 0.0 if self.fill is None else self.fill, found)
        scaled = (filled - self.centre) / self.scale
        return [scaled, absent.astype(float)] if self.indicator else [scaled]


@dataclasses.dataclass(frozen=True)
class Category:
    """An input that is one of some values: a column of 0 and 1 for each; any other value is 0 in all.

    Args:
        name: its column.
        categories: the values that training rows have, as text.
        fill: what a missing value becomes; None where one is refused.
        indicator: whether a column of 0 and 1 says where it was missing.
    """

    name: str
    categories: tuple[str, ...]
    fill: str | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What its columns are called, as scikit-learn does."""
        return (*(f"{self.name}_{c}" for c in self.categories), *_indicator(self))

    def transform(self, values: np.ndarray, missing: frozenset[str]) -> list[np.ndarray]:
        """Its columns, of the values of a table."""
        found = texts(values, missing)
        absent = np.array([value is None for value in found], bool)
        _check_filled(self, absent)
        found[absent] = self.fill
        columns = [(found == category).astype(float) for category in self.categories]
        return [*columns, absent.astype(float)] if self.indicator else columns


@dataclasses.dataclass(frozen=True)
class Target:
    r"""A number to predict, trained on as $(y - \text{centre}) / \text{scale}$."""

    centre: float = 0.0
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    r"""What becomes of the columns of a table before a model sees them.

    Fitted on training rows alone: `hf.data.table` and `hf.data.from_table` do so, and keep it as
    `Dataset.preprocessing`.

    Args:
        inputs: what each column of the table becomes, in order.
        missing_values: what stands for a missing value.
        target: of a regression, how its numbers were scaled.
        others: columns of the table that are no inputs: label, client, what is ignored.

    Example:
        >>> from holdfast.data.preprocessing import Category, Number, Preprocessing
        >>> age = Number("age", fill=40.0, centre=45.0, scale=10.0)
        >>> made = Preprocessing((age, Category("sex", ("m", "w"))))
        >>> made.feature_names
        ('age', 'sex_m', 'sex_w')
        >>> made.transform({"age": [55, None], "sex": ["w", "unheard of"]}).tolist()
        [[1.0, 0.0, 1.0], [-0.5, 0.0, 0.0]]
    """

    inputs: tuple[Number | Category, ...]
    missing_values: MissingValues = dataclasses.field(default_factory=MissingValues)
    target: Target | None = None
    others: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that are needed, in order."""
        return tuple(one.name for one in self.inputs)

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing: numbers of the table as they are."""
        return self.target is None and all(one == Number(one.name) for one in self.inputs)

    @functools.cached_property
    def feature_names(self) -> tuple[str, ...]:
        """What the columns of the result are called."""
        return tuple(name for one in self.inputs for name in one.feature_names)

    def transform(self, table: Any) -> np.ndarray:
        """What a model takes, 32-bit numbers of shape (rows, features).

        A category that no training row had is 0 in all columns of its input. Refuses a column that is
        missing, and one that the table trained on did not have.

        Args:
            table: a data frame, or a mapping from names of columns to values.
        """
        given = raw_columns(table, _WHO)
        for name in self.columns:
            if name not in given:
                raise HoldfastError(
                    f"{_WHO}: no column `{name}`; give {', '.join(self.columns)}.", about=("table",)
                )
        known = (*self.columns, *self.others)
        for name in given:
            if name not in known:
                raise HoldfastError(
                    f"{_WHO}: unknown column `{name}`; {did_you_mean(name, known)} Leave out what the model "
                    f"was not trained with.",
                    about=("table",),
                )
        return self.of_columns(given)

    def of_columns(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The same of arrays by name, which are known to be the right ones."""
        rows = len(next(iter(columns.values())))
        found = np.empty((rows, len(self.feature_names)), np.float32)
        place = 0
        for one in self.inputs:
            missing = self.missing_values.column(one.name)
            for part in one.transform(columns[one.name], missing):
                found[:, place] = part
                place += 1
        return found

    def restore(self, predicted: Any) -> np.ndarray:
        """Predictions of a regression in the units of the table."""
        target = self.target or Target()
        return np.asarray(predicted, np.float64) * target.scale + target.centre

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them; numbers keep all their digits."""
        kinds = {Number: "number", Category: "category"}
        inputs = [{"kind": kinds[type(one)], **_plain(one)} for one in self.inputs]
        return {
            "inputs": inputs,
            "missing_values": {
                "everywhere": list(self.missing_values.everywhere),
                "of": {name: list(values) for name, values in self.missing_values.of},
            },
            "target": None if self.target is None else dataclasses.asdict(self.target),
            "others": list(self.others),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Preprocessing":
        """What `to_dict` gave."""
        kinds: dict[str, Any] = {"number": Number, "category": Category}
        inputs = [dict(one) for one in given["inputs"]]
        for one in inputs:
            if "categories" in one:
                one["categories"] = tuple(one["categories"])
        missing, target = given["missing_values"], given["target"]
        return cls(
            tuple(kinds[one.pop("kind")](**one) for one in inputs),
            MissingValues(
                tuple(missing["everywhere"]), tuple((n, tuple(v)) for n, v in missing["of"].items())
            ),
            None if target is None else Target(**target),
            tuple(given["others"]),
        )


def _plain(one: Number | Category) -> dict[str, Any]:
    found = dataclasses.asdict(one)
    return {n: list(v) if isinstance(v, tuple) else v for n, v in found.items()}


def _indicator(one: Number | Category) -> Sequence[str]:
    return (f"missingindicator_{one.name}",) if one.indicator else ()


def _first_word(said: np.ndarray) -> tuple[int, str]:
    """The first text that is no number."""
    for row, value in enumerate(said):
        if value is not None and numbers(np.array([value], object), frozenset()) is None:
            return row, value
    raise AssertionError("all are numbers")


def _check_filled(one: Number | Category, absent: np.ndarray) -> None:
    if one.fill is None and absent.any():
        row = int(np.flatnonzero(absent)[0])
        more = int(absent.sum()) - 1
        besides = f" and {more} more" if more else ""
        raise HoldfastError(
            f"{_WHO}: row {row} (from 0), column `{one.name}` is missing{besides}; "
            f'fill it in, or train with `missing`, such as missing = "median".',
            about=("missing",),
        )
