"""A bar for the run under way."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from papers.mixed.common import Watch


@contextmanager
def progress_bar(console: Console) -> Iterator[Watch]:
    """Yields the function that moves it."""
    look = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*look, console=console, transient=True) as progress:
        bar = progress.add_task("starting")

        def watch(what: str, now: int, rounds: int) -> None:
            progress.update(bar, description=what, completed=now, total=rounds)

        yield watch
