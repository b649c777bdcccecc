"""One run of an experiment file, a method with a seed on a split, into its folder and from where it stands.

Everything goes through the folder: which run it is, is all that a process must be told to carry it out.
"""

import contextlib
import dataclasses
import json
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast import evaluate
from holdfast.config import build
from holdfast.config.build import Method, Study
from holdfast.config.file import ExperimentFile
from holdfast.conformal import Conformal
from holdfast.data import Clients
from holdfast.engine.saving import Saving
from holdfast.engine.simulate import Run, simulate
from holdfast.errors import HoldfastWarning, RoundFailedError
from holdfast.evaluate.measuring import measure
from holdfast.jobs.worker import one_run
from holdfast.metrics import Metric
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.files import write_whole
from holdfast.record.history import DETAILS, SITES
from holdfast.record.lock import held_beside
from holdfast.record.state import RunState
from holdfast.runs.folder import RunFolder, SeedFolder
from holdfast.runs.models import as_files
from holdfast.runs.predictions import Predicting, Predictions

MOST_CLIENTS_SHOWN = 500


@dataclasses.dataclass(frozen=True)
class RunJob:
    """Which run: of what folder, and what of its file."""

    folder: Path
    method: int
    seed: int
    split: int | None = None
    trusted: bool = False

    def files(self, study: Study) -> SeedFolder:
        """Where it goes."""
        method = study.methods[self.method].folder
        return RunFolder(self.folder).seed_folder(method, self.seed, self.split)

    def label(self, study: Study) -> str:
        """What it is called where methods are shown, without its seed."""
        method = study.methods[self.method].label
        return method if self.split is None else f"{method}, split {self.split}"

    def called(self, study: Study) -> str:
        """What it is called."""
        return f"{self.label(study)}, seed {self.seed}"


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run ended, in words; and what it had to say on the way."""

    outcome: str
    failed: bool = False
    said: tuple[str, ...] = ()


@dataclasses.dataclass
class AtHand:
    """A study in the process that has built it, and who looks on there.

    Args:
        study: of the split that was asked for last.
        begin: called with the job before its first round.
        said: called with a job and a line about it.
        on_round: called with a job and its state after every round.
    """

    study: Study
    begin: Callable[[RunJob], None] = lambda job: None
    said: Callable[[RunJob, str], None] = lambda job, line: None
    on_round: Callable[[RunJob, RunState], None] = lambda job, state: None
    jobs: set[RunJob] = dataclasses.field(default_factory=set)


# Studies of this process, by their folder.
_at_hand: dict[Path, AtHand] = {}


@contextlib.contextmanager
def at_hand(folder: Path, known: AtHand) -> Iterator[None]:
    """Runs of this folder that happen in this process need not build its study again."""
    _at_hand[folder] = known
    try:
        yield
    finally:
        del _at_hand[folder]


def carry_out(job: RunJob) -> Ended:
    """Carry a run out to its end, here."""
    with one_run:
        known = _at_hand.get(job.folder)
        if known is not None:
            known.jobs.add(job)
            return _carry_out(job, known)
        # Who started this process holds the folder, and may be killed while this one still writes.
        with held_beside(job.folder):
            return _carry_out(job, _built(RunFolder.open(job.folder).experiment(job.trusted)))


def _carry_out(job: RunJob, known: AtHand) -> Ended:
    folder, said = RunFolder(job.folder), []
    what, files = job.called(known.study), job.files(known.study)

    def told(line: str) -> None:
        folder.log(f"{what}: {line}")
        said.append(line)
        known.said(job, line)

    known.begin(job)
    for name in files.damaged():
        told(f"{name} was missing or damaged; written again from the last save")
    try:
        with _warnings_to(told), interrupts() as again:
            if known.study.split != job.split:
                known.study = known.study.of_split(job.split)
            study = known.study
            run = _run(study, job, files, folder, told, known, again)
    except RoundFailedError as error:
        files.path.mkdir(parents=True, exist_ok=True)
        write_whole(files.path / "failed.json", json.dumps({"message": str(error)}))
        folder.log(f"{what}: {error}")
        return Ended(f"failed: {error}", failed=True, said=tuple(said))
    except KeyboardInterrupt:
        folder.log(f"{what}: stopped by the user")
        raise
    history = run.history
    times = history["seconds"].sum(), history["compile_seconds"].sum()
    spent = f"{times[0]:.1f} s, and {times[1]:.1f} s to compile"
    outcome = _last(run, study.metric)
    why = "" if run.stopped is None else f", {run.stopped}"
    folder.log(f"{what}: round {run.state.round}, {outcome}, {spent}{why}")
    return Ended(outcome, said=tuple(said))


def prepare(file: ExperimentFile) -> None:
    """Import and build what runs of a file need, before there is a folder."""
    _built(file)


# The study that this process was asked for last, by what it is a function of.
_latest: dict[tuple[str, Path, bool], AtHand] = {}


def _built(file: ExperimentFile) -> AtHand:
    beside = file.path.parent if file.folder is None else file.folder
    key = file.as_used(), beside.resolve(), file.trusted
    if key not in _latest:
        _latest.clear()
        # Training before the first round is left to the runs that need it.
        _latest[key] = AtHand(build.study(file, pretrained=False))
    return _latest[key]


@contextlib.contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C as always, and once more after the round: Python drops what is raised in a finaliser."""
    pressed = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    def again() -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are the main one's
        yield again
        return
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield again
    except Exception as error:
        # Ctrl-C within a transaction or a finaliser may come out as another error.
        if pressed:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, before)


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


