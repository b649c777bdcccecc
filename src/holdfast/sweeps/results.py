"""What a sweep found: every run, and figures over seeds."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import markup
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.errors import HoldfastError, HoldfastWarning, did_you_mean
from holdfast.metrics import Spread, find, greater_is_better
from holdfast.metrics.figures import in_columns, in_figures
from holdfast.metrics.metric import check_target, directions
from holdfast.metrics.spread import best as best_of
from holdfast.record.frame import frame
from holdfast.record.history import BOOKKEEPING, History
from holdfast.record.ledger import Ledger
from holdfast.sweeps.naming import Point, brief, label, short_names
from holdfast.trees import Tree

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclasses.dataclass(frozen=True, eq=False)
class SweptRun:
    """One point with one seed: what `simulate` gives, without what clients remember."""

    point: Point
    seed: int
    algorithm: Algorithm  # with the point's values, to run again with `simulate`
    local: Local | tuple[Local, ...]
    params: Tree  # of the last round; None if the first one failed
    history: History
    ledger: Ledger | None
    failed: str | None = None  # why it ended early: no client returned finite numbers
    best_round: int | None = None  # by early stopping
    kept_round: int | None = (
        None  # that `params` are of, if early stopping kept another than the last
    )

    def __repr__(self) -> str:
        ended = f", failed: {self.failed}" if self.failed else ""
        return f"SweptRun({label(self.point)}, seed {self.seed}, round {len(self.history)}{ended})"

    def _measured(self, metric: str) -> list[float]:
        """The finite values of a metric up to what was kept; none if the run failed, for it has no end to
        compare."""
        kept = self.history if self.kept_round is None else self.history.until(self.kept_round)
        values = [] if self.failed else [record.get(metric) for record in kept]
        return [float(v) for v in values if v is not None and math.isfinite(v)]

    def _until(
        self, target: float | None, metric: str | None, window: int
    ) -> tuple[int | None, float | None]:
        """Rounds and megabytes to the target, or in all."""
        if target is None or metric is None:
            spent = sum(r["bytes_down"] + r["bytes_up"] for r in self.history)
            return len(self.history), spent / 1e6
        known = metric in self.history.columns and not self.failed
        rounds = self.history.rounds_to(target, metric, window=window) if known else None
        if rounds is None:
            return None, None
        spent = self.history.spent(("bytes_down", "bytes_up"), rounds)
        return rounds, spent / 1e6


@dataclasses.dataclass(frozen=True)
class PointResult:
    """One point over its seeds."""

    point: Point
    final: Spread  # the metric when it was last measured
    best: Spread  # the best it ever was; none where nobody knows which way is better
    rounds: Spread  # to the target; without one, those run
    megabytes: Spread  # to the target; without one, in all


@dataclasses.dataclass(frozen=True)
class SweepTable:
    """One row per point: figures as mean and deviation over seeds."""

    rows: tuple[PointResult, ...]
    metric: str | None  # None: nothing was measured
    target: float | None
    window: int = 1  # evaluations whose mean is at the target

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[PointResult]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> PointResult:
        return self.rows[number]

    def records(self) -> list[dict[str, Any]]:
        """Plain numbers, one dictionary per point: `pandas.DataFrame(table.records())`."""
        names = ("final", "best", "rounds", "megabytes")
        return [
            {
                **row.point,
                **{n: getattr(row, n).mean for n in names},
                **{f"{n}_deviation": getattr(row, n).deviation for n in names},
                **{f"{n}_more_than": getattr(row, n).more_than for n in ("rounds", "megabytes")},
            }
            for row in self.rows
        ]

    def to_frame(self) -> "DataFrame":
        """The records as a pandas frame."""
        return frame(self.records(), "table.to_frame")

    def __repr__(self) -> str:
        return in_columns([self._names(), *(self._cells(row) for row in self.rows)])

    def _repr_html_(self) -> str:
        return self._as_html().markup

    def _as_html(self) -> markup.Safe:
        keys = len(self.rows[0].point)
        return markup.table(self._names(), map(self._cells, self.rows), left=keys)

    def _names(self) -> list[str]:
        short = short_names(self.rows[0].point)
        until = "" if self.target is None else f" to {self.target:g}"
        until += "" if self.window == 1 else f" (mean of {self.window})"
        measured = [] if self.metric is None else [f"final {self.metric}", "best"]
        counted = [] if self.target is None else [f"rounds{until}"]
        return [*short.values(), *measured, *counted, f"MB{until}"]

    def _cells(self, row: PointResult) -> list[str]:
        cells = [brief(value) for value in row.point.values()]
        if self.metric is not None:
            none = "diverged" if row.final.mean is None else "-"
            cells += [in_figures(row.final, "diverged"), in_figures(row.best, none)]
        if self.target is not None:
            cells.append(in_figures(row.rounds, digits=0))
        return [*cells, in_figures(row.megabytes, precision=2)]


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """The result of `sweep`; iterating over it gives every run."""

    name: str  # of the method
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    runs: tuple[tuple[SweptRun, ...], ...]  # points x seeds

    def __iter__(self) -> Iterator[SweptRun]:
        return itertools.chain.from_iterable(self.runs)

    def __len__(self) -> int:
        return len(self.points) * len(self.seeds)

    def __repr__(self) -> str:
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)} each"
        points = f"{len(self.points)} point{'s' * (len(self.points) > 1)}"
        return f"Sweep of {self.name}: {points}, {seeds}\n{self.table()}"

    def _repr_html_(self) -> str:
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)} each"
        points = f"{len(self.points)} point{'s' * (len(self.points) > 1)}"
        return markup.card(f"Sweep of {self.name}", f"{points}, {seeds}", self.table()._as_html())

    @property
    def directions(self) -> dict[str, bool]:
        """Whether greater is better, by the name of a metric, where the model declares it."""
        return dict(pair for run in self for pair in directions(run.history.directions))

    def table(
        self, metric: str | None = None, target: float | None = None, window: int = 1
    ) -> SweepTable:
        """One row per point, with mean and deviation over seeds.

        Args:
            metric: what is compared; accuracy unless given, on validation examples where there are some
                (columns that begin with `validation_`), or the first that was measured.
            target: count rounds and megabytes until the metric is there.
            window: it is there when the mean of so many evaluations is; 1, the first evaluation
                there, unless given. `final` and `best` are of single evaluations.
        """
        metric = self._metric(metric)
        if target is not None and metric is None:
            raise HoldfastError(
                "sweep: a target, but nothing was measured; give sweep(evaluate=...)."
            )
        if target is not None and metric is not None and not self._above_one(metric):
            check_target(metric, target, self.directions)
        about = None if metric is None else find(metric, self.directions)
        up = None if about is None else about.greater_is_better
        rows = (_result(runs, metric, up, target, window) for runs in self.runs)
        return SweepTable(tuple(rows), metric, target, window if target is not None else 1)

    def best(
        self, metric: str | None = None, target: float | None = None, window: int = 1
    ) -> Point:
        """The point with the best final metric, or with the fewest rounds to a target.

        A point counts only if every seed got there. Where the metric is of no validation examples, a
        warning says so: what was chosen by test examples looks better on them than it is.
        """
        table = self.table(metric, target, window)
        if table.metric is None:
            raise HoldfastError("sweep: nothing was measured; give sweep(evaluate=...).")
        spreads = [row.final if target is None else row.rounds for row in table]
        up = target is None and greater_is_better(table.metric, self.directions)
        winner = best_of(spreads, greater_is_better=up)
        if winner is None:
            goal = "its last round" if target is None else f"{table.metric} {target:g}"
            raise HoldfastError(
                f"sweep: no point reached {goal} with every seed; give a nearer target, more rounds "
                f"or other values."
            )
        if not table.metric.startswith("validation"):
            warnings.warn(
                f"sweep: chosen by `{table.metric}`; if that is of test examples, they say too much of the "
                f"point chosen. Set examples apart by hf.data.set_apart, measure hf.evaluate.on(apart, "
                f'name="validation"), and it is chosen by those.',
                HoldfastWarning,
                stacklevel=2,
            )
        return dict(self.points[winner])

    def _above_one(self, metric: str) -> bool:
        """Somebody's own accuracy may be in percent; then it is above 1 somewhere."""
        return any(record.get(metric, 0) > 1 for run in self for record in run.history)

    def _metric(self, asked: str | None) -> str | None:
        columns = dict.fromkeys(name for run in self for name in run.history.columns)
        known = [name for name in columns if name not in BOOKKEEPING]
        if asked is None:
            # What is set apart for choosing is chosen by.
            apart = [name for name in known if name.startswith("validation")]
            usual = ("validation_accuracy",) if apart else ("accuracy",)
            return next((n for n in usual if n in known), next(iter(apart or known), None))
        if asked not in known:
            raise HoldfastError(
                f"sweep: nothing called `{asked}` was measured; {did_you_mean(asked, known)}"
            )
        return asked


def _result(
    runs: Sequence[SweptRun],
    metric: str | None,
    greater_is_better: bool | None,
    target: float | None,
    window: int,
) -> PointResult:
    measured = [run._measured(metric) if metric else [] for run in runs]
    top = max if greater_is_better else min
    directed = greater_is_better is not None
    until = [run._until(target, metric, window) for run in runs]
    # What a run spent in all is a lower bound for one that did not get there.
    in_all = [run._until(None, None, 1) for run in runs]
    return PointResult(
        dict(runs[0].point),
        final=Spread(tuple(values[-1] if values else None for values in measured)),
        best=Spread(tuple(top(values) if values and directed else None for values in measured)),
        rounds=Spread(tuple(n for n, _ in until), tuple(float(n or 0) for n, _ in in_all)),
        megabytes=Spread(tuple(mb for _, mb in until), tuple(mb or 0.0 for _, mb in in_all)),
    )
