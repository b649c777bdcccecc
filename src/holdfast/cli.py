"""The command `holdfast`: from an experiment file to a report, without writing Python."""

import math
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.errors import FileAccessError, HoldfastError, file_errors_said, in_plain_words

if TYPE_CHECKING:
    from holdfast.config.build import Study

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Federated learning for data that disagrees.

[bold]holdfast new[/] writes an experiment file to start from, [bold]holdfast run[/] runs it,
[bold]holdfast report[/] makes a page of the results.""",
    epilog="Everything it can do from Python too: import holdfast as hf.",
)
out = Console()
err = Console(stderr=True)

Folders = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders that `holdfast run` made.")
]
Target = Annotated[
    float | None,
    typer.Option(help="Compare by when this value is reached; the file's own unless given."),
]
Metric = Annotated[
    str | None, typer.Option(help="What is compared, such as accuracy or train_loss.")
]
Window = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The target is reached when the mean of so many evaluations is; the file's own unless "
        "given, which is 1, the first evaluation there, unless it says otherwise.",
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        min=1,
        help="Divide the run among so many processes: of this machine, or with --coordinator of many.",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where the process with rank 0 is reached. Start the same command on every machine, "
        "each with its own --rank, in a folder that all of them share.",
    ),
]
Rank = Annotated[int, typer.Option(min=0, help="Which of the processes this is, from 0.")]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", help="Send every round to tensorboard, mlflow or wandb. Repeatable."),
]
Trusted = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run code that the file names even if it lies outside the current folder or belongs to "
        "another user. Read it first.",
    ),
]


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
            with file_errors_said():
                return command(*args, **kwargs)
        except HoldfastError as error:
            raise _ended(str(error), error.exit_code) from None
        except Exception as error:
            said = _of_own_code(error)
            if said is None:
                raise
            raise _ended(said, HoldfastError.exit_code) from None

    return wrapped


def _ended(said: str, code: int) -> typer.Exit:
    """Say what is wrong; how the command then ends."""
    from holdfast import processes

    err.print("[bold red]error[/] ", end="")
    err.print(printable(said), markup=False, highlight=False, soft_wrap=True)
    processes.let_the_first_speak()
    return typer.Exit(code)


def _of_own_code(error: Exception) -> str | None:
    """What code that the file names raised while it ran; None if the error is holdfast's."""
    from holdfast.config import own_code

    if own_code.line_in_own_code(error) is None:
        return None
    return f"own code failed: {own_code.describe(error)}; mend it there."


@app.command()
@said_in_one_line
def new(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("experiment.toml"),
    example: Annotated[
        str, typer.Option(help="digits, breast_cancer, table, server, personal or sweep.")
    ] = "digits",
) -> None:
    """Write a commented experiment file to start from.

    It runs as it is: [bold]holdfast new && holdfast run experiment.toml[/]
    """
    from holdfast.config import examples

    text = examples.text(example)
    if path.exists():
        raise HoldfastError(f"{path} exists already; give another name, or delete it first.")
    path.write_text(text, encoding="utf-8")
    shown = escape(str(path))
    out.print(f"wrote {shown}; look through it, then: [bold]holdfast run {shown}[/]")


@app.command()
@said_in_one_line
def run(
    file: Annotated[
        Path, typer.Argument(help="An experiment file, such as `holdfast new` writes.")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value: --set local.learning_rate=0.05, --set algorithm.feddyn.alpha=0.1.",
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
    processes: Processes = 1,
    coordinator: Coordinator = None,
    rank: Rank = 0,
) -> None:
    """Run an experiment: every algorithm of the file, every point of its \\[sweep], for every seed.

    Everything is checked before the first round. Ctrl-C leaves a checkpoint;
    [bold]holdfast resume DIR[/] goes on with it, to the same bits.
    """
    _divide(processes, coordinator, rank)
    from holdfast.config import build
    from holdfast.config.file import read
    from holdfast.runs.execute import create

    study = build.study(read(file, changes or (), trust), pretrained=not dry_run)
    _describe(study)
    if dry_run:
        return
    _carry_out(study, create(study, folder), report, track or [])


@app.command()
@said_in_one_line
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of `holdfast run`.")],
    report: Annotated[bool, typer.Option(help="Write the report page at the end.")] = True,
    track: Track = None,
    trust: Trusted = False,
    processes: Processes = 1,
    coordinator: Coordinator = None,
    rank: Rank = 0,
) -> None:
    """Go on with a run that was stopped or killed: it ends in the same bits."""
    _divide(processes, coordinator, rank)
    from holdfast.config import build
    from holdfast.config.file import read
    from holdfast.record.lock import refuse_held
    from holdfast.runs.execute import mend
    from holdfast.runs.folder import RunFolder

    opened = RunFolder.open(folder)
    refuse_held(opened.path)
    opened.log("resumed")
    study = build.study(read(opened.experiment_file, trusted=trust))
    for name in mend(study, opened):
        err.print(f"{name} was missing or damaged; written again.", markup=False, highlight=False)
    _carry_out(study, opened, report, track or [])


