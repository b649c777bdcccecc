"""What a command says: results to standard output, all else to standard error, mistakes in one line."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import typer
from rich.console import Console

from holdfast.errors import HoldfastError, HoldfastWarning, file_errors_said
from holdfast.jobs.worker import CACHE_RACE

out = Console()
err = Console(stderr=True)
# Of a line that nobody wraps.
_ENDLESS = 10_000


def whole() -> Console:
    """Standard output; into a file or a pipe with lines as long as they are, whatever the terminal."""
    return out if out.is_terminal else Console(file=out.file, width=_ENDLESS, quiet=out.quiet)


def printable(text: str) -> str:
    """Text of somebody's file for a terminal, which takes some letters for commands."""
    return "".join(c if c == "\n" or c.isprintable() else _as_escape(c) for c in text)


def _as_escape(letter: str) -> str:
    return " " if letter == "\t" else letter.encode("unicode_escape").decode("ascii")


def said_in_one_line(command: Callable[..., Any]) -> Callable[..., Any]:
    """What cannot work ends with its message and its exit code, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            with file_errors_said(), _warnings_said():
                return command(*args, **kwargs)
        except HoldfastError as error:
            raise _ended(str(error), error.exit_code, error) from None
        except Exception as error:
            said = _of_own_code(error)
            if said is None:
                raise
            raise _ended(said, HoldfastError.exit_code, error) from None

    return wrapped


@contextmanager
def _warnings_said() -> Iterator[None]:
    """Warnings are said once each; holdfast's own in a line, whatever Python's filters are."""
    said: set[object] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", HoldfastWarning)
        # What another process is just storing is compiled again.
        warnings.filterwarnings("ignore", CACHE_RACE)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            text = str(message)
            if not issubclass(category, HoldfastWarning):
                # Python forgets what it has shown whenever a filter changes: a metric of one's own
                # would be warned of in every round, for every client.
                if (known := (text, category, *where[:2])) not in said:
                    said.add(known)
                    others(message, category, *where, **more)
            elif text not in said:
                said.add(text)
                err.print("[bold yellow]warning[/] ", end="")
                err.print(printable(text), markup=False, highlight=False, soft_wrap=True)

        warnings.showwarning = show
        yield


def _ended(said: str, code: int, error: Exception) -> typer.Exit:
    """Say what is wrong, with the lines of own code it came through; how the command then ends."""
    from holdfast import origin

    err.print("[bold red]error[/] ", end="")
    err.print(printable(said), markup=False, highlight=False, soft_wrap=True)
    for line in origin.excerpt(error):
        err.print(
            f"  {printable(line)}", style="dim", markup=False, highlight=False, soft_wrap=True
        )
    # Nobody has imported it, and JAX with it, where there is one process.
    processes = sys.modules.get("holdfast.processes")
    if processes is not None:
        processes.let_the_first_speak()
    return typer.Exit(code)


def _of_own_code(error: Exception) -> str | None:
    """What code that the file names raised while it ran; None if the error is holdfast's."""
    from holdfast.config import own_code

    if own_code.line_in_own_code(error) is None:
        return None
    return f"own code failed: {own_code.describe(error)}; mend it there."
