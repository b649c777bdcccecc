"""Run every method and seed of an experiment file, into a folder, from where it stands."""

import contextlib
import itertools
import json
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import evaluate, processes
from holdfast.config.build import Method, Study
from holdfast.data import Clients, split
from holdfast.data.split.table import class_names, has_classes
from holdfast.engine.saving import Saving
from holdfast.engine.simulate import Run, simulate
from holdfast.errors import HoldfastError, HoldfastWarning, RoundFailedError, file_errors_said
from holdfast.evaluate.measuring import measure
from holdfast.metrics import Metric
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.files import write_whole
from holdfast.record.lock import held, refuse_held
from holdfast.record.progress import Progress
from holdfast.record.state import RunState
from holdfast.runs.folder import RunFolder, SeedFolder, description
from holdfast.runs.models import as_files
from holdfast.runs.predictions import Predicting, Predictions

_MOST_CLIENTS_SHOWN = 500
Sink = Callable[[str, int, dict[str, Any]], None]  # method's label, seed, one record of its history


def create(study: Study, out: Path | None) -> RunFolder:
    """A new folder for a checked experiment: the one given, or the next free under `runs`."""
    path = Path(
        processes.told_by_first(str(_made(study.name, out)) if processes.is_first() else "")
    )
    with held(path):
        return RunFolder.create(
            path, study.file.as_used(), _split(study), _methods(study), study.file.path.parent
        )


def mend(study: Study, folder: RunFolder) -> list[str]:
    """Before a run goes on: write again what is damaged of its description; names of those files."""
    with held(folder.path):
        names = folder.mend(_split(study), _methods(study)) if processes.is_first() else []
        for name in names:
            folder.log(f"{name} was missing or damaged; written again")
    return names


def _methods(study: Study) -> dict[str, Any]:
    return description(
        [(m.label, m.folder) for m in study.methods],
        study.target,
        study.metric,
        {m.label: {"of": m.of, "values": m.swept.values} for m in study.methods if m.swept.values},
        study.directions,
        study.window,
        {m.label: m.adapt for m in study.methods if m.adapt},
        study.objectives,
        {m.label: str(m.swept.table["name"]) for m in study.methods},
        study.roles,
        {"numbers": list(study.splits), "tested_per_trained": study.tested_per_trained}
        if study.splits
        else None,
    )


@file_errors_said()
def _made(name: str, out: Path | None) -> Path:
    """An empty folder, or what is left of one whose run was killed before it was described."""
    if out is None:
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        return next(path for path in (Path("runs") / n for n in names) if _is_new(path))
    if _is_new(out) or RunFolder(out).is_remainder:
        return out
    if out.is_dir():
        refuse_held(out)
    raise HoldfastError(
        f"{out} exists already; give another folder with --out, or go on with a run by "
        f"`holdfast resume {out}`."
    )


