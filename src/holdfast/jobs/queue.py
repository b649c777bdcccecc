"""A queue of jobs for any `concurrent.futures.Executor`: longest first, and again where a worker died."""

import dataclasses
import queue
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any

from holdfast.jobs.local import LocalExecutor

ATTEMPTS = 3
# How other executors say that a worker died with the job: dask.distributed, submitit, ray.
_LOST = ("KilledWorker", "UncompletedJobError", "WorkerCrashedError", "NodeDiedError")
# Seconds between two looks for work that came back.
_LOOK = 0.1


@dataclasses.dataclass(frozen=True)
class Job:
    """A call that may happen in another process.

    Args:
        function: what is called there.
        args: with what; both must survive a pickle, by cloudpickle on this machine.
        work: how long it takes beside others, in any unit.
        kind: jobs of one kind compile the same programs; workers of this machine keep to the kinds they know.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    work: float = 1.0
    kind: Hashable = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a job ended: what it returned, or what it raised.

    Args:
        number: its place among the jobs.
        value: what the function returned.
        error: what it raised, or what the executor says of a worker that died every time.
    """

    number: int
    value: Any = None
    error: BaseException | None = None


def outcomes(
    jobs: Sequence[Job],
    executor: Executor,
    *,
    attempts: int = ATTEMPTS,
    ended: Callable[[Outcome], None] | None = None,
) -> Iterator[Outcome]:
    """Every job's outcome, as they end; the longest jobs are submitted first.

    With a `LocalExecutor` this thread works too. Whoever stops asking,
    by Ctrl-C or otherwise, cancels what has not begun.

    Args:
        jobs: the calls.
        executor: where they happen.
        attempts: how often a job is submitted, if workers die with it.
        ended: called with an outcome the moment it is known, in any thread, also while this one works.

    Example:
        >>> with LocalExecutor(1) as executor:
        ...     jobs = [Job(pow, (2, k), work=k) for k in (1, 3, 2)]
        ...     [(outcome.number, outcome.value) for outcome in outcomes(jobs, executor)]
        [(1, 8), (2, 4), (0, 2)]
    """
    known: queue.SimpleQueue[Outcome | Exception] = queue.SimpleQueue()
    tries = [0] * len(jobs)
    waiting: dict[int, Future[Any]] = {}
    # Those that do not tell when they are done, as submitit's: they are asked.
    asked: dict[int, Future[Any]] = {}
    over = False

    def submit(number: int) -> None:
        tries[number] += 1
        job = jobs[number]
        future = (
            executor.submit_kind(job.kind, job.function, *job.args)
            if isinstance(executor, LocalExecutor)
            else executor.submit(job.function, *job.args)
        )
        waiting[number] = future
        if hasattr(future, "add_done_callback"):
            future.add_done_callback(lambda done: finished(number, done))
        else:
            asked[number] = future

    def finished(number: int, future: Future[Any]) -> None:
        # What a callback raises, executors only log.
        try:
            cancelled = number not in asked and future.cancelled()
            error = CancelledError() if cancelled else future.exception()
            if is_lost(error) and tries[number] < attempts and not over:
                submit(number)
                return
            outcome = Outcome(number, None if error is not None else future.result(), error)
            if ended is not None and not over:
                ended(outcome)
            known.put(outcome)
        except Exception as raised:
            known.put(raised)

    try:
        for number in sorted(range(len(jobs)), key=lambda n: -jobs[n].work):
            submit(number)

        def ask() -> bool:
            for number, future in [*asked.items()]:
                if future.done():
                    finished(number, future)
                    # Unless it was submitted again.
                    if asked[number] is future:
                        del asked[number]
            return False

        work_here = executor.work_here if isinstance(executor, LocalExecutor) else ask
        left = len(jobs)
        while left:
            found = _next(known, work_here)
            if isinstance(found, Exception):
                raise found
            left -= 1
            yield found
    finally:
        over = True
        for future in list(waiting.values()):
            future.cancel()


def is_lost(error: BaseException | None) -> bool:
    """Whether an error says that the worker died, and nothing about the job."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ in _LOST


def _next(
    known: "queue.SimpleQueue[Outcome | Exception]", work_here: Callable[[], bool]
) -> Outcome | Exception:
    while True:
        try:
            return known.get_nowait()
        except queue.Empty:
            if work_here():
                continue
        try:
            return known.get(timeout=_LOOK)
        except queue.Empty:
            pass
