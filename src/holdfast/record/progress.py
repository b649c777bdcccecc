"""Progress of runs for whoever is looking: bars in a terminal and in a notebook, lines of the command."""

import contextlib
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast import processes
from holdfast.record import notebook_bar
from holdfast.record.notebook_bar import NotebookBar
from holdfast.record.state import RunState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar


class Progress:
    """What one run or many tell while they go on: `begin`, `advance` after every round, `end`.

    Where nobody is looking it has no bars and says nothing. Made by `of_run`, `of_sweep` or
    `of_command`, and shown inside a `with`. One run needs `advance` alone:

        with of_run(algorithm.name, rounds, wanted) as progress:
            progress.advance(state)

    Args:
        rounds: of every run.
        runs: how many.
        metrics: what is shown of a round, where it was measured.
        rates: whether rounds per second are shown too.
        all_runs: a bar for all of them; may show the `label` of the run and what was `measured`.
        run: a bar for the run at hand.
        live: what shows the bars.
        console: is told in a line of every run that is over.
    """

    def __init__(
        self,
        rounds: int,
        runs: int = 1,
        metrics: tuple[str, ...] = (),
        *,
        rates: bool = False,
        all_runs: "Bar | NotebookBar | None" = None,
        run: "Bar | None" = None,
        live: contextlib.AbstractContextManager[Any] | None = None,
        console: "Console | None" = None,
    ) -> None:
        self._rounds, self._runs, self._metrics, self._rates = rounds, runs, metrics, rates
        self._all, self._run, self._console = all_runs, run, console
        self._live = live or contextlib.nullcontext()
        self._label = ""
        self._finished = 0
        self._began, self._first = 0.0, -1

    def __enter__(self) -> "Progress":
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def begin(self, label: str) -> None:
        """A run begins."""
        self._label, self._first = label, -1
        _update(self._all, label=label)
        if self._run is not None:
            task = self._run.task_ids[0]
            self._run.reset(task, description=f"{label:24}", visible=True, measured="compiling")

    def advance(self, state: RunState) -> None:
        """A round is over."""
        if self._all is None:
            return
        measured = self._measured(state)
        _update(self._run, completed=state.round, measured=measured)
        done = self._finished * self._rounds + state.round
        _update(self._all, completed=done, measured=measured)

    def say(self, line: str) -> None:
        """Something about the run at hand that should be known."""
        if self._console is not None:
            self._console.print(
                f"{self._label}: {line}", markup=False, highlight=False, soft_wrap=True
            )

    def end(self, outcome: str = "") -> None:
        """A run is over; in words."""
        self._finished += 1
        _update(self._all, completed=self._finished * self._rounds)
        if self._console is not None:
            line = f"[{self._finished}/{self._runs}] {self._label:24} {outcome}"
            self._console.print(line, markup=False, highlight=False)

    def _measured(self, state: RunState) -> str:
        # The first round is compiled; rates are counted from its end.
        if self._first < 0:
            self._began, self._first = time.perf_counter(), state.round
        parts = []
        since = state.round - self._first
        if self._rates and since:
            parts.append(f"{since / (time.perf_counter() - self._began):.1f} rounds/s")
        last = state.history[-1]
        parts += [f"{n} {last[n]:.3f}" for n in self._metrics if last.get(n) is not None]
        return "  ".join([*parts, f"{state.ledger.total / 1e6:.1f} MB"])


def of_run(name: str, rounds: int, wanted: bool | None = None) -> Progress:
    """A bar for one run; unless wanted or not, where someone is looking."""
    if not _shown(wanted):
        return Progress(rounds)
    bar = _bar(f"{name:12}", rounds, "measured", wanted)
    return Progress(rounds, metrics=("loss", "accuracy"), all_runs=bar, live=bar)


def of_sweep(name: str, runs: int, rounds: int, wanted: bool | None = None) -> Progress:
    """A bar for many runs, with the label of the one at hand; shown where `of_run` is."""
    if not _shown(wanted):
        return Progress(rounds, runs)
    bar = _bar(name, runs * rounds, "label", wanted)
    return Progress(rounds, runs, all_runs=bar, live=bar)


def of_command(console: "Console", runs: int, rounds: int, metric: str) -> Progress:
    """A line for every run; in a terminal, until all are over, two bars below: one for the run at
    hand with rate, metric and bytes, one for all runs with the time left.
    """
    if not console.is_terminal:
        return Progress(rounds, runs, console=console)
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    run = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measured]}"),
        console=console,
    )
    run.add_task("", total=rounds, measured="", visible=False)
    all_runs = Bar(
        TextColumn("[bold]all runs[/]"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("time left"),
        TimeRemainingColumn(),
        console=console,
    )
    all_runs.add_task("", total=runs * rounds)
    return Progress(
        rounds,
        runs,
        (metric,),
        rates=True,
        all_runs=all_runs,
        run=run,
        live=Live(Group(run, all_runs), console=console, refresh_per_second=8, transient=True),
        console=console,
    )


def _shown(wanted: bool | None) -> bool:
    looking = sys.stderr.isatty() or notebook_bar.shell() is not None
    return (looking if wanted is None else wanted) and processes.is_first()


def _bar(description: str, total: int, said: str, wanted: bool | None) -> "Bar | NotebookBar":
    """A bar with how many rounds, a field of its task, and the time left: in a notebook an output of the
    cell, else on standard error."""
    if notebook_bar.shell() is not None:
        return NotebookBar(description, total, said, at_once=wanted is True)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{{task.fields[{said}]}}", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    bar.add_task(description, total=total, label="", measured="")
    return bar


def _update(bar: "Bar | NotebookBar | None", **changes: Any) -> None:
    if bar is not None:
        bar.update(bar.task_ids[0], **changes)  # type: ignore[arg-type]