def _divide(count: int, coordinator: str | None, rank: int) -> None:
    """Become one of several processes, or start them and be done when they are."""
    from holdfast import processes

    if processes.COORDINATOR in os.environ:
        processes.connect_from_environment()
    elif coordinator is not None:
        processes.connect(coordinator, count, rank)
    elif count > 1:
        again = [sys.executable, "-m", "holdfast.cli", *sys.argv[1:]]
        raise typer.Exit(processes.launch(again, count))
    else:
        return
    if not processes.is_first():
        out.quiet = True


def _carry_out(study: "Study", folder: Any, report: bool, track: list[str]) -> None:
    from holdfast import processes
    from holdfast.record.progress import of_command
    from holdfast.runs import results
    from holdfast.runs.compare import table
    from holdfast.runs.execute import execute
    from holdfast.runs.sinks import open_sink

    runs = len(study.methods) * len(study.seeds)
    try:
        with ExitStack() as open_sinks:
            if not processes.is_first():
                track = []
            sinks = tuple(open_sink(name, folder.path, open_sinks) for name in track)
            shown = of_command(err, runs, study.rounds, study.metric)
            progress = open_sinks.enter_context(shown)
            failures = execute(study, folder, progress, sinks)
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
    out.print(table(found, console=out))
    out.print(f"results   {folder.path}", highlight=False, markup=False)
    if report:
        from holdfast.report.page import write

        page = write(found, folder.report_file)
        out.print(f"report    {page}", highlight=False, markup=False)
    if failures:
        raise typer.Exit(1)


def _describe(study: "Study") -> None:
    """What is about to run, in a few lines."""
    import jax

    from holdfast.data import split
    from holdfast.runs.compare import different_objectives

    shapes = jax.eval_shape(study.model.init, jax.random.key(0), study.clients.examples)
    size = sum(int(leaf.size) for leaf in jax.tree.leaves(shapes))
    lines = Table.grid(padding=(0, 2))

    def add(title: str, text: str) -> None:
        lines.add_row(title, Text(printable(text)))  # names of the file, never markup

    add("data", f"{study.data_name}, {study.clients}")
    add("model", f"{study.model.name}, {size:,} parameters")
    names = ", ".join(dict.fromkeys(m.of for m in study.methods))
    seeds = f"{len(study.seeds)} seed{'s' * (len(study.seeds) > 1)}"
    add("methods", f"{names}; {study.rounds} rounds, {seeds} each")
    for steps in dict.fromkeys(m.adapt for m in study.methods if m.adapt):
        who = ", ".join(m.label for m in study.methods if m.adapt == steps)
        add("adapt", f"{who}: clients' own models after {steps} on their data")
    swept = [m for m in study.methods if m.swept.values]
    if swept:
        for of in dict.fromkeys(m.of for m in swept):
            points = [m.swept.values for m in swept if m.of == of]
            count = f"{len(points)} point{'s' * (len(points) > 1)}"
            add("sweep", f"{of}: {count}, {_ranges(points)}")
        runs = len(study.methods) * len(study.seeds)
        add("runs", f"{len(study.methods)} methods x {seeds} = {runs} runs")
    out.print(lines)
    several = different_objectives(study.objectives)
    if several is not None:
        err.print(f"[bold yellow]warning[/] {escape(several)}", highlight=False, soft_wrap=True)
    if study.has_labels:
        out.print(split.sketch(study.clients, first=8), markup=False, highlight=False)


def _ranges(points: list[dict[str, Any]]) -> str:
    """What is tried of each key, such as `alpha 0.01, 0.1 x learning_rate 0.05, 0.1`."""
    from holdfast.sweeps.naming import brief, label

    tried = {key: list(dict.fromkeys(brief(p[key]) for p in points)) for key in points[0]}
    if len(points) < math.prod(map(len, tried.values())):  # paired
        return "; ".join(map(label, points))
    return " x ".join(f"{key} {', '.join(values)}" for key, values in tried.items())


@app.command("list")
@said_in_one_line
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(help="algorithms, data, partitions, models, ...; everything unless given."),
    ] = None,
) -> None:
    """Show algorithms, data sets, partitions, models and more, with one line each."""
    from holdfast.config import catalogue
    from holdfast.errors import did_you_mean

    words = {k: k for k in catalogue.KINDS} | {f"{k}s": k for k in catalogue.KINDS}
    if kind is not None and kind not in words:
        raise HoldfastError(f"unknown kind `{kind}`; {did_you_mean(kind, words)}")
    for one in catalogue.KINDS if kind is None else [words[kind]]:
        shown = Table(
            title=catalogue.TITLES[one], title_justify="left", box=None, show_header=False
        )
        shown.add_column(style="bold", no_wrap=True)
        shown.add_column()
        for name in catalogue.KINDS[one]:
            shown.add_row(name, catalogue.page(one, name).title)
        out.print(shown)
        out.print()
    out.print("[dim]holdfast show NAME explains one of them.[/]")


