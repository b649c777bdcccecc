"""Where each method stands: what it took to the target, where it ended, and what it spent."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from holdfast.report.curves import Measured, lower_is_better, number
from holdfast.runs.results import MethodResult, Results, Spread


@dataclasses.dataclass(frozen=True)
class Standing:
    """One method's figures over seeds; those to the target have no values where there is no target."""

    label: str
    state: str  # "", "unfinished" or "diverged"
    seeds: int
    rounds_run: int
    rounds: Spread
    megabytes: Spread
    seconds: Spread
    final: Spread
    megabytes_in_all: Spread
    seconds_in_all: Spread


def standings(results: Results, tables: Sequence[Measured]) -> list[Standing]:
    """In the order of the methods, whose tables are given."""
    return [
        _standing(method, table, results.metric, results.target)
        for method, table in zip(results.methods, tables, strict=True)
    ]


def _standing(method: MethodResult, table: Measured, metric: str, target: float | None) -> Standing:
    seeds = len(method.histories)
    reached = _places_reached(table.column(metric), metric, target, seeds)
    everything = [len(table.rounds) - 1] * seeds
    return Standing(
        label=method.label,
        state="" if method.complete else "diverged" if method.failed else "unfinished",
        seeds=seeds,
        rounds_run=method.rounds,
        rounds=Spread(tuple(None if i is None else int(table.rounds[i]) for i in reached)),
        megabytes=_spent(table, reached, ("bytes_down", "bytes_up"), 1e6),
        seconds=_spent(table, reached, ("seconds",)),
        final=method.last(metric),
        megabytes_in_all=_spent(table, everything, ("bytes_down", "bytes_up"), 1e6),
        seconds_in_all=_spent(table, everything, ("seconds",)),
    )


def _places_reached(
    values: np.ndarray, metric: str, target: float | None, seeds: int
) -> list[int | None]:
    """Where each seed first is at the target; one stopped before its first measurement is nowhere."""
    if target is None:
        return [None] * seeds
    there = values <= target if lower_is_better(metric) else values >= target
    found: list[int | None] = [int(row.argmax()) if row.any() else None for row in there]
    return found if len(found) == seeds else [None] * seeds


def _spent(
    table: Measured, until: Sequence[int | None], names: tuple[str, ...], unit: float = 1.0
) -> Spread:
    costs = np.nan_to_num(np.sum([table.column(name) for name in names], axis=0))
    sums = np.cumsum(np.broadcast_to(costs, (len(until), costs.shape[1])), axis=1) / unit
    return Spread(
        tuple(None if i is None else float(sums[seed, i]) for seed, i in enumerate(until))
    )


def best(spreads: list[Spread], lower: bool) -> int | None:
    """Which has the best mean; None if none has one.

    Example:
        >>> best([Spread((3.0,)), Spread((None,)), Spread((1.0, 2.0))], lower=True)
        2
    """
    means = [None if spread.mean is None else number(spread.mean) for spread in spreads]
    known = [(mean if lower else -mean, i) for i, mean in enumerate(means) if mean is not None]
    return min(known)[1] if known else None


def times_fewer(theirs: Spread, mine: Spread) -> float | None:
    """How many times less than theirs mine is."""
    if theirs.mean is None or not mine.mean:
        return None
    return theirs.mean / mine.mean


def in_figures(
    spread: Spread, otherwise: str = "-", digits: int | None = None, precision: int = 4
) -> str:
    """A mean with its deviation, in as many digits as its size asks for unless they are given.

    Example:
        >>> in_figures(Spread((0.95, 0.96))), in_figures(Spread((2e-7,)))
        ('0.9550 ± 0.0071', '2.00e-07')
        >>> in_figures(Spread((60, None, 64)), "> 100")
        '> 100 (2 of 3)'
    """
    if spread.mean is None:
        some = f" ({len(spread.reached)} of {len(spread.values)})" if spread.reached else ""
        return otherwise + some
    if not math.isfinite(spread.mean):  # a loss that overflowed; its deviation is no number either
        return str(spread.mean)
    form = _form(spread.mean, precision) if digits is None else f".{digits}f"
    text = format(spread.mean, form)
    return f"{text} ± {spread.deviation:{form}}" if len(spread.values) > 1 else text


def _form(size: float, precision: int) -> str:
    if size == 0:
        return f".{precision}f"
    places = math.floor(math.log10(abs(size)))
    if places < -2 or places > 5:
        return ".2e"
    return f".{max(0, precision - max(0, places))}f"
