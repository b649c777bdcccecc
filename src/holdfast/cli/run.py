"""`holdfast run` and `holdfast resume`: an experiment, from its file or from where it stopped."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from holdfast.cli import complete
from holdfast.cli.compare import say_verdict
from holdfast.cli.console import err, out, whole
from holdfast.cli.describe import describe
from holdfast.cli.machine import cache_variables, is_process_of_command, use_if_given
from holdfast.cli.options import Coordinator, Jobs, Processes, Rank, Track, Trusted
from holdfast.errors import FileAccessError, in_plain_words

if TYPE_CHECKING:
    from holdfast.config.build import Study
    from holdfast.config.file import ExperimentFile
    from holdfast.jobs.local import LocalExecutor


def run(
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment file, such as `holdfast new` writes.",
            autocompletion=complete.experiment_files,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of the file by its place in it. Repeatable.",
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where to write; runs/NAME unless given.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check the file, show the split and how many runs it is, and stop."
        ),
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report page at the end.")] = True,
    track: Track = None,
    trust: Trusted = False,
    jobs: Jobs = None,
    processes: Processes = 1,
    coordinator: Coordinator = None,
    rank: Rank = 0,
) -> None:
    """Run an experiment: every algorithm of the file, every point of its \\[sweep], for every seed.

    Everything is checked before the first round. Ctrl-C leaves a checkpoint;
    [bold]holdfast resume DIR[/] goes on with it, to the same bits.

    Examples:

    [bold]holdfast run experiment.toml[/]
    [bold]holdfast run experiment.toml --dry-run[/]
    [bold]holdfast run experiment.toml --set rounds=10 --set seeds=1 --out runs/short[/]
    [bold]holdfast run experiment.toml --set local.learning_rate=0.05[/]
    [bold]holdfast run experiment.toml --set algorithm.feddyn.alpha=0.1[/]
    [bold]holdfast run experiment.toml --jobs 1[/]
    """
    from holdfast.config.file import read
    from holdfast.config.sections import refuse_mistakes

    # What is wrong with the file itself is said before anybody waits for JAX.
    given = read(file, changes or (), trust)
    refuse_mistakes(given)
    _divide(processes, coordinator, rank, jobs)
    jobs = 1 if dry_run or _is_divided(processes, coordinator) else jobs
    with _workers(given, jobs) as executor:
        from holdfast.config import build
        from holdfast.runs.execute import create
        from holdfast.runs.workers import settle

        _tracked(track, file)
        study = build.study(given, pretrained=not dry_run)
        describe(study)
        if dry_run:
            return
        settle(executor, study, jobs)
        _carry_out(study, create(study, folder), report, track or [], executor)


def resume(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A folder of `holdfast run`.",
            autocompletion=complete.run_folders,
        ),
    ],
    report: Annotated[bool, typer.Option(help="Write the report page at the end.")] = True,
    track: Track = None,
    trust: Trusted = False,
    jobs: Jobs = None,
    processes: Processes = 1,
    coordinator: Coordinator = None,
    rank: Rank = 0,
) -> None:
    """Go on with a run that was stopped or killed: it ends in the same bits.

    What is damaged is written again; what is complete is left as it is.

    Example:

    [bold]holdfast resume runs/digits[/]
    """
    _divide(processes, coordinator, rank, jobs)
    from holdfast.runs.folder import RunFolder

    opened = RunFolder.open(folder)
    given = opened.experiment(trusted=trust)
    over = len(list(opened.path.glob("methods/**/complete.sha256")))
    jobs = 1 if _is_divided(processes, coordinator) else jobs
    with _workers(given, jobs, over) as executor:
        from holdfast.config import build
        from holdfast.record.lock import refuse_held
        from holdfast.runs.execute import mend
        from holdfast.runs.workers import settle

        _tracked(track, folder)
        refuse_held(opened.path)
        opened.log("resumed")
        study = build.study(given)
        for name in mend(study, opened):
            err.print(
                f"{name} was missing or damaged; written again.", markup=False, highlight=False
            )
        settle(executor, study, jobs)
        _carry_out(study, opened, report, track or [], executor)


def _workers(file: "ExperimentFile", jobs: int | None, complete: int = 0) -> "LocalExecutor":
    """Start them; a process that is somebody else's starts none unless asked to."""
    from holdfast.runs.workers import begun

    asked = 1 if jobs is None and not is_process_of_command() else jobs
    executor = begun(file, asked, cache_variables(), complete)
    use_if_given()
    return executor


