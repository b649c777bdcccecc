"""`holdfast new`: an experiment file to start from."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from holdfast.cli import complete
from holdfast.cli.console import out
from holdfast.errors import HoldfastError


def new(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("experiment.toml"),
    example: Annotated[
        str,
        typer.Option(
            help="digits, breast_cancer, table, server, personal or sweep.",
            autocompletion=complete.templates,
        ),
    ] = "digits",
) -> None:
    """Write a commented experiment file to start from, which runs as it is.

    Examples:

    [bold]holdfast new[/]
    [bold]holdfast new patients.toml --example table[/]
    """
    from holdfast.config import examples

    text = examples.text(example)
    if path.exists():
        raise HoldfastError(f"{path} exists already; give another name, or delete it first.")
    path.write_text(text, encoding="utf-8")
    shown = escape(str(path))
    out.print(f"wrote {shown}; look through it, then: [bold]holdfast run {shown}[/]")
