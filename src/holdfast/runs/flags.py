"""What a table of final figures hides: metrics that turned before the end, and metrics that disagree."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from holdfast.metrics import find
from holdfast.metrics.spread import Spread, best
from holdfast.runs.names import method_name, metric_name
from holdfast.runs.results import MethodResult, Results

# Evaluations whose mean is looked at, so that one lucky round is no peak.
_SMOOTH = 3
# A turn is worth a word if it gave away so much of what had been won, and so many times the noise.
_GIVEN_AWAY, _NOISES = 0.1, 3.0
# Or, of a loss, so much of what it was.
_GROWN = 0.5


@dataclasses.dataclass(frozen=True)
class Flag:
    """Something to know before a figure is believed.

    Args:
        kind: `turn` or `disagree`.
        method: the label of the method.
        metric: what turned, or by what it is worst.
        round: of a turn, the round it was best in; else None.
        text: one line.
    """

    kind: str
    method: str
    metric: str
    round: int | None
    text: str


def flags(results: Results) -> list[Flag]:
    """All there is to flag: first what disagrees, then what turned, in the order of the methods."""
    return [*disagreeing(results), *turning(results)]


def turning(results: Results) -> Iterator[Flag]:
    """Metrics of test rows that were at their best well before the end and have been getting worse since.

    Judged by the mean over runs and three evaluations: what was given away since is at least a tenth of
    what had been won (or half of a loss), and three times the noise between evaluations.
    """
    for method in results.methods:
        # Where an earlier round was kept, results are of that one.
        if any(method.kept_rounds):
            continue
        for metric in _looked_at(results):
            found = _turn(method, metric, results)
            if found is not None:
                yield found


def _looked_at(results: Results) -> list[str]:
    """The study's metric and the loss beside it, where all methods have them."""
    loss = "_".join([*results.metric.split("_")[:-1], "loss"])
    histories = [h for m in results.methods for h in m.histories]

    def measured(name: str) -> bool:
        return all(name in h.columns for h in histories)

    beside = loss if measured(loss) else "loss"
    return [name for name in dict.fromkeys([results.metric, beside]) if measured(name)]


def _turn(method: MethodResult, metric: str, results: Results) -> Flag | None:
    about = find(metric, results.directions)
    measured = _mean_curve(method, metric)
    if about is None or measured is None:
        return None
    rounds, values = measured
    sign = 1.0 if about.greater_is_better else -1.0
    count = len(values) - _SMOOTH + 1
    if count < 4 or not np.isfinite(values).all():
        return None
    smooth = sign * np.convolve(values, np.full(_SMOOTH, 1 / _SMOOTH), "valid")
    top = int(smooth.argmax())
    starts = [start[metric] for start in method.starts if metric in start]
    begun = float(np.mean(starts)) if starts else values[0]
    lost, won = float(smooth[top] - smooth[-1]), float(smooth[top] - sign * begun)
    enough = _GIVEN_AWAY * max(won, 0.0)
    if not about.greater_is_better:
        # A loss that was small counts by its own size.
        enough = min(enough, _GROWN * abs(float(smooth[top])))
    # Successive evaluations differ by twice the variance of one; a trend adds little to it.
    noise = float(np.std(np.diff(values), ddof=1)) / np.sqrt(2 * _SMOOTH)
    late = top > count - 1 - max(1, count // 10)
    if late or lost < max(enough, _NOISES * noise, 1e-9):
        return None
    middle = top + _SMOOTH // 2
    was, now = sign * smooth[top], sign * smooth[-1]
    verb = "peaked" if about.greater_is_better else "was lowest"
    since = "fallen" if about.greater_is_better else "risen"
    name = metric_name(metric)
    text = (
        f"{method_name(method.label)}: {name} {verb} around round {rounds[middle]} ({was:.3g}) and has "
        f"{since} to {now:.3g} since."
    )
    return Flag("turn", method.label, metric, int(rounds[middle]), text)


def _mean_curve(method: MethodResult, metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Rounds that every run measured, and the mean over runs."""
    each = [
        {r["round"]: float(r[metric]) for r in history if r.get(metric) is not None}
        for history in method.histories
    ]
    shared = [r for r in each[0] if all(r in other for other in each)]
    if not shared:
        return None
    return np.array(shared), np.array([np.mean([one[r] for one in each]) for r in shared])


def disagreeing(results: Results) -> Iterator[Flag]:
    """The method that is best by the study's metric and worst by the loss, or the other way round.

    Ends of the comparison do not count; between two methods the better by one must be worse by the other
    by more than the runs differ.
    """
    methods = [m for m in results.methods if not m.is_reference]
    if len(methods) < 2:
        return
    first, *others = _looked_at(results) or [""]
    for other in others:
        one, two = (_best_and_worst(methods, metric, results) for metric in (first, other))
        if one is None or two is None or one[0] != two[1]:
            continue
        it = methods[one[0]]
        values = [it.last(metric).mean or 0.0 for metric in (first, other)]
        direction = find(other, results.directions)
        worst = "highest" if direction and not direction.greater_is_better else "lowest"
        text = (
            f"{method_name(it.label)} ended with the best {metric_name(first)} ({values[0]:.3g}) and the "
            f"{worst} {metric_name(other)} ({values[1]:.3g}) of {len(methods)} methods: the two disagree."
        )
        yield Flag("disagree", it.label, other, None, text)


def _best_and_worst(
    methods: list[MethodResult], metric: str, results: Results
) -> tuple[int, int] | None:
    about = find(metric, results.directions)
    finals = [m.last(metric) for m in methods]
    if about is None or any(f.mean is None or not np.isfinite(f.mean) for f in finals):
        return None
    top, bottom = (
        best(finals, up) for up in (about.greater_is_better, not about.greater_is_better)
    )
    if top is None or bottom is None or not _apart(finals[top], finals[bottom]):
        return None
    return top, bottom


def _apart(one: Spread, other: Spread) -> bool:
    """Whether two figures differ by more than their runs do."""
    assert one.mean is not None
    assert other.mean is not None
    return abs(one.mean - other.mean) > max(one.deviation, other.deviation)
