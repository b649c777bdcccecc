"""Progress of an experiment for whoever is looking: bars in a terminal, lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from holdfast.record.state import RunState


class Display:
    """A bar for the run at hand with rate, metric, bytes and time left, and one for the experiment."""

    def __init__(self, console: Console, runs: int, rounds: int, metric: str) -> None:
        self._console, self._metric, self._runs = console, metric, runs
        self._now = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[measured]}"),
            console=console,
        )
        self._all = Progress(
            TextColumn("[bold]all runs[/]"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("time left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._live = Live(
            Group(self._now, self._all), console=console, refresh_per_second=8, transient=True
        )
        self._task = self._now.add_task("", total=rounds, measured="", visible=False)
        self._total = self._all.add_task("", total=runs * rounds)
        self._rounds = rounds
        self._finished = 0
        self._name = ""
        self._began, self._first = 0.0, 0

    def __enter__(self) -> "Display":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def begin(self, method: str, seed: int, rounds: int) -> None:
        """A method and seed begins."""
        self._name = f"{method}, seed {seed}"
        self._began, self._first = time.perf_counter(), -1
        self._now.reset(
            self._task,
            description=f"{self._name:24}",
            total=rounds,
            completed=0,
            measured="compiling",
            visible=True,
        )

    def advance(self, state: RunState) -> None:
        """A round is over."""
        if self._first < 0:  # the first round is compiled; rates are counted from its end
            self._began, self._first = time.perf_counter(), state.round
        parts = []
        since = state.round - self._first
        if since:
            parts.append(f"{since / (time.perf_counter() - self._began):.1f} rounds/s")
        last = state.history[-1]
        if last.get(self._metric) is not None:
            parts.append(f"{self._metric} {last[self._metric]:.3f}")
        parts.append(f"{state.ledger.total / 1e6:.1f} MB")
        self._now.update(self._task, completed=state.round, measured="  ".join(parts))
        self._all.update(self._total, completed=self._finished * self._rounds + state.round)

    def end(self, outcome: str) -> None:
        """It is over; in words."""
        self._finished += 1
        self._all.update(self._total, completed=self._finished * self._rounds)
        number = f"[{self._finished}/{self._runs}]"
        self._console.print(f"{number} {self._name:24} {outcome}", markup=False, highlight=False)
