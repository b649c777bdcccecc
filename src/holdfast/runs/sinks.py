"""Rounds sent on to TensorBoard, MLflow or Weights & Biases while they happen."""

import importlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.runs.execute import Sink


def open_sink(name: str, folder: Path, until: ExitStack) -> Sink:
    """A sink by name (`tensorboard`, `mlflow` or `wandb`), closed when `until` is."""
    if name not in _SINKS:
        raise HoldfastError(f"--track {name}: unknown; {did_you_mean(name, _SINKS)}")
    package, make = _SINKS[name]
    try:
        library = importlib.import_module(package)
    except ImportError:
        raise HoldfastError(
            f'--track {name}: {package} is not installed; pip install "holdfast[{name}]".'
        ) from None
    return make(library, folder, until)


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    return {n: float(v) for n, v in record.items() if isinstance(v, int | float) and n != "round"}


def _tensorboard(library: Any, folder: Path, until: ExitStack) -> Sink:
    writers: dict[str, Any] = {}

    def sink(method: str, seed: int, record: dict[str, Any]) -> None:
        place = str(folder / "tensorboard" / f"{method}, seed {seed}")
        if place not in writers:
            writers[place] = library.SummaryWriter(place, flush_secs=5)
            until.callback(writers[place].close)
        for name, value in _numbers(record).items():
            writers[place].add_scalar(name, value, record["round"])

    return sink


def _mlflow(library: Any, folder: Path, until: ExitStack) -> Sink:
    library.set_experiment(folder.name)
    runs: dict[tuple[str, int], str] = {}

    def sink(method: str, seed: int, record: dict[str, Any]) -> None:
        if (method, seed) not in runs:
            with library.start_run(run_name=f"{method}, seed {seed}") as run:
                library.log_params({"method": method, "seed": seed})
            runs[method, seed] = run.info.run_id
        library.log_metrics(_numbers(record), step=record["round"], run_id=runs[method, seed])

    return sink


def _wandb(library: Any, folder: Path, until: ExitStack) -> Sink:
    runs: dict[tuple[str, int], Any] = {}

    def sink(method: str, seed: int, record: dict[str, Any]) -> None:
        if (method, seed) not in runs:
            runs[method, seed] = library.init(
                project=folder.name,
                group=method,
                name=f"{method}, seed {seed}",
                config={"method": method, "seed": seed},
                dir=str(folder),
                reinit="create_new",
            )
            until.callback(runs[method, seed].finish)
        runs[method, seed].log(_numbers(record), step=record["round"])

    return sink


_SINKS = {
    "tensorboard": ("tensorboardX", _tensorboard),
    "mlflow": ("mlflow", _mlflow),
    "wandb": ("wandb", _wandb),
}
