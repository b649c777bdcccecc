"""Methods on the test rows of every client, by the model it would use: scores, and paired differences."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.metrics import Metric, find, named
from holdfast.metrics.by_name import OF_SETS
from holdfast.metrics.intervals import (
    MANY,
    Interval,
    Variance,
    interval,
    over_rows,
    over_runs,
    over_splits,
    resampled,
    wilson,
)
from holdfast.metrics.metric import Declared
from holdfast.metrics.sets import SetFunction
from holdfast.runs.predictions import Predictions
from holdfast.runs.results import MethodResult, Results

# Two methods' predictions of the same rows, with the same seed.
Pair = tuple[Predictions, Predictions]


class Gained(NamedTuple):
    """By how much one method is better than another in one split."""

    mean: float
    by_rows: Variance
    by_seed: list[float]


@dataclasses.dataclass(frozen=True)
class Judged:
    """By what methods are judged on test rows.

    Args:
        metric: a metric that every test row has a value of.
        clients_alike: whether each client counts the same, as in `personal_accuracy`, or each row.
        greater_is_better: which way it is better.
        instead_of: the metric of the study, where it is none of test rows.
        of: of a metric of a whole set, such as AUC, the function of labels and predictions; None of one
            that each row has a value of.
    """

    metric: str
    clients_alike: bool
    greater_is_better: bool
    instead_of: str = ""
    of: SetFunction | None = None


def judged_by(results: Results) -> Judged | None:
    """What the study's metric is on test rows; None where no method has predictions.

    `accuracy`, `average_accuracy` and so on are the accuracy of each row; `personal_accuracy` is that
    where each client counts the same. A metric that rows have no value of gives way to accuracy, or
    to the loss. AUC and the like are of all rows at once, or the mean over clients.
    """
    known = _measured(results)
    if not known:
        return None
    name = results.metric.removesuffix("_worst_tenth")
    words = name.split("_")
    ends = ["_".join(words[i:]) for i in range(len(words))]
    alike = "personal" in words
    of_set = _of_set(results, ends)
    found = next((end for end in ends if end in known), None)
    if of_set is not None and (found is None or len(of_set.name) > len(found)):
        return Judged(of_set.name, alike, of_set.greater_is_better, of=of_set.of)
    missing = "" if found is not None else results.metric
    if found is None:
        found = "accuracy" if "accuracy" in known else "loss" if "loss" in known else known[0]
        alike = False
    better = _better(found, results.directions)
    return None if better is None else Judged(found, alike, better, missing)


def _of_set(results: Results, ends: Sequence[str]) -> Metric | None:
    """The longest of these names that is a metric of a whole set, where all rows have predictions."""
    each = [p for m in results.methods for p in m.predictions.values()]
    if not all(p.output is not None and p.label is not None for p in each):
        return None
    for end in ends:
        if end in OF_SETS or re.fullmatch(r"top_[1-9]\d*_accuracy", end):
            return named(end)
    return None


def _measured(results: Results) -> list[str]:
    """What every row of every method has a value of."""
    each = [p.metrics for m in results.methods for p in m.predictions.values()]
    return [name for name in each[0] if all(name in other for other in each)] if each else []


def _better(metric: str, declared: Declared) -> bool | None:
    about = find(metric, declared)
    return None if about is None else about.greater_is_better


@dataclasses.dataclass(frozen=True)
class Difference:
    """One method against another on the same test rows.

    Args:
        first: a method.
        second: the one it is compared with.
        metric: by what.
        gain: by how much the first is better: positive is better, whichever way the metric goes.
        rows: test rows of clients it is over, in one split.
        clients: how many clients.
        splits: how many splits of the data.
        seeds: how many seeds of each.
    """

    first: str
    second: str
    metric: str
    gain: Interval
    rows: int
    clients: int
    splits: int
    seeds: int
    variances: tuple[Variance, ...] = ()

    def at_level(self, level: float) -> Interval:
        """The gain with an interval of another level."""
        return interval(self.gain.estimate, self.variances, level)

    @property
    def told_apart(self) -> bool:
        """Whether the interval leaves out a difference of nothing."""
        return not self.gain.includes_zero


def difference(
    first: MethodResult,
    second: MethodResult,
    by: Judged,
    tested_per_trained: float | None = None,
    client: int | None = None,
) -> Difference | None:
    """By how much one method is better than another, row by row, with an interval.

    Over one split the interval is over test rows (`holdfast.metrics.intervals.over_rows`) and seeds. Over
    several splits with test rows of their own it is over splits, corrected for their overlap. Over
    several that share their test rows it is over rows, and splits count as seeds do.

    Args:
        first: a method.
        second: what it is compared with.
        by: the metric.
        tested_per_trained: test rows per training row, where splits have test rows of their own.
        client: on this client's rows alone; of everybody unless given.
    """
    both = [key for key in first.predictions if key in second.predictions]
    pairs = {key: (first.predictions[key], second.predictions[key]) for key in both}
    pairs = {key: pair for key, pair in pairs.items() if same_rows(*pair)}
    if client is not None:
        pairs = {k: (of_client(a, client), of_client(b, client)) for k, (a, b) in pairs.items()}
        pairs = {k: pair for k, pair in pairs.items() if len(pair[0])}
    if not pairs:
        return None
    sign = 1.0 if by.greater_is_better else -1.0
    splits: dict[int, list[Pair]] = {}
    for (split, _), pair in pairs.items():
        splits.setdefault(split, []).append(pair)
    gained = _gained_by_row if by.of is None else _gained_by_set
    found = [gained(own, by) for own in splits.values()]
    if any(gain is None for gain in found):
        return None
    estimate, variances = _together([g for g in found if g is not None], tested_per_trained)
    some = next(iter(pairs.values()))[0]
    return Difference(
        first.label,
        second.label,
        by.metric,
        interval(sign * estimate, variances),
        len(some),
        len(some.clients),
        len(splits),
        len(pairs) // len(splits),
        tuple(variances),
    )


def same_rows(one: Predictions, other: Predictions) -> bool:
    """Whether two methods were asked about the same test rows of the same clients."""
    return (
        len(one) == len(other)
        and bool((one.client == other.client).all())
        and bool((one.row == other.row).all())
        and (one.label is None or other.label is None or bool((one.label == other.label).all()))
    )


def of_client(predictions: Predictions, client: int) -> Predictions:
    """One client's rows."""
    mine = predictions.client == client
    return Predictions(
        predictions.client[mine],
        predictions.row[mine],
        None if predictions.label is None else predictions.label[mine],
        None if predictions.output is None else predictions.output[mine],
        {name: values[mine] for name, values in predictions.metrics.items()},
        predictions.about,
    )


