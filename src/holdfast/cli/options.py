"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import complete

Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR",
        help="Folders that `holdfast run` made.",
        autocompletion=complete.run_folders,
    ),
]
Target = Annotated[
    float | None,
    typer.Option(help="Compare by when this value is reached; the file's own unless given."),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="What is compared, such as accuracy or train_loss.", autocompletion=complete.metrics
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The target is reached when the mean of so many evaluations is; the file's own unless "
        "given, which is 1, the first evaluation there, unless it says otherwise.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        envvar="HOLDFAST_JOBS",
        show_default=False,
        help="So many runs side by side, to the same bits; 1: one after another. Unless given, as many as "
        "cores where a round is too short to share among them, or one on each accelerator.",
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
    typer.Option(
        "--track",
        help="Send every round to tensorboard, mlflow or wandb. Repeatable.",
        autocompletion=complete.sinks,
    ),
]
Trusted = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run code that the file names even if it lies outside the current folder or belongs to "
        "another user. Read it first.",
    ),
]