def _is_new(path: Path) -> bool:
    """Whether it is made just now: of two runs that ask at once, one is told so."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _split(study: Study) -> dict[str, Any]:
    return split_of(study.clients, study.label_names)


def split_of(clients: Clients, label_names: Sequence[str] | None = None) -> dict[str, Any]:
    """Clients by labels, for the picture of the split; sizes alone where labels are no classes.

    With what clients and labels are called, where they have names.
    """
    about: dict[str, Any] = {"sizes": clients.sizes.tolist()}
    if clients.names is not None:
        about["names"] = list(clients.names)
    if has_classes(clients):
        counts = split.counts(clients)
        about["counts"] = counts[:_MOST_CLIENTS_SHOWN].tolist()
        about["statistics"] = split.statistics(clients).summary()
        if label_names is not None:
            about["label_names"] = class_names(clients, label_names)
            about["labels"] = list(label_names)  # of 0, 1, ..., whether somebody has them or not
    return about


def execute(
    study: Study, folder: RunFolder, progress: Progress, sinks: tuple[Sink, ...] = ()
) -> int:
    """Run what is not complete yet; a method that fails does not stop the others, and is counted."""
    with held(folder.path), _interrupts() as again:
        return _execute(study, folder, progress, (*sinks, again))


@contextlib.contextmanager
def _interrupts() -> Iterator[Sink]:
    """Ctrl-C as always, and once more after the round: Python drops what is raised in a finaliser."""
    pressed = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def again(method: str, seed: int, record: dict[str, Any]) -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are the main one's
        yield again
        return
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield again
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(folder: RunFolder, progress: Progress, what: str, line: str) -> None:
    folder.log(f"{what}: {line}")
    progress.say(line)


@contextlib.contextmanager
def _warnings_to(told: Callable[[str], None]) -> Iterator[None]:
    """Warnings of holdfast's are told when they come, and again when they come again."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", HoldfastWarning)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, HoldfastWarning):
                told(str(message))
            else:
                others(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _execute(study: Study, folder: RunFolder, progress: Progress, sinks: tuple[Sink, ...]) -> int:
    failures = 0
    here = study
    for draw, (number, method), seed in itertools.product(
        study.splits or (None,), enumerate(study.methods), study.seeds
    ):
        files = folder.seed_folder(method.folder, seed, draw)
        label = method.label if draw is None else f"{method.label}, split {draw}"
        what = f"{label}, seed {seed}"
        told = partial(_tell, folder, progress, what)
        progress.begin(what)
        # All or none: they read the same files, at different moments.
        if processes.told_by_first(str(files.complete)) == "True":
            progress.end("complete")
            continue
        for name in files.damaged():
            told(f"{name} was missing or damaged; written again from the last save")
        if here.split != draw:
            here = study.of_split(draw)
        try:
            with _warnings_to(told):
                run = _run(here, here.methods[number], label, seed, files, folder, progress, sinks)
        except RoundFailedError as error:
            failures += 1
            files.path.mkdir(parents=True, exist_ok=True)
            write_whole(files.path / "failed.json", json.dumps({"message": str(error)}))
            folder.log(f"{what}: {error}")
            progress.end(f"failed: {error}")
            continue
        except KeyboardInterrupt:
            folder.log(f"{what}: stopped by the user")
            raise
        history = run.history
        times = history["seconds"].sum(), history["compile_seconds"].sum()
        spent = f"{times[0]:.1f} s, and {times[1]:.1f} s to compile"
        said = _last(run, study.metric)
        why = "" if run.stopped is None else f", {run.stopped}"
        folder.log(f"{what}: round {run.state.round}, {said}, {spent}{why}")
        progress.end(said)
    return failures


def _run(
    study: Study,
    method: Method,
    label: str,
    seed: int,
    files: SeedFolder,
    folder: RunFolder,
    progress: Progress,
    sinks: tuple[Sink, ...],
) -> Run:
    begun = False

    def on_round(state: RunState) -> None:
        nonlocal begun
        if begun:
            files.record(state)
        else:
            begun = True
            files.begin(state)
            folder.log(f"{label}, seed {seed}: from round {state.round}")
        for sink in sinks:
            sink(label, seed, state.history[-1])
        progress.advance(state)

    run = simulate(
        study.experiment(method, seed),
        rounds=study.rounds,
        checkpoint=Checkpoint(files.checkpoints, study.checkpoint_every, study.checkpoint_keep),
        progress=False,
        on_round=on_round,
    )
    data = study.datasets[0] if len(study.datasets) == 1 else None
    saving = Saving(run.simulation, run.deployed, method.label, data, study.table, run.kept)
    told = partial(_tell, folder, progress, f"{method.label}, seed {seed}")
    write_results(run, files, study.clients, study.tests, study.metrics, saving, told)
    return run


def write_results(
    run: Run,
    files: SeedFolder,
    clients: Clients,
    tests: Clients | None,
    metrics: tuple[Metric, ...] = (),
    saving: Saving | None = None,
    told: Callable[[str], None] | None = None,
) -> None:
    """All files of a run that is over; what clients get only where they have test examples.

    `saving` says more of the models than the run itself knows; `told` hears of what was left out.
    """
    files.begin(run.state)
    measured, predictions = (
        ({}, None) if tests is None else _at_clients(run, clients, tests, metrics)
    )
    server, personal = as_files(saving or Saving(run.simulation, run.deployed, kept=run.kept), told)
    start, chosen = run.simulation.measure_start(), _chosen(run)
    files.finish(server, measured, predictions, start, personal, chosen)


def _chosen(run: Run) -> dict[str, Any] | None:
    """Which round was best and which is kept, and why the run ended; None without early stopping."""
    stop = run.experiment.stop
    if stop is None:
        return None
    best = stop.best(run.history, run.history.directions)
    return {
        "metric": stop.metric,
        "best_round": None if best is None else best[0],
        "value": None if best is None else best[1],
        "kept_round": run.deployed.round,
        "last_round": run.state.round,
        "stopped": run.stopped,
    }


def _at_clients(
    run: Run, clients: Clients, tests: Clients, metrics: tuple[Metric, ...]
) -> tuple[dict[str, Any], Predictions | None]:
    """Every client's own model on test examples like its own: what is measured, and what it predicts."""
    tested = min(int((tests.sizes > 0).sum()), _MOST_CLIENTS_SHOWN)
    predicting = Predicting(run.view.model, tests, tested)
    found = {}
    for i, params, examples in evaluate.personal(tests).models(run.view, tested):
        found[i] = measure(run.view.model, params, examples, metrics)
        predicting.add(i, params, examples)
    names = list(next(iter(found.values()), {}))
    measured = {
        "client": list(found),
        **({} if clients.names is None else {"name": [clients.name(i) for i in found]}),
        "examples": [int(clients.sizes[i]) for i in found],
        **{name: [values[name] for values in found.values()] for name in names},
    }
    return measured, predicting.done() if found else None


def _last(run: Run, metric: str) -> str:
    """What the metric is in the end, or in the round that is kept; and what travelled in all."""
    kept = run.deployed
    values = [record[metric] for record in kept.history if metric in record]
    measured = f"{metric} {values[-1]:.4f}" if values else "nothing measured"
    of = "" if kept is run.state else f", round {kept.round} of {run.state.round}"
    return f"{measured}{of}, {run.ledger.total / 1e6:.1f} MB"
