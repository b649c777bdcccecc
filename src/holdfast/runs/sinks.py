"""Rounds sent on to TensorBoard, MLflow or Weights & Biases while they happen."""

import importlib
import importlib.util
import os
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.runs.execute import Sink

_Make: TypeAlias = Callable[[Any, Path, ExitStack], Sink]
_Told: TypeAlias = Callable[[Any, Path], str]


def open_sink(name: str, folder: Path, until: ExitStack) -> Sink:
    """A sink by name (`tensorboard`, `mlflow` or `wandb`), closed when `until` is."""
    library, make, _ = _of_name(name)
    return make(library, folder, until)


def where(name: str, folder: Path) -> str:
    """Where a sink sends the rounds of a run and how to look at them; refuses one that is not there."""
    library, _, told = _of_name(name)
    return told(library, folder)


def _of_name(name: str) -> tuple[Any, _Make, _Told]:
    if name not in _SINKS:
        raise HoldfastError(f"--track {name}: unknown; {did_you_mean(name, _SINKS)}")
    package, make, told = _SINKS[name]
    try:
        library = importlib.import_module(package)
    except ImportError:
        raise HoldfastError(
            f'--track {name}: {package} is not installed; pip install "holdfast[{name}]".'
        ) from None
    return library, make, told


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


def _where_tensorboard(library: Any, folder: Path) -> str:
    place = folder / "tensorboard"
    # What writes and what shows are two packages.
    missing = importlib.util.find_spec("tensorboard") is None
    install = " (pip install tensorboard)" if missing else ""
    return f"{place}; look at it with: tensorboard --logdir {shlex.quote(str(place))}{install}"


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


def _where_mlflow(library: Any, folder: Path) -> str:
    address = library.get_tracking_uri()
    look = (
        f"look at it at {address}"
        if address.startswith("http")
        else f"look at it with: mlflow ui --backend-store-uri {shlex.quote(address)}"
    )
    return f"experiment `{folder.name}` at {address}; {look}"


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


def _where_wandb(library: Any, folder: Path) -> str:
    place = folder / "wandb"
    if os.environ.get("WANDB_MODE") == "offline":
        return f"{place}; look at it after: wandb sync {shlex.quote(str(place))}/offline-run-*"
    address = os.environ.get("WANDB_BASE_URL", "https://wandb.ai")
    return f"project `{folder.name}` of your account; look at it at {address}"


_SINKS: dict[str, tuple[str, _Make, _Told]] = {
    "tensorboard": ("tensorboardX", _tensorboard, _where_tensorboard),
    "mlflow": ("mlflow", _mlflow, _where_mlflow),
    "wandb": ("wandb", _wandb, _where_wandb),
}
