"""Fit a preprocessing on training rows: each client is asked once, and the server needs no row."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from holdfast.data.preprocessing.columns import MissingValues
from holdfast.data.preprocessing.fitted import Category, Number, Preprocessing
from holdfast.data.preprocessing.summary import (
    Columns,
    ColumnSummary,
    Question,
    Summary,
    merge,
    summary,
    words_in,
)
from holdfast.errors import HoldfastError

Scale = Literal["standard", "robust", "none"]
Missing = Literal["mean", "median", "most_frequent", "drop"]
# Of words that nobody named as categories; more are likely names, or a slip.
_MOST_WORDS = 20


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is to become of a table's inputs.

    Args:
        scale: `standard` (mean and deviation), `robust` (median and distance of the quartiles), `none`.
        missing: what a missing number becomes, of the training rows' values; categories become the most
            frequent. None refuses missing values.
        indicator: a column of 0 and 1 besides for every input that training rows miss values of.
        categorical: columns whose values are categories, though they be numbers.
        one_hot: whether all columns of words are categories (True) or refused (False); unless given,
            those of at most 20 different words are.
        missing_values: what stands for a missing value.
    """

    scale: Scale = "standard"
    missing: Missing | None = None
    indicator: bool = False
    categorical: tuple[str, ...] = ()
    one_hot: bool | None = None
    missing_values: MissingValues = dataclasses.field(default_factory=MissingValues)

    def questions(self, columns: Sequence[str], words: set[str]) -> list[Question]:
        """What clients are asked, once it is known which columns hold words."""
        robust, median = self.scale == "robust", self.missing == "median"
        frequent = self.missing == "most_frequent"
        return [
            Question(name, "category", counts=True)
            if name in words or name in self.categorical
            else Question(name, "number", counts=frequent, sketch=robust or median)
            for name in columns
        ]


def fit(clients: Sequence[Columns], settings: Settings, who: str = "table") -> Preprocessing:
    """A preprocessing from the training rows of each client, in two turns.

    First everybody says which columns hold words, then answers the server's questions (`summary`), which
    are put together (`merge`). What comes of it is what scikit-learn's `SimpleImputer`, `StandardScaler`
    or `RobustScaler`, and `OneHotEncoder` find of all training rows in one place.

    Args:
        clients: of each its columns by name.
        settings: what is to become of them.
        who: asks for it; messages begin with it.

    Example:
        >>> import numpy as np
        >>> sites = [{"age": np.array([30.0, 50.0])}, {"age": np.array([40.0, np.nan])}]
        >>> fit(sites, Settings(missing="mean")).inputs[0]
        Number(name='age', fill=40.0, indicator=False, centre=40.0, scale=7.0710678118654755)
    """
    words = set[str]().union(*(words_in(rows, settings.missing_values) for rows in clients))
    questions = settings.questions(list(clients[0]), words)
    answers = [summary(rows, questions, settings.missing_values) for rows in clients]
    return put_together(answers, questions, words, settings, who)


def put_together(
    answers: Sequence[Summary],
    questions: Sequence[Question],
    words: set[str],
    settings: Settings,
    who: str = "table",
) -> Preprocessing:
    """A preprocessing from what clients answered; `words` are the columns that somebody has words in."""
    found = merge(answers)
    _check(found, questions, words, settings, who)
    inputs = [
        _number(q.name, found[q.name], settings)
        if q.kind == "number"
        else _category(q.name, found[q.name], settings)
        for q in questions
    ]
    return Preprocessing(tuple(inputs), settings.missing_values)


def _check(
    found: Summary, questions: Sequence[Question], words: set[str], settings: Settings, who: str
) -> None:
    for question in questions:
        name, column = question.name, found[question.name]
        if not column.count:
            raise HoldfastError(
                f"{who}: column `{name}` has no value in any training row; leave it out by "
                f'ignore = ["{name}"].',
                about=("ignore",),
            )
        if name in words and name not in settings.categorical:
            _check_words(name, column, settings, who)
        if question.kind == "number" and not math.isfinite(column.mean):
            raise HoldfastError(
                f"{who}: column `{name}` has an infinite value; clean it first, or say by na_values what "
                f"stands for a missing one."
            )


def _check_words(name: str, column: ColumnSummary, settings: Settings, who: str) -> None:
    counts: Mapping[str, int] = column.counts or {}
    are_numbers = [value for value in counts if _is_number(value)]
    others = [value for value in counts if not _is_number(value)]
    if are_numbers:
        raise HoldfastError(
            f"{who}: column `{name}` holds numbers and {_listed(others)}; say na_values = "
            f'["{others[0]}"] if that is a missing value, or categorical = ["{name}"] if all are categories.',
            about=("na_values",),
        )
    many = settings.one_hot is None and len(counts) > _MOST_WORDS
    if many or settings.one_hot is False:
        raise HoldfastError(
            f"{who}: column `{name}` holds {len(counts)} different words such as {_listed(others)}; leave it "
            f'out by ignore = ["{name}"], or say categorical = ["{name}"] for a column of 0 and 1 per word.',
            about=("categorical",),
        )


def _listed(values: Sequence[str]) -> str:
    return ", ".join(repr(value) for value in values[:3])


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _number(name: str, column: ColumnSummary, settings: Settings) -> Number:
    fill = _fill(column, settings)
    whole = column if fill is None else column.filled(fill)
    centre, scale = _scale(whole, settings.scale)
    indicator = settings.indicator and column.missing > 0
    return Number(name, fill, indicator, centre, scale)


def _fill(column: ColumnSummary, settings: Settings) -> float | None:
    if settings.missing == "mean":
        return column.mean
    if settings.missing == "median":
        assert column.sketch is not None
        return column.sketch.quantile(0.5)
    if settings.missing == "most_frequent":
        counts = {float(_TRUTH.get(v, v)): n for v, n in (column.counts or {}).items()}
        return min(counts, key=lambda value: (-counts[value], value))
    return None


_TRUTH = {"True": "1", "False": "0"}


def _scale(column: ColumnSummary, scale: Scale) -> tuple[float, float]:
    if scale == "none":
        return 0.0, 1.0
    if scale == "robust":
        assert column.sketch is not None
        low, middle, high = (column.sketch.quantile(q) for q in (0.25, 0.5, 0.75))
        distance = high - low
        return middle, distance if distance > 10 * np.finfo(float).eps else 1.0
    variance = column.squares / column.count
    # What rounding leaves of a constant, as StandardScaler has it.
    rounding = column.count * np.finfo(float).eps
    constant = variance <= rounding * variance + (rounding * column.mean) ** 2
    return column.mean, 1.0 if constant else math.sqrt(variance)


def _category(name: str, column: ColumnSummary, settings: Settings) -> Category:
    counts: Mapping[str, int] = column.counts or {}
    order = sorted(counts, key=float if all(map(_is_number, counts)) else str)
    fill = None
    if settings.missing not in (None, "drop"):
        fill = max(order, key=lambda value: counts[value])
    return Category(name, tuple(order), fill, settings.indicator and column.missing > 0)
