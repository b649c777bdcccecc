"""`holdfast advise`: which method the data of an experiment file needs."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import complete
from holdfast.cli.console import err, out, whole
from holdfast.cli.options import Jobs, Trusted


def advise(
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment file; it need not name a method.",
            autocompletion=complete.experiment_files,
        ),
    ],
    budget: Annotated[
        str, typer.Option(help='How long finding out may take, such as "2 minutes" or "1 h".')
    ] = "2 minutes",
    goal: Annotated[
        str | None,
        typer.Option(
            help="quality, worst_tenth, rounds, megabytes or seconds; rounds where the file has a target, "
            "else quality."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of a real run; those of the file unless given.")
    ] = None,
    megabytes: Annotated[
        float | None, typer.Option(help="That a real run may send, both ways and over all clients.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods that may be advised besides FedAvg, such as fedprox,fedavgm; all that fit unless "
            "given."
        ),
    ] = None,
    race: Annotated[
        bool, typer.Option("--race/--no-race", help="Run methods; without, advice by facts alone.")
    ] = True,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where to write; advice/NAME unless given. Goes on with what is there."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the file. Repeatable."),
    ] = None,
    trust: Trusted = False,
    jobs: Jobs = None,
) -> None:
    """Find out which method the data needs, and whether federating is worth it.

    Measures the data, lets methods race on examples held out of every client's own, and says
    what is best, how sure that is, and why. Writes a page and an experiment file ready to run.
    Test data is never looked at. Stopped, it goes on where it was with the same command.

    Examples:

    [bold]holdfast advise experiment.toml[/]
    [bold]holdfast advise experiment.toml --budget "10 minutes" --goal worst_tenth[/]
    [bold]holdfast advise experiment.toml --rounds 50 --megabytes 20[/]
    [bold]holdfast advise experiment.toml --no-race[/]
    """
    from holdfast.cli.machine import use_if_given
    from holdfast.config.file import read
    from holdfast.config.sections import refuse_mistakes

    given = read(file, changes or (), trust)
    use_if_given()
    from holdfast.adviser.budget import Budget
    from holdfast.adviser.from_file import advise_file, advised_file, without_methods
    from holdfast.adviser.page import write

    refuse_mistakes(without_methods(given))
    spent = Budget.of(budget)
    place = folder or Path("advice") / file.stem
    try:
        found = advise_file(
            given,
            Budget(spent.seconds, rounds, megabytes),
            goal,
            None if methods is None else [name.strip() for name in methods.split(",")],
            race,
            place / "race" / "-".join(str(v or "file") for v in (goal, rounds, megabytes)),
            jobs,
        )
    except KeyboardInterrupt:
        err.print("stopped; the same command goes on with what was found.", highlight=False)
        raise typer.Exit(130) from None
    text = advised_file(given, found)
    ready = place / "experiment.toml"
    ready.write_text(text, encoding="utf-8")
    page = write(found, place / "advice.html", text)
    _say(found)
    out.print(f"experiment  {ready}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"page        {page}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"then        holdfast run {ready}", highlight=False, markup=False, soft_wrap=True)


def _say(found: object) -> None:
    from rich.table import Table
    from rich.text import Text

    from holdfast.adviser.advice import Advice

    assert isinstance(found, Advice)
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in found.facts.lines():
        facts.add_row(name, value)
    whole().print(facts)
    rows = found.table()
    if rows:
        table = Table(box=None, padding=(0, 2, 0, 0))
        shown = [name for name in rows[0] if name != "hyper-parameters"]
        for name in shown:
            table.add_column(name)
        for row in rows:
            table.add_row(*(row[name] for name in shown))
        out.print()
        whole().print(table)
    out.print()
    answer = found.summary()
    out.print(answer[0], style="bold", highlight=False, markup=False)
    for line in (*answer[1:], *found.tried):
        if line:
            listed = Table.grid(padding=(0, 1, 0, 0))
            listed.add_row("-", Text(line))
            whole().print(listed)
