"""What a client says of its columns, and what the server makes of it: sums, counts and sketches."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from holdfast.data.preprocessing.columns import MissingValues, numbers, texts
from holdfast.data.preprocessing.sketch import QuantileSketch

Kind = Literal["number", "category"]
Columns = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Question:
    """What every client is asked of a column; what is not asked for is not sent."""

    name: str
    kind: Kind
    counts: bool = False  # how often each value occurs
    sketch: bool = False  # quantiles


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnSummary:
    r"""One column at one client, or at several: with $n$ values, their mean and $\sum (v - \bar v)^2$.

    Args:
        missing: rows without a value.
        count: rows with one.
        mean: of the values, where they are numbers.
        squares: sum of squared differences from the mean.
        counts: how often each value occurs, as text, where that was asked for.
        sketch: quantiles, where they were asked for.
    """

    missing: int
    count: int
    mean: float = 0.0
    squares: float = 0.0
    counts: Counter[str] | None = None
    sketch: QuantileSketch | None = None

    def filled(self, value: float) -> "ColumnSummary":
        """The same with a value in the place of what is missing."""
        absent = ColumnSummary(
            0,
            self.missing,
            value,
            sketch=QuantileSketch(np.array([value]), np.array([self.missing])),
        )
        present = dataclasses.replace(self, missing=0, counts=None)
        return merge_column([present, absent]) if self.missing else present


Summary = dict[str, ColumnSummary]


def words_in(columns: Columns, missing: MissingValues) -> set[str]:
    """Names of columns in which a client has a value that is no number: those are categories."""
    found = {name: numbers(values, missing.column(name)) for name, values in columns.items()}
    return {name for name, values in found.items() if values is None}


def summary(rows: Columns, questions: Sequence[Question], missing: MissingValues) -> Summary:
    """What one client answers, from its own training rows.

    Args:
        rows: its columns by name.
        questions: what is asked.
        missing: what stands for a missing value.

    Example:
        >>> import numpy as np
        >>> rows = {"age": np.array([30.0, 50.0, np.nan])}
        >>> found = summary(rows, [Question("age", "number")], MissingValues())["age"]
        >>> found.missing, found.count, found.mean, found.squares
        (1, 2, 40.0, 200.0)
    """
    return {q.name: _of_column(rows[q.name], q, missing.column(q.name)) for q in questions}


def _of_column(values: np.ndarray, question: Question, missing: frozenset[str]) -> ColumnSummary:
    counts = None
    if question.counts:
        counts = Counter(t for t in texts(values, missing).tolist() if t is not None)
    if question.kind == "category":
        assert counts is not None
        present = sum(counts.values())
        return ColumnSummary(len(values) - present, present, counts=counts)
    found = numbers(values, missing)
    assert found is not None
    known = found[~np.isnan(found)]
    # Infinite values are named by who fits, not here.
    with np.errstate(invalid="ignore"):
        mean = float(known.mean()) if len(known) else 0.0
        squares = float(np.square(known - mean).sum())
    return ColumnSummary(
        len(found) - len(known),
        len(known),
        mean,
        squares,
        counts,
        QuantileSketch.of(known) if question.sketch else None,
    )


def merge(summaries: Sequence[Summary]) -> Summary:
    """What the server makes of all clients' answers: the same as of all rows together.

    Example:
        >>> import numpy as np
        >>> rows = [{"age": np.array([30.0])}, {"age": np.array([50.0, 52.0])}]
        >>> answers = [summary(r, [Question("age", "number")], MissingValues()) for r in rows]
        >>> merge(answers)["age"].mean
        44.0
    """
    return {name: merge_column([one[name] for one in summaries]) for name in summaries[0]}


def merge_column(parts: Sequence[ColumnSummary]) -> ColumnSummary:
    """One column of several clients together."""
    count = sum(part.count for part in parts)
    mean = sum(part.count * part.mean for part in parts) / count if count else 0.0
    # Around each client's mean and from there to everybody's: no large numbers are subtracted.
    squares = sum(part.squares + part.count * (part.mean - mean) ** 2 for part in parts)
    sketches = [part.sketch for part in parts if part.sketch is not None]
    counts = None
    if any(part.counts is not None for part in parts):
        counts = Counter[str]()
        for part in parts:
            counts.update(part.counts or {})
    return ColumnSummary(
        sum(part.missing for part in parts),
        count,
        mean,
        squares,
        counts,
        QuantileSketch.merged(sketches) if len(sketches) == len(parts) else None,
    )
