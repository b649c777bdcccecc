"""Histories of several seeds made into one curve: a mean and how far seeds scatter about it."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from holdfast.record.history import BOOKKEEPING, History
from holdfast.runs.results import MethodResult

MOST_POINTS = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """A method's histories as tables of seeds by rounds, NaN where nothing finite was measured.

    Round 0 is the model before the first round, where a run has measured it.
    """

    rounds: np.ndarray
    columns: dict[str, np.ndarray]

    def column(self, name: str) -> np.ndarray:
        """One table; all NaN if nothing of the name was measured."""
        return self.columns.get(name, np.full((1, len(self.rounds)), np.nan))


def measured(method: MethodResult) -> Measured:
    """Every column of every seed, read once: histories may be long."""
    starts = method.starts or ({},) * len(method.histories)
    by_seed = [_columns(h, start) for h, start in zip(method.histories, starts, strict=True)]
    rounds = np.unique(np.concatenate([columns["round"] for columns in by_seed])).astype(int)
    tables = {}
    for name in dict.fromkeys(name for columns in by_seed for name in columns):
        table = np.full((len(by_seed), len(rounds)), np.nan)
        for seed, columns in enumerate(by_seed):
            if name in columns:
                table[seed, np.searchsorted(rounds, columns["round"])] = columns[name]
        tables[name] = table
    return Measured(rounds, tables)


def _columns(history: History, start: dict[str, float]) -> dict[str, np.ndarray]:
    found = {}
    free = {"bytes_down": 0.0, "bytes_up": 0.0, "seconds": 0.0}
    before = [{"round": 0, **free, **start}] if start else []
    for name in history.columns:
        try:
            values = np.array([r.get(name) for r in (*before, *history)], dtype=float)
        except (TypeError, ValueError):  # somebody's own evaluator noted words or lists
            continue
        found[name] = np.where(np.isfinite(values), values, np.nan)
    return found


def metrics(tables: Sequence[Measured], first: str) -> list[str]:
    """Everything measured, the metric compared first and bookkeeping left out."""
    names = (name for table in tables for name in table.columns if name not in BOOKKEEPING)
    found = dict.fromkeys((first, *names))
    return [n for n in found if any(np.isfinite(table.column(n)).any() for table in tables)]


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """A metric over the rounds in which it was measured; one entry per such round.

    Mean and deviation are over the seeds that measured it there: where some were interrupted, over
    those that got so far. Megabytes and seconds are spent up to and with the round, the mean of the same
    seeds' costs summed, so that they never fall when a seed drops out.
    """

    rounds: np.ndarray
    megabytes: np.ndarray
    seconds: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    seeds: np.ndarray

    def __len__(self) -> int:
        return len(self.rounds)

    def thinned(self, most: int = MOST_POINTS) -> "Curve":
        """Evenly chosen points, the first and the last among them."""
        if len(self) <= most:
            return self
        keep = np.unique(np.linspace(0, len(self) - 1, most).round().astype(int))
        parts = {f.name: getattr(self, f.name)[keep] for f in dataclasses.fields(self)}
        return Curve(**parts)


def curve(table: Measured, metric: str) -> Curve | None:
    """Mean and deviation over seeds; None if the method never measured it."""
    values = table.column(metric)
    known = ~np.isnan(values)
    here = known.any(axis=0)
    if not here.any():
        return None
    seeds = known.sum(axis=0)[here]
    mean = np.where(known, values, 0).sum(axis=0)[here] / seeds
    off = np.where(known[:, here], values[:, here] - mean, 0)
    deviation = np.sqrt((off**2).sum(axis=0) / np.maximum(seeds - 1, 1))
    return Curve(
        rounds=table.rounds[here],
        megabytes=_spent(table, ("bytes_down", "bytes_up"))[here] / 1e6,
        seconds=_spent(table, ("seconds",))[here],
        mean=mean,
        # With one less than the number of seeds, as in the table; 0 for a single seed, and where
        # seeds differ by the rounding of their mean alone.
        deviation=np.where(deviation > 1e-12 * np.abs(mean), deviation, 0.0),
        seeds=seeds,
    )


def where_lines_differ(
    several: Sequence[Curve], lines: Sequence[float] = (), along: str = "rounds"
) -> tuple[float, float] | None:
    """The range of values from the first fifth on; None where that is nearly everything.

    In the rise before it lines are all over the place, and it would flatten what follows.

    Args:
        several: the curves.
        lines: further values that are to be seen.
        along: the axis: rounds, megabytes or seconds.
    """
    last = max((float(getattr(c, along)[-1]) for c in several), default=0.0)
    late = [getattr(c, along) >= 0.2 * last for c in several]
    ends = [np.concatenate([c.mean - c.deviation, c.mean + c.deviation]) for c in several]
    seen = [e[np.tile(keep, 2)] for e, keep in zip(ends, late, strict=True)]
    if not seen:
        return None
    values, everything = np.concatenate([*seen, np.asarray(lines, float)]), np.concatenate(ends)
    low, high = float(values.min()), float(values.max())
    if high - low > 0.75 * float(np.ptp(everything)):
        return None
    room = 0.06 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def _spent(table: Measured, names: tuple[str, ...]) -> np.ndarray:
    costs = np.sum([table.column(name) for name in names], axis=0)
    known = ~np.isnan(costs)
    return np.cumsum(np.where(known, costs, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
