"""`holdfast predict` and `holdfast export`: trained models at work."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli import complete
from holdfast.cli.console import out, printable
from holdfast.cli.machine import use_if_given
from holdfast.cli.options import Trusted
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.runs.predicting import Predicted
    from holdfast.runs.promising import Promised
    from holdfast.saved.model import SavedModel

Source = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A folder that `holdfast run` made, or a .safetensors file of `export` or run.save.",
        autocompletion=complete.run_folders,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="Which method of the folder; may be left out if it has one.",
        autocompletion=complete.methods,
    ),
]
Client = Annotated[
    str | None,
    typer.Option(
        help="Whose model, where clients have models of their own.",
        autocompletion=complete.clients,
    ),
]
Server = Annotated[
    bool,
    typer.Option("--server", help="The server's model, where clients have models of their own."),
]
Seed = Annotated[int | None, typer.Option(help="Which seed of the folder; the first unless given.")]
Split = Annotated[int | None, typer.Option(help="Which split of the data; the first unless given.")]
_MOST_LABELS = 10


def predict(
    source: Source,
    table: Annotated[
        Path, typer.Argument(metavar="FILE", help="New rows: .csv, .parquet, or an array in .npy.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--out", help="Write rows and predictions into this .csv or .parquet file."),
    ] = None,
    method: Method = None,
    client: Client = None,
    server: Server = False,
    seed: Seed = None,
    split: Split = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="COLUMN", help="A column to keep that is no input. Repeatable."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column with the right label, if it is not as in training."
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows with labels, neither trained on nor chosen by: sets and intervals rest on them.",
        ),
    ] = None,
    kappa: Annotated[
        float | None,
        typer.Option(
            help="The share of rows whose label may be outside its set; 0.1 unless given."
        ),
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="lac, aps or raps, for sets of labels; lac unless given.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Calibrate for each value of this column, such as a hospital."
        ),
    ] = None,
    trust: Trusted = False,
) -> None:
    """Predict new rows with the model of a run, from any folder.

    Columns are as they were in the files trained on; the preprocessing of the run is applied. If the file
    has the label too, the predictions are measured. With --calibrate, or a model that was calibrated before
    and --kappa, every row has a set of labels, or an interval, that holds the right one as often as asked.

    Examples:

    [bold]holdfast predict runs/hospitals new.csv --out predictions.csv[/]
    [bold]holdfast predict runs/hospitals new.csv --method flix --client cleveland[/]
    [bold]holdfast predict runs/hospitals new.csv --calibrate held_out.csv --kappa 0.1 --out sure.csv[/]
    """
    from holdfast.runs.predicting import predict_file
    from holdfast.runs.promising import keep, promise_of

    saved = _loaded(source, method, client, server, seed, split, trust)
    if output is not None and output.exists() and output.samefile(table):
        raise HoldfastError(f"{output} is the file that is read; give another one to write.")
    if calibrate is not None and calibrate.exists() and calibrate.samefile(table):
        raise HoldfastError(
            f"--calibrate {calibrate} is the file to predict; give rows that are not among the new ones."
        )
    ids = [*(ids or ()), *(() if by is None else (by,))]
    found = predict_file(saved, table, ids, label)
    promised: Promised | None = None
    if calibrate is not None or kappa is not None or score is not None or by is not None:
        promise = promise_of(
            saved, 0.1 if kappa is None else kappa, calibrate, score, by, ids, label
        )
        found, promised = keep(promise, found, table)
    written = None if output is None else found.write(output)
    out.print(f"model     {saved.description.title}", highlight=False, markup=False, soft_wrap=True)
    if saved.description.kept:
        out.print(f"          {saved.description.kept}", highlight=False, markup=False)
    out.print(_summary(found))
    for name, value in found.measured.items():
        out.print(
            f"{name} {value:.4g} over {len(found.predicted)} rows", highlight=False, markup=False
        )
    if promised is not None:
        for line in _promised(promised):
            out.print(line, highlight=False, markup=False, soft_wrap=True)
    if written is not None:
        out.print(f"predictions   {written}", highlight=False, markup=False, soft_wrap=True)


def _promised(found: "Promised") -> list[str]:
    """What sets or intervals promise, and how they fare where labels are known."""
    promise = found.promise
    asked = f"at least {1 - promise.kappa:.4g} of rows like the {promise.rows} calibrated with"
    each = "" if promise.by is None else f", for each of {len(promise.calibrations)} {promise.by}"
    if found.sets is None:
        lines = [
            f"intervals  hold the number of {asked}{each}; {found.mean_size:.4g} wide on average"
        ]
    else:
        empty = float((~found.sets.any(axis=1)).mean()) if len(found.sets) else 0.0
        none = f", {empty:.1%} empty" if empty else ""
        lines = [
            f"sets      hold the label of {asked}{each}; {found.mean_size:.3g} labels on average{none}"
        ]
    if found.covered is not None:
        lines.append(f"coverage {found.covered.mean():.4g} over {len(found.covered)} rows")
    return lines


def _summary(found: "Predicted") -> Table:
    """How many rows have which label, or what numbers were predicted."""
    import numpy as np

    shown = Table(box=None, pad_edge=False)
    rows = len(found.predicted)
    if found.probabilities is None:
        for title in ("rows", "least", "mean", "most"):
            shown.add_column(title, justify="right")
        numbers = np.asarray(found.predicted, np.float64)
        if rows:
            values = (numbers.min(), numbers.mean(), numbers.max())
            shown.add_row(str(rows), *(f"{value:.4g}" for value in values))
        return shown
    shown.add_column("prediction", overflow="fold")
    for title in ("rows", "share", "mean probability"):
        shown.add_column(title, justify="right", no_wrap=True)
    chosen = found.probabilities.argmax(axis=1)
    counts = np.bincount(chosen, minlength=len(found.labels))
    order = np.argsort(-counts, kind="stable")[:_MOST_LABELS]
    for i in sorted(order) if len(counts) <= _MOST_LABELS else order:
        mean = f"{found.probabilities[chosen == i, i].mean():.3f}" if counts[i] else "-"
        share = f"{counts[i] / max(rows, 1):.1%}"
        shown.add_row(Text(printable(found.labels[i])), str(counts[i]), share, mean)
    if len(counts) > _MOST_LABELS:
        rest = rows - int(counts[order].sum())
        shown.add_row(
            f"{len(counts) - _MOST_LABELS} others", str(rest), f"{rest / max(rows, 1):.1%}", ""
        )
    return shown


def _loaded(
    source: Path,
    method: str | None,
    client: str | None,
    server: bool,
    seed: int | None,
    split: int | None,
    trust: bool,
) -> "SavedModel":
    from holdfast.runs.load import load

    use_if_given()
    if server and client is not None:
        raise HoldfastError("--server and --client are given; give one of them.")
    found = load(source, method, seed, split, client, trust=trust)
    return found.server if server else found


def export(
    source: Source,
    output: Annotated[Path, typer.Option("--out", help="The file to write.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="model (a file for `predict` and hf.load), stablehlo (for jax.export) or onnx.",
        ),
    ] = "model",
    method: Method = None,
    client: Client = None,
    server: Server = False,
    seed: Seed = None,
    split: Split = None,
    trust: Trusted = False,
) -> None:
    """Write one model of a run into a file of its own, or as a program that needs no holdfast.

    A program takes any number of rows; a JSON file beside it says what goes in and out.

    Examples:

    [bold]holdfast export runs/hospitals --method flix --client cleveland --out cleveland.safetensors[/]
    [bold]holdfast export runs/hospitals --method fedavg --format stablehlo --out model.stablehlo[/]
    """
    from holdfast.errors import did_you_mean

    forms = ("model", "stablehlo", "onnx")
    if form not in forms:
        raise HoldfastError(f"--format {form}: {did_you_mean(form, forms)}")
    saved = _loaded(source, method, client, server, seed, split, trust)
    if form == "model":
        written: tuple[Path, ...] = (saved.save(output),)
    else:
        from holdfast.saved.export import export as write

        written = write(saved, output, "onnx" if form == "onnx" else "stablehlo")
    for path in written:
        out.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)
