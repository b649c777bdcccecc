"""Runs of a sweep on an executor: sent out, listened to, and gathered."""

import contextlib
import dataclasses
import pickle
import queue
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import jax

from holdfast import processes
from holdfast.engine.compiled import CompiledEngine
from holdfast.engine.experiment import Experiment
from holdfast.engine.setup import algorithm_of, checked
from holdfast.errors import HoldfastError, HoldfastWarning, brief, whole_number
from holdfast.jobs import machine
from holdfast.jobs.local import LocalExecutor
from holdfast.jobs.parcel import open_here, opened, packed
from holdfast.jobs.queue import ATTEMPTS, Job, is_lost, outcomes
from holdfast.jobs.reports import Reports
from holdfast.record.progress import Progress
from holdfast.record.state import RunState
from holdfast.sweeps.naming import Point, label
from holdfast.sweeps.run import Result
from holdfast.sweeps.work import Answer, Report, Work, do

OnRound = Callable[[RunState, Point, int], None]

# Seconds that all rounds to come must take, by those that are over, before processes are started for them.
_WORTH_STARTING = 10.0
# Seconds of rounds by which that is told.
_LOOK = 0.5
# Seconds for the last words of a process whose answer is there.
_LAST_WORDS = 10.0


class SideBySide:
    """The runs of a sweep on an executor; in the thread that asks for results, rounds are told to a bar and
    to whoever wants to see them.

    Args:
        work: the runs.
        bar: shows rounds.
        on_round: called after every round, one call at a time.
    """

    def __init__(self, work: Work, bar: Progress, on_round: OnRound | None) -> None:
        self._work, self._bar, self._on_round = work, bar, on_round
        self._name = uuid.uuid4().hex
        self._labels = [f"{label(p)}, seed {s}" for p, s in map(work.place, range(len(work)))]
        self._begun: set[int] = set()
        self._said_all: set[int] = set()
        self._reports: Reports | None = None
        self._thread = threading.get_ident()
        self._from_threads: queue.SimpleQueue[tuple[int, RunState]] = queue.SimpleQueue()
        self._after_round: Callable[[RunState], None] = lambda state: None

    def here(self, jobs: int | None) -> list[Result]:
        """On this machine: so many at once, or as many as it has cores once that is worth it."""
        with contextlib.ExitStack() as until:
            sent = self._work.to_send()
            if self._on_round is not None or self._bar.is_shown:
                self._reports = until.enter_context(Reports())
                sent = self._work.to_send(self._reports.address)
            folder = until.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
            file = Path(folder) / "work"
            name = self._name
            own = [checked(self._work.of(k)) for k in range(0, len(sent), len(sent.seeds))]
            most = min([len(sent), *(each.most_at_once for each in own if each.most_at_once)])

            def start(jobs: int) -> None:
                if min(jobs, most) > 1:
                    file.write_bytes(_packed(sent, same_files=True))
                    executor.grow(min(jobs, most), lambda: opened(name, file))

            executor = until.enter_context(_Attended(self._listen))
            if jobs is None:
                self._after_round = _Watch(len(sent) * sent.rounds, start)
            elif jobs > 1:
                start(jobs)
            return self._results(executor, file)

    def on(self, executor: Executor) -> list[Result]:
        """On an executor of somebody else's, who shuts it down."""
        return self._results(executor, _sent_once(executor, _packed(self._work.to_send())))

    def _results(self, executor: Executor, contents: Any) -> list[Result]:
        work, seeds = self._work, len(self._work.seeds)
        jobs = [
            Job(do, (self._name, contents, number), *_effort(work.of(number // seeds * seeds)))
            for number in range(len(work))
        ]
        found: dict[int, Result] = {}
        with open_here(self._name, dataclasses.replace(work, hear=self._hear)):
            for outcome in outcomes(jobs, executor):
                self._listen()
                if outcome.error is not None:
                    raise self._said(outcome.number, outcome.error)
                answer: Answer = pickle.loads(outcome.value)
                found[outcome.number] = answer.result
                if answer.reported:
                    self._wait_for_last_words(outcome.number)
                elif answer.state is not None:
                    self._tell(outcome.number, answer.state)
                self._begin(outcome.number)
                self._bar.end(label=self._labels[outcome.number])
        return [found[number] for number in range(len(work))]

    def _said(self, number: int, error: BaseException) -> BaseException:
        if not is_lost(error):
            return error
        again = "" if self._work.store else " Give a checkpoint=, and it goes on where it was."
        return HoldfastError(
            f"sweep, {self._labels[number]}: its worker died, {ATTEMPTS} times, at last by "
            f"{type(error).__name__}: {_in_short(error)}; see what ends workers, such as too little memory."
            f"{again}"
        )

    def _hear(self, number: int, state: RunState) -> None:
        """A round of a run in this process is over."""
        if threading.get_ident() != self._thread:
            self._from_threads.put((number, state))
            return
        self._tell(number, state)
        self._after_round(state)
        self._listen()

    def _listen(self) -> None:
        """Tell what was said in other threads and processes."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._tell(*self._from_threads.get_nowait())
        for report in () if self._reports is None else self._reports.heard():
            self._pass_on(report)

    def _wait_for_last_words(self, number: int) -> None:
        # What a process says comes by another way than its answer.
        end = time.monotonic() + _LAST_WORDS
        while number not in self._said_all and time.monotonic() < end:
            assert self._reports is not None
            with contextlib.suppress(queue.Empty):
                self._pass_on(self._reports.next(timeout=0.1))

    def _pass_on(self, report: Report) -> None:
        number, record, total, state = report
        if record is None:
            self._said_all.add(number)
            return
        self._begin(number)
        self._bar.hear(self._labels[number], record["round"], record, total)
        if state is not None:
            self._call(number, pickle.loads(state))

    def _tell(self, number: int, state: RunState) -> None:
        self._begin(number)
        last = state.history[-1]
        self._bar.hear(self._labels[number], state.round, last, state.ledger.total)
        self._call(number, state)

    def _begin(self, number: int) -> None:
        if number not in self._begun:
            self._begun.add(number)
            self._bar.begin(self._labels[number])

    def _call(self, number: int, state: RunState) -> None:
        if self._on_round is None:
            return
        if state.algorithm is None:
            own = algorithm_of(self._work.of(number), state)
            state = dataclasses.replace(state, algorithm=own)
        point, seed = self._work.place(number)
        self._on_round(state, dict(point), seed)


class _Attended(LocalExecutor):
    """One whose owner listens to its workers while it waits for them."""

    def __init__(self, listen: Callable[[], None]) -> None:
        super().__init__(1)
        self._listen = listen

    def work_here(self) -> bool:
        self._listen()
        return super().work_here()


class _Watch:
    """Starts other processes as soon as the rounds so far say that they will have enough to do."""

    def __init__(self, rounds: int, start: Callable[[int], None]) -> None:
        self._left = rounds
        self._start: Callable[[int], None] | None = start
        self._began = 0.0
        self._counted = 0

    def __call__(self, state: RunState) -> None:
        self._left -= 1
        if self._start is None:
            return
        # The first round is compiled; seconds are counted from its end.
        if not self._began:
            self._began = time.perf_counter()
            return
        self._counted += 1
        passed = time.perf_counter() - self._began
        if passed > _LOOK and passed / self._counted * self._left > _WORTH_STARTING:
            start, self._start = self._start, None
            try:
                start(min(machine.cores(), machine.room_for_processes(as_this_one=True)))
            except HoldfastError as error:
                warnings.warn(
                    f"{error} One after another, as with jobs=1.", HoldfastWarning, stacklevel=2
                )


def check(
    jobs: int | None, executor: Executor | None, experiments: Sequence[Experiment]
) -> int | None:
    """How many runs at once on this machine: as asked for, 1 where it cannot be more, or None: as it pays."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise HoldfastError(
            f"sweep: executor={brief(executor)} is a {type(executor).__name__}; give one with `submit`, such "
            f"as those of concurrent.futures, or client.get_executor() of dask.distributed.",
            about=("executor",),
        )
    if executor is not None and jobs is not None:
        raise HoldfastError(
            f"sweep: jobs={jobs!r} and an executor; give one of them, the executor knows how many.",
            about=("jobs",),
        )
    if jobs is not None:
        jobs = whole_number("sweep", "jobs", jobs)
    if jobs == 1:
        return 1
    why = _in_this_process_alone(experiments, executor is None)
    if why and (jobs is not None or executor is not None):
        what = "an executor" if jobs is None else f"jobs={jobs}"
        raise HoldfastError(f"sweep: {what}, but {why}.", about=("jobs",))
    return 1 if why else jobs


def _in_this_process_alone(experiments: Sequence[Experiment], on_this_machine: bool) -> str:
    """Why runs cannot go side by side, and what to do; empty if they can."""
    if processes.count() > 1:
        return (
            f"this is one of {processes.count()} processes of a run; sweep in a process of its own"
        )
    for experiment in experiments:
        engine = checked(experiment).engine
        if not isinstance(engine, CompiledEngine):
            return f"a {type(engine).__name__} runs in this process; leave one of the two out"
        if on_this_machine and engine.mesh.size > 1:
            return (
                f"rounds are spread over {engine.mesh.size} devices, which runs side by side would share; "
                f"leave it out, or give engine=hf.CompiledEngine(devices=1)"
            )
    if on_this_machine and jax.default_backend() != "cpu":
        # JAX has taken them all when it started.
        return (
            f"this process has all devices of the {jax.default_backend()}; give an executor whose workers "
            f"have one each"
        )
    return ""


def _packed(work: Work, same_files: bool = False) -> bytes:
    try:
        return packed(work, same_files)
    except Exception as error:
        # Whatever a user's own objects raise when they are asked to travel.
        raise HoldfastError(
            f"sweep: the experiment cannot be sent to other processes: {_in_short(error)}; leave out what "
            f"holds files, locks or generators, or give jobs=1."
        ) from error


def _in_short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def _sent_once(executor: Executor, contents: bytes) -> Any:
    """What jobs are given for the contents. dask.distributed hands the value of a task from worker to
    worker, to each once, and computes it again if they are lost; for others it is part of every job."""
    of_dask = type(executor).__module__.partition(".")[0] == "distributed"
    client: Any = getattr(executor, "_client", None) if of_dask else None
    return contents if client is None else client.submit(bytes, contents, pure=False)


def _effort(experiment: Experiment) -> tuple[float, str]:
    """How much a round is beside those of other points, by the examples that clients process in it; and what
    is equal for runs that compile the same programs."""
    program = str(jax.tree.structure((experiment.algorithm, experiment.local)))
    return checked(experiment).batches.mean_processed, program
