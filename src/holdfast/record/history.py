"""What was measured, one record per round."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from holdfast import metrics
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics.figures import in_columns
from holdfast.metrics.metric import Declared, directions
from holdfast.record.log import Log

Record = dict[str, Any]
# What every round records, whatever is measured.
BOOKKEEPING = frozenset(
    {"round", "bytes_down", "bytes_up", "clients", "left_out", "seconds", "compile_seconds"}
)


@dataclasses.dataclass(frozen=True)
class History:
    """One record per round: what was evaluated, bytes down and up, clients, left out,
    seconds, and those it took to compile a program.

    Args:
        records: names and values of each round.
        directions: whether greater is better, by the name of a metric; for names that
            `hf.metrics` does not know.

    Example:
        >>> history = History(({"round": 1, "accuracy": 0.5}, {"round": 2, "accuracy": 0.9}))
        >>> history["accuracy"].tolist(), history.rounds_to(0.8)
        ([0.5, 0.9], 2)
    """

    records: Sequence[Record] = dataclasses.field(default_factory=Log)
    directions: Declared = ()

    def __post_init__(self) -> None:
        if not isinstance(self.records, Log):
            object.__setattr__(self, "records", Log(self.records))
        object.__setattr__(self, "directions", directions(self.directions))

    def record(self, one_more: Record) -> "History":
        """With one more round."""
        log = cast(Log[Record], self.records)
        return History(log.with_one_more(one_more), self.directions)

    @property
    def rows(self) -> Sequence[Record]:
        """The records, by their former name."""
        return self.records

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def columns(self) -> list[str]:
        """Names of everything recorded, in order of appearance."""
        return list(dict.fromkeys(name for record in self.records for name in record))

    def __getitem__(self, which: Any) -> Any:
        """A column by name (NaN where it was not measured), or a record by number."""
        if not isinstance(which, str):
            return self.records[which]
        if which not in self.columns:
            raise HoldfastError(
                f"history: nothing called `{which}`; {did_you_mean(which, self.columns)}"
            )
        return np.array([record.get(which, np.nan) for record in self.records])

    def rounds_to(
        self, target: float, metric: str = "accuracy", greater_is_better: bool | None = None
    ) -> int | None:
        """The first round whose metric is at least `target`, or at most; None if none is.

        Args:
            target: the value to reach.
            metric: a column.
            greater_is_better: whether it is reached from below; as declared, or as is known of
                the metric, unless given.

        Example:
            >>> history = History(({"round": 1, "error": 0.5}, {"round": 2, "error": 0.1}))
            >>> history.rounds_to(0.2, "error")
            2
        """
        values = self[metric]
        if greater_is_better is None:
            greater_is_better = metrics.greater_is_better(metric, self.directions)
        reached = np.flatnonzero(values >= target if greater_is_better else values <= target)
        return int(self.records[reached[0]]["round"]) if len(reached) else None

    def bytes_to(
        self, target: float, metric: str = "accuracy", greater_is_better: bool | None = None
    ) -> int | None:
        """Bytes in both directions up to and with that round."""
        last = self.rounds_to(target, metric, greater_is_better)
        return self._until(last, ("bytes_down", "bytes_up"))

    def seconds_to(
        self, target: float, metric: str = "accuracy", greater_is_better: bool | None = None
    ) -> float | None:
        """Seconds up to and with that round, without compilation and evaluation."""
        return self._until(self.rounds_to(target, metric, greater_is_better), ("seconds",))

    def _until(self, last: int | None, names: tuple[str, ...]) -> Any:
        if last is None:
            return None
        return sum(
            record[name] for record in self.records if record["round"] <= last for name in names
        )

    def __repr__(self) -> str:
        names = self.columns
        records = self.records
        shown = records if len(records) <= 12 else (*records[:5], {}, *records[-5:])
        cells = [[_cell(record.get(n, "" if record else "...")) for n in names] for record in shown]
        return in_columns([names, *cells])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