@app.command()
@said_in_one_line
def show(name: Annotated[str, typer.Argument(help="Anything `holdfast list` shows.")]) -> None:
    """Explain one name: its equation, what travels, its arguments and its reference."""
    from holdfast.config import catalogue
    from holdfast.config.examples import entry, is_number

    for kind in catalogue.kinds_of(name):
        page = catalogue.page(kind, name)
        out.print(f"\n[bold]{page.name}[/]  [dim]{kind}[/]")
        out.print(page.title, markup=False, highlight=False)
        if page.equation:
            out.print(Padding(_readable(page.equation), (1, 4)), markup=False, highlight=False)
        if page.body:
            out.print(Markdown(_readable_inline(page.body)))
        _facts(page)
        out.print("\n[dim]in an experiment file[/]")
        out.print(Padding(entry(kind, name), (0, 4)), markup=False, highlight=False)
        numbers = [n for n in page.arguments if kind == "algorithm" and is_number(name, n)]
        if numbers:
            out.print("[dim]several values of it[/]")
            swept = f'[sweep]\n"algorithm.{name}.{numbers[0]}" = [0.01, 0.1]'
            out.print(Padding(swept, (0, 4)), markup=False, highlight=False)
        out.print("[dim]in Python[/]")
        out.print(Padding(page.signature, (0, 4)), markup=False, highlight=False)


def _facts(page: Any) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for title, text in (
        ("travels", page.travels),
        *((name, text) for name, text in page.arguments.items()),
        ("reduces to", page.reduces_to),
        ("reference", page.reference),
    ):
        if text:
            facts.add_row(title, Markdown(_readable_inline(text)))
    out.print()
    out.print(facts)


_SPELT_OUT = (
    (r"\\tfrac(\d)(\d)", r"\\frac{\1}{\2}"),
    (r"\\tfrac", r"\\frac"),
    (r"\\[bB]igg?[lr]?(?![a-z])", ""),
    (r"\\overline\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", r"mean(\1)"),
    (r"\\arg\\min", "arg min "),
    (r"\\leftarrow", " ← "),
    (r"\\\|", "‖"),
    (r"\^2", "²"),
    (r"\\\\", "\n"),
)


_BRACED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"


def _part(latex: str) -> str:
    """Half of a fraction, in parentheses if it is more than one term."""
    return f"({latex})" if re.search(r"[+\-]| \\?sum", latex) else latex


def _readable(latex: str) -> str:
    """LaTeX as plain text, as far as letters go."""
    from pylatexenc.latex2text import LatexNodes2Text

    for pattern, plain in _SPELT_OUT:
        latex = re.sub(pattern, plain, latex)
    latex = re.sub(rf"\\frac{_BRACED}{_BRACED}", lambda m: f"{_part(m[1])}/{_part(m[2])}", latex)
    text = LatexNodes2Text(math_mode="text").latex_to_text(latex)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def _readable_inline(text: str) -> str:
    return re.sub(r"\$([^$]+)\$", lambda m: _readable(m[1]), text)


@app.command()
@said_in_one_line
def compare(
    folders: Folders,
    target: Target = None,
    metric: Metric = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The method others are compared with; the first unless given."),
    ] = None,
    window: Window = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the figures as plain numbers into this file.")
    ] = None,
) -> None:
    """Print what it took per method to reach a target, with mean and spread over seeds.

    Rounds, megabytes, models transmitted and seconds to the target, the rise time, and where it ended.
    """
    from holdfast.runs import results
    from holdfast.runs.compare import table, write_csv

    found = results.load(folders, target, metric, window)
    out.print(table(found, baseline, out))
    if csv is not None:
        written = write_csv(found, csv, baseline)
        out.print(f"figures   {written}", highlight=False, markup=False)


@app.command()
@said_in_one_line
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
) -> None:
    """Make one self-contained HTML page of the results, which works offline."""
    from holdfast.report.page import write
    from holdfast.runs import results

    found = results.load(folders, target, metric, window)
    page = write(found, output or found.folders[0].report_file)
    out.print(f"report    {page}", highlight=False, markup=False)
    if figures is not None:
        from holdfast.report.figures import write as draw

        for path in draw(found, figures):
            out.print(f"figure    {path}", highlight=False, markup=False)


def main() -> None:
    """The entry point of the command: all cores, and what was compiled once is kept."""
    use_machine()
    try:
        sys.exit(app())
    except SystemExit as ended:
        _leave(ended.code)
        raise


def _leave(code: Any) -> None:
    """If something went wrong in one of several processes, leave at once: the others would not come."""
    import jax

    if code and jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def use_machine() -> None:
    """One device per core, and a cache of compiled programs; JAX's own variables have precedence."""
    import jax

    from holdfast.engine.layout import LEAVES
    from holdfast.processes import COUNT

    mine = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    # Processes that share this machine share its cores.
    cores = min(max(1, len(mine) // int(os.environ.get(COUNT, "1"))), LEAVES)
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        jax.config.update("jax_num_cpu_devices", 1 << (cores.bit_length() - 1))
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "holdfast" / "compiled"))
        # Small programs too: a start has dozens of them.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


if __name__ == "__main__":
    main()
