"""The command `holdfast`: from an experiment file to a report, without writing Python.

A file for each group of commands. They are all imported for `holdfast --help`, so what takes long to
import (JAX, and whatever needs it) is imported in the functions that use it.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from holdfast.cli import deploy, machine, papers
from holdfast.cli.advise import advise
from holdfast.cli.compare import compare, report
from holdfast.cli.console import out, said_in_one_line
from holdfast.cli.machine import use_machine
from holdfast.cli.names import list_names, show
from holdfast.cli.new import new
from holdfast.cli.predict import export, predict
from holdfast.cli.run import resume, run
from holdfast.cli.watch import watch

__all__ = ["app", "main", "use_machine"]

# In the order of `holdfast --help`.
COMMANDS: dict[str, Callable[..., None]] = {
    "new": new,
    "advise": advise,
    "run": run,
    "resume": resume,
    "list": list_names,
    "show": show,
    "compare": compare,
    "report": report,
    "watch": watch,
    "predict": predict,
    "export": export,
}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Federated learning for data that disagrees.

[bold]holdfast new[/] writes an experiment file to start from, [bold]holdfast run[/] runs it,
[bold]holdfast report[/] makes a page of the results.""",
    epilog="Everything it can do from Python too: import holdfast as hf.",
)
for name, function in COMMANDS.items():
    app.command(name)(said_in_one_line(function))
app.add_typer(deploy.app, name="deploy")
app.add_typer(papers.app, name="papers")


def _print_version(wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        out.print(f"holdfast {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _before(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """What comes before the command's name."""


def main() -> None:
    """The entry point of the command, in a process of its own."""
    machine.give_process()
    try:
        sys.exit(app(prog_name="holdfast"))
    except SystemExit as ended:
        machine.leave(ended.code)
        raise
