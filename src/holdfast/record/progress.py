"""Progress of runs for whoever is looking: bars in a terminal and in a notebook, lines of the command."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast import processes
from holdfast.record import notebook_bar
from holdfast.record.notebook_bar import NotebookBar
from holdfast.record.state import RunState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar


# Seconds that a rate is measured over.
_LEAST = 0.5


class Progress:
    """What one run or many tell while they go on: `begin`, `advance` after every round, `end`.

    Where nobody is looking it has no bars and says nothing. Made by `of_run`, `of_sweep` or
    `of_command`, and shown inside a `with`. One run needs `advance` alone:

        with of_run(algorithm.name, rounds, wanted) as progress:
            progress.advance(state)

    Of several runs at once each says which it is by its `label`, from any thread; without one it is the
    run that began last.

    Args:
        rounds: of every run.
        runs: how many.
        metrics: what is shown of a round, where it was measured.
        rates: whether rounds per second are shown too.
        all_runs: a bar for all of them; may show the `label` of the run and what was `measured`.
        run: bars for the runs at hand, one each.
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
        # Of every run at hand: its last round, and since when rounds are counted from which.
        self._at: dict[str, int] = {}
        self._since: dict[str, tuple[float, int]] = {}
        self._tasks: dict[str, Any] = {}
        self._lock = threading.RLock()

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

    @property
    def is_shown(self) -> bool:
        """Whether there are bars, which move with every round."""
        return self._all is not None

    def begin(self, label: str, measured: str = "compiling") -> None:
        """A run begins; what it does before its first round, in a word."""
        with self._lock:
            self._label, self._at[label] = label, 0
            self._since.pop(label, None)
            _update(self._all, label=label)
            if self._run is not None:
                self._forget(label)
                self._tasks[label] = self._run.add_task(
                    f"{label:24}", total=self._rounds, measured=measured
                )

    def advance(self, state: RunState) -> None:
        """A round of the run that began last is over."""
        if self._all is not None:
            self.hear(self._label, state.round, state.history[-1], state.ledger.total)

    def hear(self, label: str, round: int, record: Mapping[str, Any], total: float) -> None:
        """A round of a run is over: its record, and the bytes of all its rounds."""
        if self._all is None:
            return
        with self._lock:
            measured = self._measured(label, round, record, total)
            if self._run is not None and label in self._tasks:
                self._run.update(self._tasks[label], completed=round, measured=measured)
            self._at[label] = round
            _update(self._all, completed=self._done(), measured=measured, label=label)

    def say(self, line: str, label: str | None = None) -> None:
        """Something about a run that should be known."""
        if self._console is not None:
            about = self._label if label is None else label
            self._console.print(f"{about}: {line}", markup=False, highlight=False, soft_wrap=True)

    def end(self, outcome: str = "", label: str | None = None) -> None:
        """A run is over; in words."""
        with self._lock:
            about = self._label if label is None else label
            self._finished += 1
            self._at.pop(about, None)
            self._forget(about)
            _update(self._all, completed=self._done())
            if self._console is not None:
                line = f"[{self._finished}/{self._runs}] {about:24} {outcome}"
                self._console.print(line, markup=False, highlight=False)

    def _done(self) -> int:
        return self._finished * self._rounds + sum(self._at.values())

    def _forget(self, label: str) -> None:
        if self._run is not None and label in self._tasks:
            self._run.remove_task(self._tasks.pop(label))

    def _measured(self, label: str, round: int, last: Mapping[str, Any], total: float) -> str:
        # The first round is compiled; rates are counted from its end.
        began, first = self._since.setdefault(label, (time.perf_counter(), round))
        parts = []
        seconds = time.perf_counter() - began
        # Of a run elsewhere, several rounds may be heard of at once.
        if self._rates and seconds > _LEAST:
            parts.append(f"{(round - first) / seconds:.1f}/s")
        parts += [f"{n} {last[n]:.3f}" for n in self._metrics if last.get(n) is not None]
        return "  ".join([*parts, f"{total / 1e6:.1f} MB"])


def of_run(name: str, rounds: int, wanted: bool | None = None) -> Progress:
    """A bar for one run; unless wanted or not, where someone is looking."""
    if not _shown(wanted):
        return Progress(rounds)
    bar = _bar(f"{name:12}", rounds, "measured", wanted)
    return Progress(rounds, metrics=("loss", "accuracy", "epsilon"), all_runs=bar, live=bar)


def of_sweep(name: str, runs: int, rounds: int, wanted: bool | None = None) -> Progress:
    """A bar for many runs, with the label of the one at hand; shown where `of_run` is."""
    if not _shown(wanted):
        return Progress(rounds, runs)
    bar = _bar(name, runs * rounds, "label", wanted)
    return Progress(rounds, runs, all_runs=bar, live=bar)


@contextlib.contextmanager
def of_stages(name: str, wanted: bool | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for work in stages, whose runs are not known beforehand: called with a stage, how many of its
    runs are over, and how many they are."""
    if not _shown(wanted):
        yield lambda stage, done, of: None
        return
    bar = _bar(name, 1, "label", wanted)
    with bar:
        yield lambda stage, done, of: _update(bar, label=stage, completed=done, total=max(of, 1))


def of_command(console: "Console", runs: int, rounds: int, *metrics: str) -> Progress:
    """A line for every run; in a terminal, until all are over, bars below: one for each run at hand
    with rate, metrics and bytes, one for all runs with the time left.
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
        metrics,
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