def _values(predictions: Predictions, metric: str) -> np.ndarray:
    return predictions.metrics[metric].astype(np.float64)


def _gained_by_row(pairs: Sequence[Pair], by: Judged) -> Gained:
    """One split: each row's difference, its mean over seeds first."""
    values = [_values(one, by.metric) - _values(other, by.metric) for one, other in pairs]
    rows = pairs[0][0]
    mean, by_rows = over_rows(np.mean(values, axis=0), rows.client, rows.row, by.clients_alike)
    each = [over_rows(v, rows.client, rows.row, by.clients_alike)[0] for v in values]
    return Gained(mean, by_rows, each)


def _gained_by_set(pairs: Sequence[Pair], by: Judged) -> Gained | None:
    """One split, of a metric of whole sets: the variance over rows is the bootstrap's."""
    rows = pairs[0][0]

    def gain(places: np.ndarray) -> float:
        return float(np.mean([_set_gain(pair, by, places) for pair in pairs]))

    everything = np.arange(len(rows))
    each = [_set_gain(pair, by, everything) for pair in pairs]
    if not np.isfinite(each).all():
        return None
    if by.clients_alike and len(rows.clients) >= MANY:
        own = [gain(np.flatnonzero(rows.client == i)) for i in rows.clients]
        known = np.array(own)[np.isfinite(own)]
        mean, by_rows = over_rows(known, np.arange(len(known)), np.arange(len(known)))
        return Gained(mean, by_rows, each)
    return Gained(float(np.mean(each)), resampled(gain, rows.client), each)


