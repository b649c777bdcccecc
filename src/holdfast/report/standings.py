"""Where each method stands: what it took to the target, where it ended, and what it spent."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from holdfast.metrics import Spread, greater_is_better
from holdfast.report.curves import Measured
from holdfast.runs.results import MethodResult, Results


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
    reached = _places_reached(method, table, metric, target)
    everything = [len(table.rounds) - 1] * seeds
    return Standing(
        label=method.label,
        state=method.state,
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
    method: MethodResult, table: Measured, metric: str, target: float | None
) -> list[int | None]:
    """Where each seed first is at the target; one stopped before its first measurement is nowhere."""
    nowhere: list[int | None] = [None] * len(method.histories)
    if target is None:
        return nowhere
    values = table.column(metric)
    up = greater_is_better(metric, method.directions)
    there = values >= target if up else values <= target
    found: list[int | None] = [int(row.argmax()) if row.any() else None for row in there]
    return found if len(found) == len(nowhere) else nowhere


def _spent(
    table: Measured, until: Sequence[int | None], names: tuple[str, ...], unit: float = 1.0
) -> Spread:
    costs = np.nan_to_num(np.sum([table.column(name) for name in names], axis=0))
    sums = np.cumsum(np.broadcast_to(costs, (len(until), costs.shape[1])), axis=1) / unit
    return Spread(
        tuple(None if i is None else float(sums[seed, i]) for seed, i in enumerate(until))
    )
