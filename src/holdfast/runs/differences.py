"""Methods on the test rows of every client, by the model it would use: scores, and paired differences."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from holdfast.metrics import find
from holdfast.metrics.intervals import (
    LEVEL,
    Interval,
    Variance,
    interval,
    over_rows,
    over_runs,
    over_splits,
    wilson,
)
from holdfast.metrics.metric import Declared
from holdfast.runs.predictions import Predictions
from holdfast.runs.results import MethodResult, Results

# By split and seed.
Key = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Judged:
    """By what methods are judged on test rows.

    Args:
        metric: a metric that every test row has a value of.
        clients_alike: whether each client counts the same, as in `personal_accuracy`, or each row.
        greater_is_better: which way it is better.
        instead_of: the metric of the study, where it has no value per row.
    """

    metric: str
    clients_alike: bool
    greater_is_better: bool
    instead_of: str = ""


def judged_by(results: Results) -> Judged | None:
    """What the study's metric is on test rows; None where no method has predictions.

    `accuracy`, `average_accuracy` and so on are the accuracy of each row; `personal_accuracy` is that
    where each client counts the same. A metric that rows have no value of gives way to accuracy, or
    to the loss.
    """
    known = _measured(results)
    if not known:
        return None
    name = results.metric.removesuffix("_worst_tenth")
    words = name.split("_")
    ends = ["_".join(words[i:]) for i in range(len(words))]
    found = next((end for end in ends if end in known), None)
    alike = "personal" in words
    if found is None:
        found = "accuracy" if "accuracy" in known else "loss" if "loss" in known else known[0]
        alike = False
    better = _better(found, results.directions)
    if better is None:
        return None
    missing = "" if name.endswith(found) else results.metric
    return Judged(found, alike, better, missing)


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

    @property
    def told_apart(self) -> bool:
        """Whether the interval leaves out a difference of nothing."""
        return not self.gain.includes_zero


def difference(
    first: MethodResult,
    second: MethodResult,
    by: Judged,
    tested_per_trained: float | None = None,
    level: float = LEVEL,
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
        level: of the interval.
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
    gains = {
        key: sign * (_values(one, by.metric) - _values(other, by.metric))
        for key, (one, other) in pairs.items()
    }
    about = {key: one for key, (one, _) in pairs.items()}
    found = _estimated(gains, about, by.clients_alike, tested_per_trained, level)
    some = next(iter(about.values()))
    splits = {split for split, _ in gains}
    return Difference(
        first.label,
        second.label,
        by.metric,
        found,
        len(some),
        len(some.clients),
        len(splits),
        len(gains) // len(splits),
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


def _estimated(
    values: dict[Key, np.ndarray],
    about: dict[Key, Predictions],
    clients_alike: bool,
    tested_per_trained: float | None,
    level: float,
) -> Interval:
    """The mean over splits, seeds and rows, and its interval."""
    splits = {split: [k for k in values if k[0] == split] for split, _ in values}
    by_split: dict[int, tuple[float, Variance]] = {}
    means = {}
    for split, keys in splits.items():
        rows = about[keys[0]]
        mean_over_seeds = np.mean([values[k] for k in keys], axis=0)
        by_split[split] = over_rows(mean_over_seeds, rows.client, rows.row, clients_alike)
        for k in keys:
            means[k] = over_rows(values[k], rows.client, rows.row, clients_alike)[0]
    each = [mean for mean, _ in by_split.values()]
    estimate = float(np.mean(each))
    if len(splits) == 1:
        seeds = over_runs([means[k] for k in values])
        return interval(estimate, [next(iter(by_split.values()))[1], seeds], level)
    if tested_per_trained is not None:
        return interval(estimate, [over_splits(each, tested_per_trained)], level)
    # The same test rows in every split: what they have in common does not shrink with more splits.
    rows_part = [variance for _, variance in by_split.values()]
    common = Variance(
        float(np.mean([v.value for v in rows_part])), min(v.freedom for v in rows_part)
    )
    return interval(estimate, [common, over_runs(each)], level)


@dataclasses.dataclass(frozen=True)
class Score:
    """One method on test rows: over all, and of each client by its number with an interval."""

    label: str
    role: str
    value: float
    by_client: dict[int, Interval]


def score(method: MethodResult, by: Judged) -> Score | None:
    """Means over the method's splits and seeds; None of a method without predictions.

    A client's interval is over its test rows: Wilson's where a row is right or wrong.
    """
    found = method.predictions
    if not found or not all(by.metric in p.metrics for p in found.values()):
        return None
    whole, each = [], {}
    for p in found.values():
        of_all, _ = over_rows(_values(p, by.metric), p.client, p.row, by.clients_alike)
        whole.append(of_all)
    for client in sorted({i for p in found.values() for i in p.clients}):
        each[client] = _of_client(list(found.values()), client, by.metric)
    return Score(method.label, method.role, float(np.mean(whole)), each)


def _of_client(found: Sequence[Predictions], client: int, metric: str) -> Interval:
    values = [_values(p, metric)[p.client == client] for p in found]
    values = [v for v in values if len(v)]
    mean = float(np.mean([v.mean() for v in values]))
    least = min(len(v) for v in values)
    if all(((v == 0) | (v == 1)).all() for v in values):
        return wilson(mean, least)
    spread = float(np.mean([v.var(ddof=1) / len(v) for v in values])) if least > 1 else 0.0
    return interval(mean, [Variance(spread, least - 1)])
