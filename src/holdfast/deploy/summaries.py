"""What a site says of its table, as JSON: read against what it was asked, or refused."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.preprocessing.sketch import POINTS, QuantileSketch
from holdfast.data.preprocessing.summary import ColumnSummary, Question, Summary
from holdfast.data.tables.apart import ColumnsThere
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.messages import is_count, is_name, is_number

# Bytes of what a site may say of its table; most are points of sketches.
MOST = 1 << 26
_THERE = {"inputs", "words", "others", "labels", "fractional"}
_COLUMN = {"missing", "count", "mean", "squares", "counts", "points", "weights"}


def as_json(value: Any) -> bytes:
    """Plain values as bytes; equal ones are equal bytes, and numbers keep all their digits."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def from_json(body: bytes) -> Any:
    """Plain values again."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BadMessageError("its body cannot be read as JSON") from None


def there_as_json(there: ColumnsThere) -> bytes:
    """The first answer of a site."""
    return as_json(
        {
            "inputs": there.inputs,
            "words": there.words,
            "others": there.others,
            "labels": there.labels,
            "fractional": there.fractional,
        }
    )


def read_there(body: bytes) -> ColumnsThere:
    """The first answer of a site."""
    found = from_json(body)
    _wanted(isinstance(found, dict) and found.keys() == _THERE, "its columns")
    for name in ("inputs", "words", "others"):
        _wanted(_names(found[name]), f"`{name}`")
    labels = found["labels"]
    _wanted(labels is None or _counts(labels), "`labels`")
    _wanted(type(found["fractional"]) is bool, "`fractional`")
    _wanted(set(found["words"]) <= set(found["inputs"]), "`words`")
    return ColumnsThere(
        tuple(found["inputs"]),
        tuple(found["words"]),
        tuple(found["others"]),
        labels,
        found["fractional"],
    )


def summary_as_json(summary: Summary) -> bytes:
    """The second answer of a site."""
    return as_json({name: _column_as_dict(column) for name, column in summary.items()})


def _column_as_dict(column: ColumnSummary) -> dict[str, Any]:
    sketch = column.sketch
    return {
        "missing": column.missing,
        "count": column.count,
        "mean": column.mean,
        "squares": column.squares,
        # In the order in which they occur, as where all rows are in one place.
        "counts": None if column.counts is None else list(column.counts.items()),
        "points": None if sketch is None else sketch.points.tolist(),
        "weights": None if sketch is None else sketch.weights.tolist(),
    }


def read_summary(body: bytes, questions: Sequence[Question], target: bool) -> Summary:
    """The second answer of a site, to these questions; of a number to predict besides, if there is one."""
    found = from_json(body)
    asked = {q.name: q for q in questions} | ({"": Question("", "number")} if target else {})
    _wanted(isinstance(found, dict) and found.keys() == asked.keys(), "its columns")
    # In the order of the questions.
    return {name: _read_column(found[name], asked[name]) for name in asked}


def _read_column(found: Any, asked: Question) -> ColumnSummary:
    what = f"its column `{asked.name}`"
    _wanted(isinstance(found, dict) and found.keys() == _COLUMN, what)
    _wanted(is_count(found["missing"]) and is_count(found["count"]), what)
    _wanted(is_number(found["mean"]) and is_number(found["squares"]), what)
    _wanted(found["squares"] >= 0, what)
    counts = None
    if asked.counts:
        pairs = found["counts"]
        _wanted(isinstance(pairs, list) and all(_is_pair(p) for p in pairs), what)
        counts = Counter(dict(map(tuple, pairs)))
        _wanted(sum(counts.values()) == found["count"], what)
    sketch = None
    if asked.sketch:
        points, weights = found["points"], found["weights"]
        _wanted(isinstance(points, list) and all(map(is_number, points)), what)
        _wanted(isinstance(weights, list) and all(is_count(w) and w > 0 for w in weights), what)
        _wanted(len(points) == len(weights) <= POINTS and points == sorted(points), what)
        _wanted(sum(weights) == found["count"], what)
        sketch = QuantileSketch(np.array(points, float), np.array(weights, np.int64))
    return ColumnSummary(
        found["missing"],
        found["count"],
        float(found["mean"]),
        float(found["squares"]),
        counts,
        sketch,
    )


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and is_name(pair[0]) and is_count(pair[1])


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_name, value)) and len(set(value)) == len(value)


def _counts(value: Any) -> bool:
    return isinstance(value, dict) and all(is_name(n) and is_count(c) for n, c in value.items())


def _wanted(holds: bool, what: str) -> None:
    if not holds:
        raise BadMessageError(f"{what} of its table are not as they were asked for")