def _run(
    study: Study,
    job: RunJob,
    files: SeedFolder,
    folder: RunFolder,
    told: Callable[[str], None],
    known: AtHand,
    interrupted: Callable[[], None],
) -> Run:
    begun = False
    method: Method = study.methods[job.method]

    def on_round(state: RunState) -> None:
        nonlocal begun
        if begun:
            files.record(state)
        else:
            begun = True
            files.begin(state)
            folder.log(f"{job.called(study)}: from round {state.round}")
            if state.chosen_mask is not None:
                folder.log(f"{job.called(study)}: {state.chosen_mask}")
        known.on_round(job, state)
        interrupted()

    run = simulate(
        study.experiment(method, job.seed),
        rounds=study.rounds,
        checkpoint=Checkpoint(files.checkpoints, study.checkpoint_every, study.checkpoint_keep),
        progress=False,
        on_round=on_round,
    )
    data = study.datasets[0] if len(study.datasets) == 1 else None
    saving = Saving(run.simulation, run.deployed, method.label, data, study.table, run.kept)
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
        (_at_sites(run, clients), None)
        if tests is None
        else _at_clients(run, clients, tests, metrics)
    )
    server, personal = as_files(saving or Saving(run.simulation, run.deployed, kept=run.kept), told)
    start, chosen = run.simulation.measure_start(), _chosen(run)
    mask, confidence = run.chosen_mask, _confidence(run)
    private = None if run.privacy is None else dataclasses.asdict(run.privacy)
    files.finish(server, measured, predictions, start, personal, chosen, mask, confidence, private)


def _confidence(run: Run) -> list[dict[str, Any]] | None:
    """What evaluators of sets and intervals have to say of the round that is kept; None without any."""
    asked = [e for e in run.simulation.setup.evaluators if isinstance(e, Conformal)]
    found = [about for e in asked if (about := e.detail(run.view)) is not None]
    return found or None


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
    tested = min(int((tests.sizes > 0).sum()), MOST_CLIENTS_SHOWN)
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


def _at_sites(run: Run, clients: Clients) -> dict[str, Any]:
    """What sites of a deployment measured last, each on its own test examples; empty of other runs."""
    details = [record.get(DETAILS, {}) for record in run.deployed.history.records]
    found = next((d for d in reversed(details) if f"{SITES}client" in d), None)
    if found is None:
        return {}
    ids = found[f"{SITES}client"]
    about = ("client", "tested")
    names = [n.removeprefix(SITES) for n in found if n.startswith(SITES)]
    return {
        "client": ids,
        "name": [clients.name(i) for i in ids],
        "examples": [int(clients.sizes[i]) for i in ids],
        **{name: found[f"{SITES}{name}"] for name in names if name not in about},
    }


def _last(run: Run, metric: str) -> str:
    """What the metric is in the end, or in the round that is kept; and what travelled in all."""
    kept = run.deployed
    values = [record[metric] for record in kept.history if metric in record]
    measured = f"{metric} {values[-1]:.4f}" if values else "nothing measured"
    of = "" if kept is run.state else f", round {kept.round} of {run.state.round}"
    return f"{measured}{of}, {run.ledger.total / 1e6:.1f} MB"
