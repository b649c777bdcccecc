"""What was measured, one row per round."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.record.log import Log

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class History:
    """One row per round: what was evaluated, bytes down and up, clients, left out,
    seconds, and those it took to compile a program.

    Example:
        >>> history = History(({"round": 1, "accuracy": 0.5}, {"round": 2, "accuracy": 0.9}))
        >>> history["accuracy"].tolist(), history.rounds_to(0.8)
        ([0.5, 0.9], 2)
    """

    rows: Sequence[Row] = dataclasses.field(default_factory=Log)

    def __post_init__(self) -> None:
        if not isinstance(self.rows, Log):
            object.__setattr__(self, "rows", Log(self.rows))

    def record(self, row: Row) -> "History":
        """With one more round."""
        return History(cast(Log[Row], self.rows).with_one_more(row))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def columns(self) -> list[str]:
        """Names of everything recorded, in order of appearance."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, which: Any) -> Any:
        """A column by name (NaN where it was not measured), or a row by number."""
        if not isinstance(which, str):
            return self.rows[which]
        if which not in self.columns:
            raise HoldfastError(
                f"history: nothing called `{which}`; {did_you_mean(which, self.columns)}"
            )
        return np.array([row.get(which, np.nan) for row in self.rows])

    def rounds_to(self, target: float, metric: str = "accuracy") -> int | None:
        """The first round whose metric is at least `target` (a loss: at most); None if none is."""
        values = self[metric]
        reached = np.flatnonzero(values <= target if "loss" in metric else values >= target)
        return int(self.rows[reached[0]]["round"]) if len(reached) else None

    def bytes_to(self, target: float, metric: str = "accuracy") -> int | None:
        """Bytes in both directions up to and with that round."""
        return self._until(self.rounds_to(target, metric), ("bytes_down", "bytes_up"))

    def seconds_to(self, target: float, metric: str = "accuracy") -> float | None:
        """Seconds up to and with that round, without compilation and evaluation."""
        return self._until(self.rounds_to(target, metric), ("seconds",))

    def _until(self, last: int | None, names: tuple[str, ...]) -> Any:
        if last is None:
            return None
        return sum(row[name] for row in self.rows if row["round"] <= last for name in names)

    def __repr__(self) -> str:
        names = self.columns
        shown = self.rows if len(self.rows) <= 12 else (*self.rows[:5], {}, *self.rows[-5:])
        cells = [[_cell(row.get(n, "" if row else "...")) for n in names] for row in shown]
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        lines = [names, *cells]
        return "\n".join(
            "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines
        )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
