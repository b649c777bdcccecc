"""Worker processes of this machine as an executor; the process that has it works too."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from holdfast.errors import HoldfastWarning
from holdfast.jobs import machine, share
from holdfast.jobs.worker import settings

# Seconds for a job that is interrupted to save itself.
_GRACE = 20
# Starts without one that got ready, after which nobody is started any more.
_STARTS = 3
# Who works where the executor is.
_HERE = -1
# A worker has the holdfast that its launcher has, which may not be the one that is installed.
_HOLDFAST = str(Path(__file__).absolute().parents[2])
_START = """\
import sys
sys.path.insert(0, sys.argv[1])
import holdfast.jobs.worker
holdfast.jobs.worker.main(int(sys.argv[2]), int(sys.argv[3]))
"""


class WorkerLostError(BrokenExecutor):
    """The worker process died while it worked; the job may be submitted again."""


class _Task:
    def __init__(
        self,
        call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]],
        kind: Hashable,
    ) -> None:
        # As JAX is configured in the thread that asks for it.
        self.call, self.kind, self.settings = call, kind, settings()
        self.future: Future[Any] = Future()


class _Tasks:
    """What waits, in its order; who takes one prefers a kind it knows, then one that nobody else does."""

    def __init__(self) -> None:
        self._waiting: list[_Task] = []
        self._known: dict[int, set[Hashable]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, task: _Task) -> None:
        self._waiting.append(task)

    def take(self, who: int) -> _Task:
        mine = self._known.setdefault(who, {None})
        others = set().union(*(kinds for k, kinds in self._known.items() if k != who))
        task = min(self._waiting, key=lambda t: 0 if t.kind in mine else 1 + (t.kind in others))
        mine.add(task.kind)
        self._waiting.remove(task)
        return task

    def forget(self, who: int) -> None:
        self._known.pop(who, None)


class LocalExecutor(Executor):
    """So many jobs at once on this machine: one here, where `work_here` is called, all others in processes.

    Processes are started at once, by spawning (JAX must not be forked), and are kept. Each has one core, or
    what its environment gives it. A worker that dies is replaced, and the future of its job has a
    `WorkerLostError`. All of them end when this process does.

    Args:
        jobs: how many at once; 1 starts no process.
        first: what every worker calls before its first job, such as what imports and builds.
        environments: of each worker, over this process's own; one device each unless given.

    Example:
        >>> with LocalExecutor(1) as executor:
        ...     future = executor.submit(pow, 2, 10)
        ...     _ = executor.work_here()
        >>> future.result()
        1024
    """

    def __init__(
        self,
        jobs: int,
        first: Callable[[], Any] | None = None,
        environments: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        self.jobs = jobs
        share.among(jobs)
        self._tasks = _Tasks()
        self._changed = threading.Condition()
        self._over = False
        self._workers: dict[int, _Worker] = {}
        # Every worker has the one end and only this process the other: when it ends, they do.
        self._alive, self._kept = os.pipe()
        self._threads: list[threading.Thread] = []
        self._start(first, environments)

    def grow(self, jobs: int, first: Callable[[], Any] | None = None) -> None:
        """From now on so many at once: what waits goes to new workers too, which call `first` before."""
        self.jobs = max(self.jobs, jobs)
        share.among(self.jobs)
        self._start(first)

    def _start(
        self,
        first: Callable[[], Any] | None,
        environments: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        # As JAX is configured in this thread, now.
        preparation: Any = None if first is None else (settings(), first, (), {})
        chosen = environments or [machine.one_device()] * (self.jobs - 1)
        for k in range(len(self._threads), self.jobs - 1):
            args = (k, preparation, chosen[k])
            self._threads.append(threading.Thread(target=self._serve, args=args, daemon=True))
            self._threads[k].start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it in the next worker that is free, or in `work_here`."""
        return self._submit(_Task((fn, args, kwargs), None))

    def submit_kind(
        self, kind: Hashable, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """The same, preferably where something of this kind was done before."""
        return self._submit(_Task((fn, args, kwargs), kind))

    def _submit(self, task: _Task) -> Future[Any]:
        with self._changed:
            if self._over:
                raise RuntimeError("LocalExecutor: it is shut down; make another one.")
            self._tasks.add(task)
            self._changed.notify()
        return task.future

    def work_here(self) -> bool:
        """Take a job that waits and do it in this thread; False if none waits."""
        with self._changed:
            if not self._tasks:
                return False
            task = self._tasks.take(_HERE)
        if task.future.set_running_or_notify_cancel():
            fn, args, kwargs = task.call
            try:
                value = fn(*args, **kwargs)
            except Exception as error:
                task.future.set_exception(error)
            except BaseException as error:  # Ctrl-C is for this process
                task.future.set_exception(error)
                raise
            else:
                task.future.set_result(value)
        return True

    def reduce(self, jobs: int) -> None:
        """From now on at most so many at once: workers beyond that end when they are done."""
        with self._changed:
            self.jobs = min(self.jobs, jobs)
            for place, worker in self._workers.items():
                if place >= self.jobs - 1 and not worker.ready:
                    worker.process.kill()
            self._changed.notify_all()
        share.among(self.jobs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing more is taken; what was submitted is worked off, or what has not begun is cancelled."""
        if not cancel_futures and wait:
            while self.work_here():
                pass
        with self._changed:
            self._over = True
            if cancel_futures:
                while self._tasks:
                    self._tasks.take(_HERE).future.cancel()
            self._changed.notify_all()
            # Who is not ready yet has come too late.
            for worker in self._workers.values():
                if not worker.ready and not self._tasks:
                    worker.process.kill()
        if wait:
            for thread in self._threads:
                thread.join()
            self._close()

    def stop(self) -> None:
        """Interrupt what is at work, as Ctrl-C does, and end all workers; again: at once."""
        self.shutdown(wait=False, cancel_futures=True)
        try:
            for worker in list(self._workers.values()):
                worker.process.send_signal(signal.SIGINT if worker.busy else signal.SIGKILL)
            end = time.monotonic() + _GRACE
            for worker in list(self._workers.values()):
                worker.process.wait(max(0.0, end - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        finally:
            for worker in list(self._workers.values()):
                worker.process.kill()
            self._close()

    def stop_on_error(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As `__exit__`, but if all went well more may be submitted."""
        if kind is not None:
            self.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.shutdown()
        else:
            self.stop()

    def _close(self) -> None:
        with self._changed:
            for end in (self._alive, self._kept):
                if end >= 0:
                    os.close(end)
            self._alive = self._kept = -1
        share.among(1)

    def _serve(self, place: int, first: Any, environment: Mapping[str, str]) -> None:
        """A thread for each place of a worker: starts it, hands it tasks, and starts another if it dies."""
        unready = 0
        while unready < _STARTS:
            with self._changed:
                if self._over or place >= self.jobs - 1:
                    return
                worker = self._workers[place] = _Worker(self._alive, environment)
            try:
                worker.get_ready(first, self.jobs)
                unready = 0
                while (task := self._next(place)) is not None:
                    worker.do(task)
                return
            except (EOFError, OSError):
                unready += not worker.ready
            finally:
                worker.end()
                with self._changed:
                    del self._workers[place]
                    self._tasks.forget(place)
        if not self._over and place < self.jobs - 1:
            warnings.warn(
                f"a worker process ended {_STARTS} times before it was ready, the last time with code "
                f"{worker.process.returncode}; going on without it.",
                HoldfastWarning,
                stacklevel=2,
            )

    def _next(self, place: int) -> _Task | None:
        """The next task, when there is one; None when there will be none."""
        with self._changed:
            while True:
                if place >= self.jobs - 1:
                    return None
                if self._tasks:
                    task = self._tasks.take(place)
                    if task.future.set_running_or_notify_cancel():
                        return task
                elif self._over:
                    return None
                else:
                    self._changed.wait()


class _Worker:
    """One process, and the line to it."""

    def __init__(self, alive: int, environment: Mapping[str, str]) -> None:
        self.ready = self.busy = False
        mine, its = multiprocessing.Pipe()
        self.line: Connection[Any, Any] = mine
        # -P: modules are not looked for in the current folder. A session of its own: Ctrl-C in a terminal
        # reaches the launcher alone, which says to its workers what to do.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, _HOLDFAST, str(its.fileno()), str(alive)],
            env=os.environ | dict(environment),
            start_new_session=True,
            pass_fds=(its.fileno(), alive),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        its.close()
        self._heard = [
            threading.Thread(target=_said_here, args=said, daemon=True)
            for said in ((self.process.stdout, "stdout"), (self.process.stderr, "stderr"))
        ]
        for thread in self._heard:
            thread.start()

    def get_ready(self, first: Any, sharing: int) -> None:
        """Wait until it has imported what it needs."""
        import cloudpickle

        call = None if first is None else cloudpickle.dumps(first)
        self.line.send((sys.path, sharing, call))
        self.line.recv_bytes()
        self.ready = True

    def do(self, task: _Task) -> None:
        """Have it do a task, and wait for the answer."""
        import cloudpickle

        try:
            sent = cloudpickle.dumps((task.settings, *task.call))
        except Exception as error:  # it cannot travel
            task.future.set_exception(error)
            return
        self.busy = True
        try:
            self.line.send_bytes(sent)
            right, value = cloudpickle.loads(self.line.recv_bytes())
        except (EOFError, OSError):
            code = self.process.wait()
            task.future.set_exception(
                WorkerLostError(f"a worker process ended with code {code} in the middle of a job")
            )
            raise
        except Exception as error:  # it cannot travel back
            task.future.set_exception(error)
            return
        finally:
            self.busy = False
        if right:
            task.future.set_result(value)
        else:
            task.future.set_exception(value)

    def end(self) -> None:
        """Nothing more comes: it ends by itself, at the latest after a moment."""
        self.line.close()
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self._heard:
            # Unless a process of its own has its output too.
            thread.join(1.0)


def _said_here(source: TextIO | None, name: str) -> None:
    """What a worker prints is printed here, a line at a time, around bars if there are any."""
    assert source is not None
    with source:
        for line in source:
            getattr(sys, name).write(line)
