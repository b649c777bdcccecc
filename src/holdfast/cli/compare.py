"""`holdfast compare` and `holdfast report`: what came of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import complete
from holdfast.cli.console import out, whole
from holdfast.cli.options import Folders, Metric, Target, Window

if TYPE_CHECKING:
    from holdfast.runs.results import Results


def say_verdict(found: "Results") -> None:
    """Whether it is worth it, in words; nothing where test rows were not predicted."""
    from holdfast.runs.verdict import verdict

    known = verdict(found)
    if known is not None:
        console = whole()
        console.print()
        console.print(known.sentence, style="bold", highlight=False, markup=False)
        for sentence in known.sentences[1:]:
            console.print(sentence, highlight=False, markup=False)


def compare(
    folders: Folders,
    target: Target = None,
    metric: Metric = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The method others are compared with; the first unless given.",
            autocompletion=complete.methods,
        ),
    ] = None,
    window: Window = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the figures as plain numbers into this file.")
    ] = None,
) -> None:
    """Print what it took per method to reach a target, with mean and spread over seeds.

    Rounds, megabytes, models transmitted and seconds to the target, the rise time, and where it ended.

    Examples:

    [bold]holdfast compare runs/digits[/]
    [bold]holdfast compare runs/digits runs/digits-2 --target 0.9 --baseline fedavg[/]
    """
    from holdfast.runs import results
    from holdfast.runs.compare import table, write_csv

    found = results.load(folders, target, metric, window)
    whole().print(table(found, baseline, whole()))
    say_verdict(found)
    if csv is not None:
        written = write_csv(found, csv, baseline)
        out.print(f"figures   {written}", highlight=False, markup=False)


def report(
    folders: Folders,
    output: Annotated[
        Path | None,
        typer.Option("--out", help="The page; report.html in the first folder unless given."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Also write figures fit for a paper, PDF and PNG, into this folder."),
    ] = None,
    target: Target = None,
    metric: Metric = None,
    window: Window = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=NAME", help="What a method or a metric is to be called. Repeatable."
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="LOW:HIGH",
            help="The values on the metric's axis; where lines differ unless given.",
        ),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(help="Of figures, in inches; 3.33, a column of two, unless given."),
    ] = None,
    height: Annotated[float | None, typer.Option(help="Of figures, in inches.")] = None,
) -> None:
    """Make one self-contained HTML page of the results, which works offline.

    Examples:

    [bold]holdfast report runs/digits[/]
    [bold]holdfast report runs/digits runs/digits-2 --out both.html --figures figures[/]
    [bold]holdfast report runs/digits --names "feddyn=Ours" --range 0.9:1 --figures figures --width 6.9[/]
    """
    from holdfast.report.appearance import COLUMN, Appearance, names_of, range_of
    from holdfast.report.page import write
    from holdfast.runs import results

    found = results.load(folders, target, metric, window)
    shown = Appearance(
        names_of(names or [], found),
        None if values is None else range_of(values),
        COLUMN if width is None else width,
        height,
    )
    page = write(found, output or found.folders[0].report_file, shown)
    out.print(f"report    {page}", highlight=False, markup=False)
    if figures is not None:
        from holdfast.report.figures import write as draw

        for path in draw(found, figures, shown):
            out.print(f"figure    {path}", highlight=False, markup=False)
