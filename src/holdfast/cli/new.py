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
            help="digits, breast_cancer, table, hospitals, server, personal or sweep.",
            autocompletion=complete.templates,
        ),
    ] = "digits",
) -> None:
    """Write a commented experiment file to start from, which runs as it is.

    Examples:

    [bold]holdfast new[/]
    [bold]holdfast new patients.toml --example table[/]
    [bold]holdfast new trial/hospitals.toml --example hospitals[/]
    """
    from holdfast.config import examples

    text = examples.text(example)
    if path.exists():
        raise HoldfastError(f"{path} exists already; give another name, or delete it first.")
    shown = escape(str(path))
    if example == "hospitals":
        from holdfast.data.stand_in import write_sites

        sites = path.parent / "sites"
        if sites.exists():
            raise HoldfastError(
                f"{sites} exists already, and made-up hospitals would go there; give another folder."
            )
        write_sites(sites)
        out.print(f"wrote {escape(str(sites))}: made-up records of four hospitals, a file each")
    path.write_text(text, encoding="utf-8")
    out.print(f"wrote {shown}; look through it, then: [bold]holdfast run {shown}[/]")
