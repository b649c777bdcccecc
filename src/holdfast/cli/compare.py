"""`holdfast compare` and `holdfast report`: what came of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from holdfast.cli import complete
from holdfast.cli.console import out, whole
from holdfast.cli.options import Folders, Metric, Target, Window
from holdfast.errors import file_errors_said

if TYPE_CHECKING:
    from holdfast.runs.results import Results


_PRINT = Path("-")


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
        Path | None, typer.Option(help="Also write the figures as plain numbers; - prints them.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(
            help="Also write figures, differences and verdict as JSON; - prints it alone."
        ),
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Also write the table for LaTeX's booktabs; - prints it.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the table as Markdown; - prints it.")
    ] = None,
) -> None:
    """Print what it took per method to reach a target, with mean and spread over seeds.

    Rounds, megabytes, models transmitted and seconds to the target, the rise time, and where it ended.

    Examples:

    [bold]holdfast compare runs/digits[/]
    [bold]holdfast compare runs/digits runs/digits-2 --target 0.9 --baseline fedavg[/]
    [bold]holdfast compare runs/digits --latex table.tex --json - [/]
    """
    from holdfast.runs import export, results
    from holdfast.runs.compare import table

    found = results.load(folders, target, metric, window)
    texts = (
        (csv, export.to_csv),
        (json, export.to_json),
        (latex, export.to_latex),
        (markdown, export.to_markdown),
    )
    printed = [write(found, baseline) for path, write in texts if path == _PRINT]
    if printed:
        typer.echo("\n".join(printed), nl=False)
    else:
        whole().print(table(found, baseline, whole()))
        _say_differences(found, baseline)
        say_verdict(found)
    written = []
    for path, write in texts:
        if path is not None and path != _PRINT:
            with file_errors_said(path=path):
                path.write_text(write(found, baseline), encoding="utf-8", newline="")
            written.append(path)
    for path in written if not printed else ():
        out.print(f"figures   {path}", highlight=False, markup=False, soft_wrap=True)


def _say_differences(found: "Results", baseline: str | None) -> None:
    """Every method against one, on the same test rows; a word on how many comparisons that are."""
    from holdfast.runs.differences import judged_by
    from holdfast.runs.export import against
    from holdfast.runs.names import metric_name
    from holdfast.runs.verdict import ends, signed

    by, differences = judged_by(found), against(found, baseline)
    if by is None or not differences:
        return
    shown = Table(box=box.SIMPLE_HEAD)
    shown.add_column("method", min_width=12, overflow="fold")
    for name in (f"against {differences[0].second}", "95 % interval"):
        shown.add_column(Text(name), justify="right", no_wrap=True)
    shown.add_column("")
    for one in differences:
        raw = one.gain if by.greater_is_better else -one.gain
        apart = "" if one.told_apart else "cannot be told apart"
        shown.add_row(Text(one.first), signed(raw.estimate), ends(raw), apart)
    console = whole()
    where = f"{metric_name(by.metric)} on every client's own test rows, by the model it would use"
    console.print(Text(f"{where[:1].upper()}{where[1:]}", style="italic"))
    console.print(shown)
    if len(differences) > 1:
        console.print(
            Text(
                f"{len(differences)} comparisons, each with an interval that misses in 5 cases of 100: the "
                f"more there are, the likelier one is a chance.",
                style="dim italic",
            )
        )


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
    out.print(f"report    {page}", highlight=False, markup=False, soft_wrap=True)
    if figures is not None:
        from holdfast.report.figures import write as draw

        for path in draw(found, figures, shown):
            out.print(f"figure    {path}", highlight=False, markup=False, soft_wrap=True)
