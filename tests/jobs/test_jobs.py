"""Jobs in worker processes: what comes back, workers that die, Ctrl-C, launchers that are killed."""

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

from holdfast.jobs import local, machine
from holdfast.jobs.local import LocalExecutor, WorkerLostError
from holdfast.jobs.queue import Job, outcomes
from holdfast.jobs.reports import Reports, reporting


def test_longest_first_and_every_outcome():
    def divide(a, b):
        return a / b

    jobs = [Job(divide, (6, k), work=k) for k in (1, 0, 3)]
    with LocalExecutor(1) as executor:
        found = list(outcomes(jobs, executor))
    assert [outcome.number for outcome in found] == [2, 0, 1]
    assert [outcome.value for outcome in found] == [2.0, 6.0, None]
    assert isinstance(found[2].error, ZeroDivisionError)


def test_workers_round_as_this_process_does():
    """How XLA adds up a large product depends on its threads."""

    def product():
        rng = np.random.default_rng(0)
        a, b = (rng.normal(size=(128, n)).astype(np.float32) for n in (784, 10))
        return np.asarray(jax.jit(lambda a, b: a.T @ b)(a, b))

    with LocalExecutor(2) as executor:
        found = executor.submit(product).result()
    np.testing.assert_array_equal(found, product())


def test_any_executor_will_do():
    heard = []
    with ThreadPoolExecutor(2) as executor:
        found = list(outcomes([Job(abs, (-k,)) for k in range(5)], executor, ended=heard.append))
    assert sorted(outcome.value for outcome in found) == [0, 1, 2, 3, 4]
    assert len(heard) == 5


class OfTwoError(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def test_workers_do_what_travels_and_a_killed_one_is_replaced(tmp_path, monkeypatch, capfd):
    """One executor for all, since a process takes a while to start."""
    # A module of one's own that is called as one of Python's.
    (tmp_path / "this.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    executor = LocalExecutor(2)
    try:
        # A function of this test, which no module has.
        pid = executor.submit(lambda: os.getpid()).result(60)
        assert pid != os.getpid()
        with pytest.raises(KeyError, match="nothing"):
            executor.submit({}.__getitem__, "nothing").result(60)
        with pytest.raises(RuntimeError, match="no pickle"):
            executor.submit(lambda: sys._getframe()).result(60)
        assert executor.submit(os.getpid).result(60) == pid
        with pytest.raises(RuntimeError, match="OfTwoError: too long"):
            executor.submit(_raise_of_two).result(60)
        found = executor.submit(lambda: importlib.import_module("this").__file__).result(60)
        assert found == str(tmp_path / "this.py")
        with jax.softmax_custom_jvp(not jax.config.jax_softmax_custom_jvp):
            future = executor.submit(lambda: jax.config.jax_softmax_custom_jvp)
            assert future.result(60) == jax.config.jax_softmax_custom_jvp
        executor.submit(_warn_and_print).result(60)
        # Lines come when they are printed, the warning once.
        said = ""
        for _ in range(200):
            said += "".join(capfd.readouterr())
            if "second" in said and "UserWarning" in said:
                break
            time.sleep(0.05)
        assert said.count("UserWarning") == 1

        note = tmp_path / "note"

        def die_once():
            if note.exists():
                return os.getpid()
            note.write_text("here")
            os.kill(os.getpid(), signal.SIGKILL)

        with pytest.raises(WorkerLostError, match="-9"):
            executor.submit(die_once).result(60)
        note.unlink()
        (outcome,) = outcomes([Job(die_once)], _Elsewhere(executor))
        assert outcome.error is None
        assert outcome.value not in (pid, os.getpid())
    finally:
        executor.stop()


def _raise_of_two():
    raise OfTwoError("too long", 2)


def _warn_and_print():
    for text in ("first", "second"):
        with warnings.catch_warnings():
            warnings.warn("of a worker", stacklevel=1)
        print(text)


def test_reports_come_however_deep_temporary_files_are(tmp_path, monkeypatch):
    monkeypatch.setattr("multiprocessing.util.get_temp_dir", lambda: str(tmp_path / ("x" * 200)))
    with Reports() as reports:
        with reporting(reports.address) as say:
            say(1)
        assert reports.next(timeout=10) == 1


def test_what_a_container_may_use(tmp_path, monkeypatch):
    seen, free = machine.cores(), machine._free()
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    for limit, count in (("max 100000", 64), ("350000 100000", 3), ("50000 100000", 1)):
        (tmp_path / "cpu.max").write_text(f"{limit}\n")
        assert machine.cores() == count
    assert seen <= 64 <= free
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = machine._free()
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    (tmp_path / "memory.stat").write_text("anon 2500\ninactive_file 1500\n")
    assert machine._free() == 2500 < unlimited


class _Elsewhere:
    """An executor that does nothing in the thread that waits."""

    def __init__(self, executor):
        self.submit = executor.submit


def test_workers_have_the_holdfast_of_their_launcher(tmp_path):
    """Not the one that is installed."""
    other = tmp_path / "other"
    shutil.copytree(Path(local.__file__).parents[1] / "jobs", other / "holdfast/jobs")
    for name in ("__init__.py", "errors.py"):
        (other / "holdfast" / name).write_text((Path(local.__file__).parents[1] / name).read_text())
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(other)!r})\n"
        "from holdfast.jobs.local import LocalExecutor\n"
        "executor = LocalExecutor(2)\n"
        "print(executor.submit(lambda: sys.modules['holdfast'].__file__).result(60))\n"
        "executor.stop()\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout == f"{other / 'holdfast/__init__.py'}\n", said.stderr


def test_ctrl_c_interrupts_and_a_killed_launcher_takes_its_workers_along(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from holdfast.jobs.local import LocalExecutor\n"
        "from holdfast.jobs.queue import Job, outcomes\n"
        "def wait(place):\n"
        "    Path(place, f'{os.getpid()}').touch()\n"
        "    try:\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        Path(place, f'saved-{os.getpid()}').touch()\n"
        "        raise\n"
        "if __name__ == '__main__':\n"
        "    with LocalExecutor(2) as executor:\n"
        "        list(outcomes([Job(wait, (sys.argv[1],))] * 3, executor))\n"
    )
    for how in (signal.SIGINT, signal.SIGKILL):
        place = tmp_path / str(how)
        place.mkdir()
        command = [sys.executable, str(program), str(place)]
        launcher = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        pids = _both_at_work(place)
        launcher.send_signal(how)
        launcher.wait(30)
        for pid in pids:
            _has_ended(pid)
        saved = {p.name for p in place.glob("saved-*")}
        assert saved == ({f"saved-{pid}" for pid in pids} if how == signal.SIGINT else set())


def _both_at_work(place: Path) -> list[int]:
    for _ in range(600):
        found = [int(p.name) for p in place.iterdir()]
        if len(found) == 2:
            return found
        time.sleep(0.05)
    raise AssertionError("two jobs never were at work at once")


def _has_ended(pid: int) -> None:
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")
