"""What was measured, one record per round."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from holdfast import markup, metrics
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics.figures import in_columns
from holdfast.metrics.metric import Declared, directions
from holdfast.record.frame import frame
from holdfast.record.log import Log

if TYPE_CHECKING:
    from pandas import DataFrame

Record = dict[str, Any]
# What every round records, whatever is measured.
BOOKKEEPING = frozenset(
    {
        "round",
        "bytes_down",
        "bytes_up",
        "models",
        "clients",
        "left_out",
        "bounded",
        "unselected",
        "stragglers",
        "refused",
        "stray",
        "outlying",
        "epsilon",
        "mflop",
        "mflop_per_client",
        "seconds",
        "compile_seconds",
    }
)
# Under this name a record has what is more than one number, by names of its own: it is no column.
DETAILS = "details"
# What names in there begin with that are of each site of a deployment.
SITES = "site "
# Beyond it a sum of floats might overflow.
_LARGEST = 1e300


@dataclasses.dataclass(frozen=True)
class History:
    """One record per round: what was evaluated, bytes down and up, models transmitted (both
    directions relative to a FedAvg round of the same cohort), clients, left out, seconds, and those
    it took to compile a program.

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

    def until(self, last: int) -> "History":
        """The same up to and with a round."""
        kept = [record for record in self.records if record["round"] <= last]
        return History(kept, self.directions)

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
        names = dict.fromkeys(name for record in self.records for name in record)
        return [name for name in names if name != DETAILS]

    @property
    def details(self) -> list[Record]:
        """What was measured that is more than one number, such as one for every client or pair of clients:
        of each round in which there is some, its number and nested lists by name.

        Example:
            >>> history = History([{"round": 1, "loss": 0.5, "details": {"cosine": [0.5, 1.0]}}])
            >>> history.columns, history.details
            (['round', 'loss'], [{'round': 1, 'cosine': [0.5, 1.0]}])
        """
        return [{"round": r["round"], **r[DETAILS]} for r in self.records if r.get(DETAILS)]

    def __getitem__(self, which: Any) -> Any:
        """A column by name (NaN where it was not measured), or a record by number."""
        if not isinstance(which, str):
            return self.records[which]
        if which not in self.columns:
            raise HoldfastError(
                f"history: nothing called `{which}`; {did_you_mean(which, self.columns)}"
            )
        return np.array([record.get(which, np.nan) for record in self.records])

    def rolling(self, metric: str, window: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Rounds in which the metric was measured, and its mean over the last `window` evaluations.

        The window counts evaluations, not rounds: measured every 5 rounds, 10 of them span 50
        rounds. The first entry is the round of evaluation number `window`; before it there is none.

        Example:
            >>> history = History([{"round": t, "loss": 1 / t} for t in (2, 4)])
            >>> history.rolling("loss", window=2)
            (array([4]), array([0.375]))
        """
        size = _whole(window)
        rounds, values = self._measured(metric)
        means = [_mean(values[i - size : i]) for i in range(size, len(values) + 1)]
        return np.array(rounds[size - 1 :], int), np.array(means, float)

    def final(self, metric: str = "accuracy", window: int = 1) -> float | None:
        """The mean of the last `window` evaluations, or of all if there are fewer; None without any."""
        _, values = self._measured(metric)
        return _mean(values[-_whole(window) :]) if values else None

    def _measured(self, metric: str) -> tuple[list[int], list[float]]:
        if metric not in self.columns:
            raise HoldfastError(
                f"history: nothing called `{metric}`; {did_you_mean(metric, self.columns)}"
            )
        found = [(r["round"], r[metric]) for r in self.records if r.get(metric) is not None]
        return [int(t) for t, _ in found], [float(value) for _, value in found]

    def rounds_to(
        self,
        target: float,
        metric: str = "accuracy",
        greater_is_better: bool | None = None,
        window: int = 1,
    ) -> int | None:
        """The first round whose metric is at least `target`, or at most; None if none is.

        Args:
            target: the value to reach.
            metric: a column.
            greater_is_better: whether it is reached from below; as declared, or as is known of
                the metric, unless given.
            window: reached is it when the mean of so many evaluations is (see `rolling`), which
                a single lucky one does not decide; 1, the first evaluation there, unless given.

        Example:
            >>> history = History([{"round": t, "error": e} for t, e in enumerate([5, 1, 3, 0], 1)])
            >>> history.rounds_to(2, "error"), history.rounds_to(2, "error", window=2)
            (2, 3)
        """
        rounds, values = self.rolling(metric, window)
        if greater_is_better is None:
            greater_is_better = metrics.greater_is_better(metric, self.directions)
        reached = rounds[values >= target if greater_is_better else values <= target]
        return int(reached[0]) if len(reached) else None

    def bytes_to(
        self,
        target: float,
        metric: str = "accuracy",
        greater_is_better: bool | None = None,
        window: int = 1,
    ) -> int | None:
        """Bytes in both directions up to and with that round."""
        last = self.rounds_to(target, metric, greater_is_better, window)
        return self.spent(("bytes_down", "bytes_up"), last)

    def seconds_to(
        self,
        target: float,
        metric: str = "accuracy",
        greater_is_better: bool | None = None,
        window: int = 1,
    ) -> float | None:
        """Seconds up to and with that round, without compilation and evaluation."""
        last = self.rounds_to(target, metric, greater_is_better, window)
        return self.spent(("seconds",), last)

    def models_to(
        self,
        target: float,
        metric: str = "accuracy",
        greater_is_better: bool | None = None,
        window: int = 1,
    ) -> float | None:
        """Models transmitted up to and with that round: what FedDyn's tables count.

        Traffic of each round relative to a FedAvg round of the same cohort, summed: for FedAvg the
        number of rounds, twice that for a method that sends another vector of the model's size both ways.
        """
        last = self.rounds_to(target, metric, greater_is_better, window)
        return self.spent(("models",), last)

    def rise_time(
        self,
        metric: str = "accuracy",
        share: float = 0.9,
        greater_is_better: bool | None = None,
        window: int = 1,
    ) -> int | None:
        """The first round with `share` of the final value, FSL's rise time; None if there is none.

        Args:
            metric: a column that is better the greater it is, and above 0 in the end.
            share: of the final value; the paper takes 90 %.
            greater_is_better: as in `rounds_to`.
            window: evaluations that are averaged, for the final value too; the paper takes 10.

        Example:
            >>> history = History([{"round": t, "accuracy": 1 - 0.5**t} for t in range(1, 9)])
            >>> history.rise_time(), history.rise_time(window=2)
            (4, 4)
        """
        if not 0 < share <= 1:
            raise HoldfastError(f"rise_time: share={share}; give more than 0 and at most 1.")
        if greater_is_better is None:
            greater_is_better = metrics.greater_is_better(metric, self.directions)
        if not greater_is_better:
            raise HoldfastError(
                f"rise_time: `{metric}` is better low, and a share of where it ends says nothing; give "
                f"a metric such as accuracy, or ask rounds_to for a target."
            )
        final = self.final(metric, window)
        if final is None or not final > 0:
            return None
        # What is 90 % but for the rounding of a product is 90 %.
        return self.rounds_to(share * final * (1 - 1e-12), metric, True, window)

    def spent(self, names: tuple[str, ...], last: int | None) -> Any:
        """The sum of columns up to and with a round; None without a round, or where one lacks them."""
        if last is None:
            return None
        until = [record for record in self.records if record["round"] <= last]
        if any(name not in record for record in until for name in names):
            return None
        return sum(record[name] for record in until for name in names)

    def to_frame(self) -> "DataFrame":
        """A pandas frame, one row per round; NaN where nothing was measured.

        Example:
            >>> history = History([{"round": 1, "loss": 0.5}, {"round": 2, "loss": 0.25}])
            >>> history.to_frame()["loss"].min()
            np.float64(0.25)
        """
        return frame(map(_numbers, self.records), "history.to_frame")

    def __repr__(self) -> str:
        return in_columns([self.columns, *self._cells()])

    def _repr_html_(self) -> str:
        about = f"{len(self)} round{'s' * (len(self) != 1)}"
        return markup.card("History", about, markup.table(self.columns, self._cells(), left=0))

    def _cells(self) -> list[list[str]]:
        """The records in figures; of very many the first and the last."""
        names, records = self.columns, self.records
        shown = records if len(records) <= 12 else (*records[:5], {}, *records[-5:])
        return [[_cell(record.get(n, "" if record else "...")) for n in names] for record in shown]


def with_details(measured: Record) -> Record:
    """What is more than one number under a name of its own, as plain lists: a save and a file have it so."""
    several = {name: value for name, value in measured.items() if _is_several(value)}
    numbers = {name: value for name, value in measured.items() if name not in several}
    if not several:
        return numbers
    return numbers | {DETAILS: {name: np.asarray(v).tolist() for name, v in several.items()}}


def _is_several(value: Any) -> bool:
    return getattr(value, "ndim", 0) > 0


def _numbers(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != DETAILS}


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _whole(window: int) -> int:
    if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
        raise HoldfastError(
            f"history: window={window!r}; give how many evaluations are averaged, a whole number of "
            f"at least 1.",
            about=("window",),
        )
    return int(window)


def _mean(values: list[float]) -> float:
    """Rounded once, so that equal values have exactly their mean; not finite unless all are."""
    known = all(abs(value) < _LARGEST for value in values)
    return (math.fsum if known else sum)(values) / len(values)
