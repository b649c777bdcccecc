"""What came of trying every first layer: a table, what drift alone suggested, and how far that is off."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import markup
from holdfast.metrics import Spread
from holdfast.metrics.figures import in_columns, in_figures
from holdfast.metrics.intervals import Interval, interval, over_runs
from holdfast.metrics.spread import best as best_of
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.frame import frame

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure


@dataclasses.dataclass(frozen=True)
class Row:
    """FedPVR whose mask begins at one layer, over all seeds."""

    layer: str | None  # None: no layer is masked, FedAvg
    share: float  # of the parameters that are masked
    bytes_per_round: float | None  # down and up, of all clients together; None if all seeds failed
    final: Spread  # the metric in the last round
    rounds: Spread | None  # to the target


@dataclasses.dataclass(frozen=True, eq=False)
class FirstLayer:
    """The answer of `hf.diagnose.first_layer`.

    Args:
        rows: one for every first layer, in the order of the model; the last is FedAvg.
        seeds: of the runs.
        suggested: for every seed, what `fedpvr(mask="auto")` would choose.
        metric: by what layers are compared.
        greater_is_better: which way it is better.
        target: that rounds are counted to; None without.
    """

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    suggested: tuple[ChosenMask, ...]
    metric: str
    greater_is_better: bool
    target: float | None = None

    @property
    def diversity(self) -> dict[str, float]:
        """Drift diversity of every layer in a first round of FedAvg, its mean over seeds."""
        each = np.mean([chosen.diversity for chosen in self.suggested], axis=0)
        return dict(zip(self.suggested[0].layers, map(float, each), strict=True))

    @property
    def best(self) -> int | None:
        """The number of the row with the best final metric; None if all of them failed."""
        return best_of([row.final for row in self.rows], self.greater_is_better)

    @property
    def behind(self) -> Interval | None:
        """By how much the suggestion ends behind the best row, seed by seed: positive is worse.

        With 95 % confidence over seeds; one seed gives an interval without an end. The best row was chosen
        by these same runs, which flatters it a little. None if one of the two failed.
        """
        each = self._behind()
        if each is None:
            return None
        parts = [over_runs(each)] if len(each) > 1 else []
        mean = float(np.mean(each))
        # One run says nothing of how much another would differ.
        return interval(mean, parts) if parts else Interval(mean, -np.inf, np.inf)

    def _behind(self) -> list[float] | None:
        if self.best is None:
            return None
        best = self.rows[self.best].final.values
        own = [self.rows[chosen.first].final.values[i] for i, chosen in enumerate(self.suggested)]
        sign = 1.0 if self.greater_is_better else -1.0
        pairs = [(b, o) for b, o in zip(best, own, strict=True) if b is not None and o is not None]
        return [sign * (b - o) for b, o in pairs] if len(pairs) == len(best) else None

    @property
    def tied(self) -> bool | None:
        """Whether the suggestion cannot be told from the best row; None if one of the two failed."""
        if self.best is not None and all(chosen.first == self.best for chosen in self.suggested):
            return True
        return None if self.behind is None else self.behind.includes_zero

    @property
    def verdict(self) -> str:
        """The suggestion, the best, and how far they are apart, in a sentence."""
        names = [_called(self.rows[chosen.first]) for chosen in self.suggested]
        each = {name: names.count(name) for name in names}
        if len(each) == 1:
            said = next(iter(each))
        else:
            said = ", ".join(f"{name} ({n} of {len(names)} seeds)" for name, n in each.items())
        if self.best is None:
            return f"Drift suggests {said}; not one run came to an end."
        winner = _called(self.rows[self.best])
        if set(each) == {winner}:
            return f"Drift suggests {said}, which is the best of the sweep."
        if self.behind is None:
            return f"Drift suggests {said}, with which not every seed came to an end; best is {winner}."
        mean = f"{abs(self.behind.estimate):.4f}"
        side = "behind" if self.behind.estimate >= 0 else "ahead of"
        if len(self.seeds) == 1:
            return (
                f"Drift suggests {said}, {mean} {side} {winner} in {self.metric}: of one seed, which says "
                f"nothing of chance."
            )
        tie = ", a tie" if self.tied else ""
        return f"Drift suggests {said}, {mean} {side} {winner} in {self.metric}{tie}."

    def records(self) -> list[dict[str, Any]]:
        """Plain numbers, one dictionary per row."""
        diversity = self.diversity
        return [
            {
                "layer": row.layer,
                "share": row.share,
                "bytes_per_round": row.bytes_per_round,
                self.metric: row.final.mean,
                f"{self.metric}_deviation": row.final.deviation,
                **({} if row.rounds is None else {"rounds": row.rounds.mean}),
                "drift_diversity": None if row.layer is None else diversity[row.layer],
                "suggested": self._votes(number),
            }
            for number, row in enumerate(self.rows)
        ]

    def _votes(self, number: int) -> int:
        return sum(chosen.first == number for chosen in self.suggested)

    def to_frame(self) -> "DataFrame":
        """The records as a pandas frame."""
        return frame(self.records(), "first_layer.to_frame")

    def plot(self) -> "Figure":
        """A plotly figure: the metric by where variance reduction begins, above the layers' diversity."""
        # The page is above this, and draws for it only when somebody looks.
        from holdfast.report.plots import plot_first_layer

        return plot_first_layer(self)

    def __repr__(self) -> str:
        lines = [self._names(), *map(self._cells, range(len(self.rows)))]
        return f"{self.verdict}\n{in_columns(lines)}"

    def _repr_html_(self) -> str:
        rows = map(self._cells, range(len(self.rows)))
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)} each"
        title = "Where variance reduction begins"
        return markup.card(
            title, seeds, markup.table(self._names(), rows), markup.line(self.verdict)
        )

    def _names(self) -> list[str]:
        until = [] if self.target is None else [f"rounds to {self.target:g}"]
        return ["begins at", "masked", "KB a round", f"final {self.metric}", *until, "drift", ""]

    def _cells(self, number: int) -> list[str]:
        row = self.rows[number]
        travelled = row.bytes_per_round
        cells = [
            _called(row),
            f"{row.share:.1%}",
            "-" if travelled is None else f"{travelled / 1e3:,.1f}",
            in_figures(row.final, "diverged"),
        ]
        if row.rounds is not None:
            cells.append(in_figures(row.rounds, digits=0))
        cells.append("" if row.layer is None else f"{self.diversity[row.layer]:.3g}")
        votes = self._votes(number)
        marks = ["best"] * (number == self.best)
        if votes:
            marks.append(
                "suggested"
                if votes == len(self.seeds)
                else f"suggested by {votes} of {len(self.seeds)}"
            )
        return [*cells, ", ".join(marks)]


def _called(row: Row) -> str:
    if row.layer is None:
        return "none (FedAvg)"
    return f"{row.layer} (SCAFFOLD)" if row.share == 1 else row.layer
