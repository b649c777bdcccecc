"""Run every method and seed of an experiment file, into a folder, from where it stands."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from holdfast import processes
from holdfast.config.build import Study
from holdfast.data import Clients, split
from holdfast.data.split.table import class_names, has_classes
from holdfast.errors import HoldfastError, file_errors_said
from holdfast.jobs.local import LocalExecutor
from holdfast.jobs.queue import ATTEMPTS, Job, Outcome, is_lost, outcomes
from holdfast.record.history import Record
from holdfast.record.lock import held, refuse_held
from holdfast.record.progress import Progress
from holdfast.record.state import RunState
from holdfast.runs.folder import RunFolder, description
from holdfast.runs.follow import Followed
from holdfast.runs.one_run import (
    MOST_CLIENTS_SHOWN,
    AtHand,
    Ended,
    RunJob,
    at_hand,
    carry_out,
    interrupts,
)

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
        about["counts"] = counts[:MOST_CLIENTS_SHOWN].tolist()
        about["statistics"] = split.statistics(clients).summary()
        if label_names is not None:
            about["label_names"] = class_names(clients, label_names)
            about["labels"] = list(label_names)  # of 0, 1, ..., whether somebody has them or not
    return about


def execute(
    study: Study,
    folder: RunFolder,
    progress: Progress,
    sinks: tuple[Sink, ...] = (),
    executor: Executor | None = None,
) -> int:
    """Run what is not complete yet; a method that fails does not stop the others, and is counted.

    Args:
        study: the experiment file, built.
        folder: where its runs are written; everything about a run comes back through it.
        progress: what shows them.
        sinks: called with every record of every run.
        executor: where runs happen, several at once and in any order; one after another here unless given.
            Any `concurrent.futures.Executor` whose workers see the same files.
    """
    with held(folder.path), interrupts():
        left = _incomplete(study, folder, progress)
        with contextlib.ExitStack() as until:
            if executor is None:
                executor = until.enter_context(LocalExecutor(1))
            if isinstance(executor, LocalExecutor):
                # While the folder is held.
                until.push(executor.stop_on_error)
            return _Execution(study, folder, progress, sinks, left).through(executor)


def _incomplete(study: Study, folder: RunFolder, progress: Progress) -> list[RunJob]:
    jobs = [
        RunJob(folder.path.absolute(), method, seed, split, study.file.trusted)
        for split, method, seed in itertools.product(
            study.splits or (None,), range(len(study.methods)), study.seeds
        )
    ]
    left = []
    for job in jobs:
        # All or none: they read the same files, at different moments.
        if processes.told_by_first(str(job.files(study).complete)) == "True":
            progress.begin(job.called(study))
            progress.end("complete")
        else:
            left.append(job)
    return left


class _Execution:
    """Runs of a study on their way through an executor, and who is told of them."""

    def __init__(
        self,
        study: Study,
        folder: RunFolder,
        progress: Progress,
        sinks: tuple[Sink, ...],
        jobs: list[RunJob],
    ) -> None:
        self.study, self.folder, self.progress, self.sinks = study, folder, progress, sinks
        self.jobs = jobs
        self.failures = 0
        self._one_sink = threading.Lock()
        self.here = AtHand(study, self._begin, self._say, self._on_round)
        self.followed = Followed(
            {job: job.files(study) for job in jobs}, self._begin, self._hear, bool(sinks)
        )

    def through(self, executor: Executor) -> int:
        """Carry all of them out; how many failed."""
        local = isinstance(executor, LocalExecutor)
        side_by_side = not isinstance(executor, LocalExecutor) or executor.jobs > 1
        jobs = [
            Job(
                carry_out, (job,), self._work(job) if side_by_side else 1.0, (job.split, job.method)
            )
            for job in self.jobs
        ]
        watching = side_by_side and (self.progress.is_shown or bool(self.sinks))
        with (
            at_hand(self.folder.path.absolute(), self.here),
            self.followed if watching else contextlib.nullcontext(),
        ):
            for outcome in outcomes(jobs, executor, ended=self._ended):
                job, error = self.jobs[outcome.number], outcome.error
                self.followed.raise_what_went_wrong()
                if error is None or is_lost(error):
                    continue
                if job in self.here.jobs or not local:
                    raise error
                # What a worker raised is raised here again, with all that can be said of it; or it goes well.
                self.folder.log(
                    f"{job.called(self.study)}: begun again, since a worker raised {error!r}"
                )
                self._ended(Outcome(outcome.number, carry_out(job)))
        return self.failures

    def _work(self, job: RunJob) -> float:
        return self.study.operations[self.study.methods[job.method].label]

    def _begin(self, job: RunJob) -> None:
        if job in self.here.jobs:
            self.followed.leave(job)
        self.progress.begin(job.called(self.study))

    def _say(self, job: RunJob, line: str) -> None:
        self.progress.say(line, job.called(self.study))

    def _on_round(self, job: RunJob, state: RunState) -> None:
        self._hear(job, state.history[-1], state.ledger.total)

    def _hear(self, job: RunJob, record: Record, total: float) -> None:
        # Rounds are heard of in several threads, and what they are sent to may not bear that.
        with self._one_sink:
            for sink in self.sinks:
                sink(job.label(self.study), job.seed, record)
        self.progress.hear(job.called(self.study), int(record["round"]), record, total)

    def _ended(self, outcome: Outcome) -> None:
        """At once, in whatever thread it is known."""
        job, label = self.jobs[outcome.number], self.jobs[outcome.number].called(self.study)
        if job not in self.here.jobs:
            self.followed.end(job)
        if is_lost(outcome.error):
            self.failures += 1
            said = f"failed: its worker died {ATTEMPTS} times ({outcome.error}); resume goes on with it"
            self.folder.log(f"{label}: {said}")
            self.progress.end(said, label)
        elif isinstance(ended := outcome.value, Ended):
            self.failures += ended.failed
            for line in () if job in self.here.jobs else ended.said:
                self.progress.say(line, label)
            self.progress.end(ended.outcome, label)
