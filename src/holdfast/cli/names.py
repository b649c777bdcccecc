"""`holdfast list` and `holdfast show`: what experiment files can ask for by name."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.table import Table

from holdfast.cli import complete
from holdfast.cli.console import out
from holdfast.cli.latex import readable, readable_inline
from holdfast.errors import HoldfastError, did_you_mean

if TYPE_CHECKING:
    from holdfast.config.described import Description


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="algorithms, data, partitions, models, ...; everything unless given.",
            autocompletion=complete.kinds,
        ),
    ] = None,
) -> None:
    """Show algorithms, data sets, partitions, models and more, with one line each.

    Examples:

    [bold]holdfast list[/]
    [bold]holdfast list algorithms[/]
    """
    from holdfast.config import described

    titles = described.titles()
    words = {k: k for k in titles} | {f"{k}s": k for k in titles}
    if kind is not None and kind not in words:
        raise HoldfastError(f"unknown kind `{kind}`; {did_you_mean(kind, words)}")
    for one in titles if kind is None else [words[kind]]:
        shown = Table(title=titles[one], title_justify="left", box=None, show_header=False)
        shown.add_column(style="bold", no_wrap=True)
        shown.add_column()
        for name, title in described.names(one).items():
            shown.add_row(name, title)
        out.print(shown)
        out.print()
    out.print("[dim]holdfast show NAME explains one of them.[/]")


def show(
    name: Annotated[
        str,
        typer.Argument(help="Anything `holdfast list` shows.", autocompletion=complete.names),
    ],
) -> None:
    """Explain one name: its equation, what travels, its arguments and its reference.

    Example:

    [bold]holdfast show feddyn[/]
    """
    from rich.markdown import Markdown

    from holdfast.config import described

    for kind in described.kinds_of(name):
        page = described.find(kind, name)
        out.print(f"\n[bold]{name}[/]  [dim]{kind}[/]")
        out.print(page.title, markup=False, highlight=False)
        if page.equation:
            out.print(Padding(readable(page.equation), (1, 4)), markup=False, highlight=False)
        if page.body:
            out.print(Markdown(readable_inline(page.body)))
        _facts(page)
        out.print("\n[dim]in an experiment file[/]")
        out.print(Padding(page.entry, (0, 4)), markup=False, highlight=False)
        if page.swept:
            out.print("[dim]several values of it[/]")
            swept = f'[sweep]\n"algorithm.{name}.{page.swept}" = [0.01, 0.1]'
            out.print(Padding(swept, (0, 4)), markup=False, highlight=False)
        out.print("[dim]in Python[/]")
        out.print(Padding(page.signature, (0, 4)), markup=False, highlight=False)


def _facts(page: "Description") -> None:
    from rich.markdown import Markdown

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for title, text in (
        ("travels", page.travels),
        ("tells", page.tells),
        *((name, text) for name, text in page.arguments.items()),
        ("reduces to", page.reduces_to),
        ("reference", page.reference),
    ):
        if text:
            facts.add_row(title, Markdown(readable_inline(text)))
    out.print()
    out.print(facts)