def _set_gain(pair: Pair, by: Judged, places: np.ndarray) -> float:
    one, other = (_of_whole(p, by, places) for p in pair)
    return math.nan if one is None or other is None else one - other


def _of_whole(p: Predictions, by: Judged, places: np.ndarray) -> float | None:
    """A metric of a set on some rows: of all at once, or the mean over clients that have a value."""
    assert by.of is not None
    assert p.label is not None
    assert p.output is not None
    if not by.clients_alike:
        return by.of(p.label[places], p.output[places])
    mine = p.client[places]
    each = [by.of(p.label[own], p.output[own]) for own in (places[mine == i] for i in p.clients)]
    known = [value for value in each if value is not None]
    return float(np.mean(known)) if known else None


def _together(
    splits: Sequence[Gained], tested_per_trained: float | None
) -> tuple[float, list[Variance]]:
    """The mean over splits, seeds and rows, and what its variance is made of."""
    each = [gained.mean for gained in splits]
    estimate = float(np.mean(each))
    if len(splits) == 1:
        return estimate, [splits[0].by_rows, over_runs(splits[0].by_seed)]
    if tested_per_trained is not None:
        return estimate, [over_splits(each, tested_per_trained)]
    # The same test rows in every split: what they have in common does not shrink with more splits.
    parts = [gained.by_rows for gained in splits]
    common = Variance(float(np.mean([v.value for v in parts])), min(v.freedom for v in parts))
    return estimate, [common, over_runs(each)]


@dataclasses.dataclass(frozen=True)
class Score:
    """One method on test rows: over all, and of each client by its number with an interval."""

    label: str
    role: str
    value: float
    by_client: dict[int, Interval]


def value(method: MethodResult, by: Judged) -> float | None:
    """A method's figure over all test rows, a mean over its splits and seeds; None without predictions."""
    found = list(method.predictions.values())
    if by.of is not None:
        each = [_of_whole(p, by, np.arange(len(p))) for p in found]
    elif all(by.metric in p.metrics for p in found):
        each = [
            over_rows(_values(p, by.metric), p.client, p.row, by.clients_alike)[0] for p in found
        ]
    else:
        return None
    known = [one for one in each if one is not None]
    return float(np.mean(known)) if known else None


def score(method: MethodResult, by: Judged) -> Score | None:
    """The same with every client's own; None of a method without predictions.

    A client's interval is over its test rows: Wilson's where a row is right or wrong, the bootstrap's
    for a metric of a whole set. That of a whole set has no ends (NaN) with 20 clients or more.
    """
    whole = value(method, by)
    if whole is None:
        return None
    found = list(method.predictions.values())
    clients = sorted({i for p in found for i in p.clients})
    few = len(clients) < MANY
    each = {i: _of_client(found, i, by, few) for i in clients}
    own = {i: one for i, one in each.items() if one is not None}
    return Score(method.label, method.role, whole, own)


def _of_client(found: Sequence[Predictions], client: int, by: Judged, few: bool) -> Interval | None:
    if by.of is not None:
        mine = [of_client(p, client) for p in found]
        known = [v for p in mine if (v := _of_whole(p, by, np.arange(len(p)))) is not None]
        if not known:
            return None
        if not few:
            return Interval(float(np.mean(known)), math.nan, math.nan)

        def again(places: np.ndarray) -> float:
            drawn = _of_whole(mine[0], by, places)
            return math.nan if drawn is None else drawn

        part = resampled(again, mine[0].client, draws=100)
        return interval(float(np.mean(known)), [part])
    metric = by.metric
    values = [_values(p, metric)[p.client == client] for p in found]
    values = [v for v in values if len(v)]
    mean = float(np.mean([v.mean() for v in values]))
    least = min(len(v) for v in values)
    if all(((v == 0) | (v == 1)).all() for v in values):
        return wilson(mean, least)
    spread = float(np.mean([v.var(ddof=1) / len(v) for v in values])) if least > 1 else 0.0
    return interval(mean, [Variance(spread, least - 1)])
