"""`holdfast papers`: the studies that put what the papers report beside what is measured here."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import checkout, complete
from holdfast.cli.console import err, out, said_in_one_line, whole
from holdfast.errors import HoldfastError, did_you_mean

if TYPE_CHECKING:
    from papers.running import Results
    from papers.study import Cell, Study, Values

app = typer.Typer(
    rich_markup_mode="rich",
    help="The papers, reproduced: their tables and figures beside what is measured here. The studies are in "
    "the folder [bold]papers[/] of holdfast's repository.",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Which, such as feddyn/table2; `holdfast papers` lists them.",
        autocompletion=complete.studies,
    ),
]


def list_studies() -> None:
    """Show all studies: what they need, how long they take, and how much of them was run.

    Examples:

    [bold]holdfast papers[/]
    [bold]holdfast papers run feddyn/table2[/]
    """
    from rich.table import Table

    studies = checkout.module("studies")
    running, about = checkout.module("running"), checkout.module("study")
    shown = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("study", "hours", "cells", "needs", "what"):
        shown.add_column(column, no_wrap=column == "study")
    for name in studies.NAMES:
        study: Study = studies.study(name)
        cells = study.cells(about.Asked())
        left = running.Results(study.results).missing(cells)
        there = f"{len(cells) - len(left)} of {len(cells)}"
        hours = f"{study.hours():.1f}"
        shown.add_row(name, hours, there, ", ".join(study.needs) or "nothing", study.title)
    whole().print(shown)
    out.print(
        "[dim]holdfast papers run STUDY runs what is missing of one. Hours are those of one quiet core for "
        "all cells; --quick takes seconds.[/]"
    )


def run(
    name: Name,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="In small, on data that everybody has, to see that it runs. Results are left alone.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="The folder with the real data sets; unless given HOLDFAST_DATA, else ../shared/data "
            "beside the repository, else the cache.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            envvar="HOLDFAST_JOBS",
            show_default=False,
            help="So many cells at once; as many as cores unless given.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells and what is missing, and stop.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Cells with this in their name alone; may have * and ?."
        ),
    ] = None,
) -> None:
    """Run what is missing of a study, and write its results, table and figure.

    A cell is one setting, method and draw, and is kept as it ends. Stopped by Ctrl-C or killed, the
    same command goes on where it was, also inside a cell. A cell whose settings have changed is run again.

    Examples:

    [bold]holdfast papers run feddyn/table2[/]
    [bold]holdfast papers run feddyn/table2 --quick[/]
    [bold]holdfast papers run feddyn/table2 --only "dirichlet03-*-0" --jobs 1[/]
    """
    studies = checkout.module("studies")
    if name not in studies.NAMES:
        raise HoldfastError(f"papers: unknown study `{name}`; {did_you_mean(name, studies.NAMES)}")
    # Before JAX is imported: it reads how many devices it has then.
    at_once = _at_once(jobs)
    study: Study = studies.study(name)
    running = checkout.module("running")
    asked = checkout.module("study").Asked(quick, _data(data))
    cells = running.chosen(study.cells(asked), only)
    if not cells:
        known = ", ".join(cell.name for cell in study.cells(asked)[:3])
        raise HoldfastError(
            f"papers: no cell of {name} has `{only}` in its name; they are called {known}, ..."
        )
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside)
        results = running.Results(folder / "results.json" if quick else study.results)
        left = results.missing(cells)
        if dry_run:
            _say_cells(cells, left)
            return
        saves = folder / "saves" if quick else checkout.find() / "build" / "papers" / name
        hours = sum(cell.minutes for cell in left) / 60
        said = "in small" if quick else f"about {hours:.1f} hours of one quiet core"
        err.print(f"{name}: {len(left)} of {len(cells)} cells are missing, {said}", highlight=False)
        try:
            running.run(study, asked, results, saves, at_once, _ended(left), only)
        except KeyboardInterrupt:
            err.print("stopped; the same command goes on where it was.", highlight=False)
            raise typer.Exit(130) from None
        _write(study, results, quick)


def page(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail where a page is out of date.")
    ] = False,
) -> None:
    """Write the dossier, docs/papers.md, and what papers/*/README.md quote, from the results there are.

    Examples:

    [bold]holdfast papers page[/]
    [bold]holdfast papers page --check[/]
    """
    pages = checkout.module("page")
    stale = [str(path.relative_to(checkout.find())) for path in pages.stale()]
    if check and stale:
        raise HoldfastError(
            f"papers: not what the results give: {', '.join(stale)}; run `holdfast papers page`."
        )
    if not check:
        pages.write()
    for path in stale:
        out.print(f"written  {path}", highlight=False, markup=False, soft_wrap=True)
    if not stale:
        out.print("every page is what the results give", highlight=False)


def _data(given: Path | None) -> Path:
    """Where real data sets are; what is missing there the loader says, with where to get it."""
    from holdfast.data.cache import VARIABLE, cache_folder

    if given is not None and not given.is_dir():
        raise HoldfastError(
            f"papers: --data {given} is no folder; give the one with the data sets."
        )
    beside: Path = checkout.module("study").DATA
    if given is None and VARIABLE not in os.environ and beside.is_dir():
        return beside
    return given or cache_folder()


def _at_once(jobs: int | None) -> int:
    """How many cells; in several processes each has one device, and this one too."""
    from holdfast.cli import machine
    from holdfast.jobs.machine import cores, one_device, room_for_processes

    own = machine.is_process_of_command()
    chosen = jobs or (min(cores(), room_for_processes()) if own else 1)
    if own:
        os.environ.update(machine.cache_variables())
        if chosen > 1:
            os.environ.update(one_device())
    machine.use_if_given()
    return chosen


def _ended(left: "list[Cell]") -> "Callable[[Cell, Values, float], None]":
    """Says each cell as it ends, and about how long the others take, by how long those before took."""
    planned = {cell.name: cell.minutes for cell in left}
    over: dict[str, float] = {}

    def said(cell: "Cell", values: "Values", seconds: float) -> None:
        over[cell.name] = seconds / 60
        pace = sum(over.values()) / max(1e-9, sum(planned[name] for name in over))
        more = pace * sum(minutes for name, minutes in planned.items() if name not in over)
        then = f", about {more:.0f} min of work left" if more >= 1 else ""
        line = f"{len(over)}/{len(left)}  {cell.name}  {seconds:.0f} s{then}"
        err.print(line, highlight=False, markup=False, soft_wrap=True)

    return said


def _say_cells(cells: "list[Cell]", left: "list[Cell]") -> None:
    for cell in cells:
        there = f"about {cell.minutes:g} min" if cell in left else "there"
        out.print(f"{cell.name}  {there}", highlight=False, markup=False, soft_wrap=True)


def _write(study: "Study", results: "Results", quick: bool) -> None:
    picture = checkout.module("running").write(study, results)
    out.print(study.table(results.found), highlight=False, markup=False, soft_wrap=True)
    if quick:
        return
    for path in (results.path, results.path.with_suffix(".md"), picture):
        if path is not None:
            out.print(f"written  {path}", highlight=False, markup=False, soft_wrap=True)
    out.print("then     holdfast papers page", highlight=False)


_COMMANDS: dict[str, Callable[..., None]] = {"run": run, "page": page}
for _name, _function in _COMMANDS.items():
    app.command(_name)(said_in_one_line(_function))


@app.callback(invoke_without_command=True, help=list_studies.__doc__)
def _listing(asked: typer.Context) -> None:
    if asked.invoked_subcommand is None:
        said_in_one_line(list_studies)()