def _is_divided(count: int, coordinator: str | None) -> bool:
    """Whether each run is divided among processes."""
    return count > 1 or coordinator is not None or "HOLDFAST_COORDINATOR" in os.environ


def _divide(count: int, coordinator: str | None, rank: int, jobs: int | None) -> None:
    """Become one of several processes, or start them and be done when they are."""
    if not _is_divided(count, coordinator):
        return
    # JAX is imported here, and not before workers are started where there is one process.
    from holdfast import processes
    from holdfast.runs.workers import refuse_beside_processes

    refuse_beside_processes(jobs, count)
    use_if_given()
    if processes.COORDINATOR in os.environ:
        processes.connect_from_environment()
    elif coordinator is not None:
        processes.connect(coordinator, count, rank)
    else:
        # -P: modules are not looked for in the current folder, which may have a random.py of its own.
        again = [sys.executable, "-P", "-m", "holdfast", *sys.argv[1:]]
        raise typer.Exit(processes.launch(again, count))
    if not processes.is_first():
        out.quiet = True


def _tracked(track: list[str] | None, folder: Path) -> list[str]:
    """Where rounds are sent and how to look at them, a line each; refuses names that do not exist."""
    from holdfast.runs.sinks import where

    return [f"{name:<11} {where(name, folder)}" for name in track or ()]


def _carry_out(
    study: "Study", folder: Any, report: bool, track: list[str], executor: "LocalExecutor"
) -> None:
    from holdfast import processes
    from holdfast.record.progress import of_command
    from holdfast.runs import results
    from holdfast.runs.compare import table
    from holdfast.runs.execute import execute
    from holdfast.runs.sinks import open_sink

    runs = study.runs
    try:
        with ExitStack() as open_sinks:
            if not processes.is_first():
                track = []
            sinks = tuple(open_sink(name, folder.path, open_sinks) for name in track)
            tracked = _tracked(track, folder.path)
            for line in tracked:
                err.print(line, highlight=False, markup=False, soft_wrap=True)
            shown = of_command(err, runs, study.rounds, study.metric)
            progress = open_sinks.enter_context(shown)
            failures = execute(study, folder, progress, sinks, executor)
    except KeyboardInterrupt:
        err.print(f"stopped; go on with: [bold]holdfast resume {escape(str(folder.path))}[/]")
        raise typer.Exit(130) from None
    except (processes.LostProcessError, FileAccessError, OSError) as error:
        said = in_plain_words(error) if isinstance(error, OSError) else str(error)
        err.print("[bold red]error[/] ", end="")
        err.print(said, markup=False, highlight=False, soft_wrap=True)
        again = f"holdfast resume {folder.path}"
        if processes.count() > 1:
            again += f" --processes {processes.count()}"
        err.print(f"go on with: {again}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(getattr(error, "exit_code", FileAccessError.exit_code)) from None
    if not processes.is_first():
        return
    if failures == runs:
        err.print(
            f"no run got through; {folder.path}/log.txt says why.", highlight=False, markup=False
        )
        raise typer.Exit(1)
    found = results.load([folder.path])
    whole().print(table(found, console=whole()))
    out.print(f"results   {folder.path}", highlight=False, markup=False, soft_wrap=True)
    if report:
        from holdfast.report.page import write

        page = write(found, folder.report_file)
        out.print(f"report    {page}", highlight=False, markup=False, soft_wrap=True)
    for line in tracked:
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    say_verdict(found)
    if failures:
        raise typer.Exit(1)
