"""Runs side by side end as they do one after another; whoever is killed, nothing is lost."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.client_states.storage import Storage
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.jobs import machine, share
from holdfast.jobs.local import LocalExecutor
from holdfast.record.progress import Progress
from holdfast.runs import one_run, workers
from holdfast.runs.execute import create, execute
from tests.runs.test_interrupted import FILE, SAME

# Two methods, one of which is stopped early; two splits; a metric in a file beside it.
MANY = (
    FILE.replace("rounds = 200", "rounds = 6").replace("clients = 8", "clients = 8\nrepeats = 2")
    + """
[[algorithm]]
name = "own.py:method"
"""
)
OWN = """\
import holdfast as hf

def method():
    return hf.algorithms.feddyn(alpha=0.1)
"""


def started(*words, cwd, **environment):
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(cwd / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words, "--no-report"],
        cwd=cwd,
        env=os.environ | cache | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended_well(process):
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def results(folder):
    found = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.name in SAME}
    assert found
    return found


def workers_of(process):
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    found = " ".join(path.read_text() for path in children).split()
    named = [(int(pid), Path(f"/proc/{pid}/cmdline")) for pid in found]
    return [pid for pid, path in named if path.exists() and b"jobs.worker" in path.read_bytes()]


def test_two_at_once_are_as_one_after_another(tmp_path):
    (tmp_path / "experiment.toml").write_text(MANY)
    (tmp_path / "own.py").write_text(OWN)
    # Neither the launcher nor a worker takes it for Python's own.
    (tmp_path / "random.py").write_text("raise SystemExit('not this one')\n")
    ended_well(started("run", "experiment.toml", "--out", "one", cwd=tmp_path))
    said = ended_well(started("run", "experiment.toml", "--out", "two", "-j2", cwd=tmp_path))
    assert results(tmp_path / "one") == results(tmp_path / "two")
    assert "[8/8]" in said
    lines = (tmp_path / "two" / "log.txt").read_text().splitlines()
    assert sum("from round 1" in line for line in lines) == 8
    assert sum(": round 6, " in line for line in lines) == 8
    # A worker has worked, and signed.
    assert (tmp_path / "two" / "lock-1").exists()


WAITS = """\
import dataclasses
import time
from pathlib import Path

@dataclasses.dataclass(frozen=True)
class Waits:
    every: int = 1
    keeps_last_models = False

    def check(self, model, params, clients):
        pass

    def __call__(self, view):
        while view.state.round == 8 and Path("gate").exists():
            time.sleep(0.02)
        return {}
"""


@pytest.mark.long
def test_kills_of_workers_and_launchers_lose_nothing(tmp_path):
    """Every run is saved in round 6 and waits in round 8, until the gate is open."""
    waiting = '[[evaluate.also]]\nname = "waits.py:Waits"\n'
    (tmp_path / "experiment.toml").write_text(FILE.replace("= 200", "= 12") + waiting)
    (tmp_path / "waits.py").write_text(WAITS)
    gate, folder = tmp_path / "gate", tmp_path / "killed"
    signed = folder / "lock-1"
    ended_well(started("run", "experiment.toml", "--out", "whole", cwd=tmp_path))

    gate.touch()
    first = started("run", "experiment.toml", "--out", "killed", "-j2", cwd=tmp_path)
    until(first, folder, begun=2)
    (worker,) = workers_of(first)
    os.kill(worker, signal.SIGKILL)
    # Another worker takes the job over, from its save.
    until(first, folder, begun=3)
    assert "from round 7" in (folder / "log.txt").read_text().splitlines()[-1]
    (worker,) = workers_of(first)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert "holdfast resume killed" in said
    assert not Path(f"/proc/{worker}").exists()
    assert (folder / "log.txt").read_text().count("stopped by the user") == 2

    second = started("resume", "killed", "-j2", cwd=tmp_path)
    # Both go on from round 7, where they were stopped, and wait in the next.
    while not any(f'"process": {pid},' in signed.read_text() for pid in workers_of(second)):
        assert second.poll() is None, second.communicate()[0]
        time.sleep(0.05)
    second.kill()
    second.communicate(timeout=60)
    gate.unlink()
    ended_well(started("resume", "killed", "-j2", cwd=tmp_path))
    assert results(tmp_path / "whole") == results(folder)


def until(process, folder, begun):
    """So many runs have begun, and gone on to where they wait."""
    for _ in range(6000):
        log = folder / "log.txt"
        lines = log.read_text().splitlines() if log.exists() else []
        if sum(": from round" in line for line in lines) == begun:
            rounds = [len(p.read_text().splitlines()) for p in folder.rglob("history.jsonl")]
            if rounds == [7, 7]:
                return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    raise AssertionError(f"{begun} runs never began")


FAILS = """\
import dataclasses
import os
import time
from pathlib import Path

@dataclasses.dataclass(frozen=True)
class Fails:
    every: int = 1
    keeps_last_models = False

    def check(self, model, params, clients):
        pass

    def __call__(self, view):
        if os.environ.get("JAX_NUM_CPU_DEVICES") == "1":
            Path("failed").touch()
            raise ValueError("in workers alone")
        while not Path("failed").exists():
            time.sleep(0.02)
        return {}
"""


def test_what_fails_in_a_worker_is_told_as_always(tmp_path):
    """A method that diverges is counted, wherever it does; what a worker raises, the launcher tries again."""
    fails = '[[evaluate.also]]\nname = "fails.py:Fails"\n'
    diverges = '[[algorithm]]\nname = "fedavg"\nlocal = { learning_rate = 9e37 }\n'
    file = FILE.replace("= 200", "= 3").replace("[checkpoint]", f"{fails}\n[checkpoint]")
    (tmp_path / "experiment.toml").write_text(file + diverges)
    (tmp_path / "fails.py").write_text(FAILS)
    process = started("run", "experiment.toml", "--out", "run", "-j2", cwd=tmp_path)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1, said
    assert said.count("failed: round 1: not one of 3 clients") == 2
    assert "Traceback" not in said
    found = sorted(p.parent.name for p in tmp_path.glob("run/methods/scaffold/*/complete.sha256"))
    assert found == ["seed-0", "seed-1"]
    assert len(list(tmp_path.glob("run/methods/fedavg/*/failed.json"))) == 2
    assert (
        "a worker raised ValueError('in workers alone')" in (tmp_path / "run/log.txt").read_text()
    )


def test_any_executor_runs_a_study_and_sinks_hear_every_round(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(FILE.replace("rounds = 200", "rounds = 4"))
    made = study(read("experiment.toml"))
    heard = []

    def sink(method, seed, record):
        heard.append((seed, record["round"]))

    with ThreadPoolExecutor(2) as pool:
        folder = create(made, Path("run"))
        assert execute(made, folder, Progress(made.rounds), (sink,), pool) == 0
    assert sorted(heard) == [(seed, t) for seed in (0, 1) for t in (1, 2, 3, 4)]
    with LocalExecutor(2) as local:
        again = create(made, Path("again"))
        heard.clear()
        assert execute(made, again, Progress(made.rounds), (sink,), local) == 0
    assert sorted(heard) == [(seed, t) for seed in (0, 1) for t in (1, 2, 3, 4)]
    assert results(folder.path) == results(again.path)


def test_a_process_does_one_run_at_a_time(tmp_path, monkeypatch):
    """Threads share the study, which is of one split at a time."""
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(FILE)
    made, at_work = study(read("experiment.toml")), []

    def watched(job, known):
        at_work.append(job)
        time.sleep(0.05)
        assert at_work == [job]
        at_work.clear()
        return one_run.Ended("done")

    monkeypatch.setattr(one_run, "_carry_out", watched)
    with ThreadPoolExecutor(2) as pool:
        folder = create(made, Path("run"))
        assert execute(made, folder, Progress(made.rounds), executor=pool) == 0


def test_as_many_as_have_room_for_the_states_they_keep(tmp_path, monkeypatch):
    kept = '[evaluate]\nvalidation = 0.2\nkeep = "best"\n[storage]\nmemory = "45 kB"\n'
    (tmp_path / "experiment.toml").write_text(FILE.replace("[checkpoint]", f"{kept}[checkpoint]"))
    # A quarter has no room for the states of eight clients.
    monkeypatch.setattr(share, "_count", 4)
    made = study(read(tmp_path / "experiment.toml"))
    executor = LocalExecutor(1)
    executor.jobs = 4
    workers.settle(executor, made, 4)
    assert executor.jobs == 2
    executor.shutdown()


def test_rounds_spread_over_devices_do_not_go_side_by_side(tmp_path):
    (tmp_path / "experiment.toml").write_text(FILE + "[engine]\ndevices = 1\n")
    made = study(read(tmp_path / "experiment.toml"))
    spread = dataclasses.replace(made, engine=types.SimpleNamespace(devices=2))
    executor = LocalExecutor(1)
    executor.jobs = 2
    workers.settle(executor, made, 2)
    assert executor.jobs == 2
    with pytest.raises(
        hf.HoldfastError, match=r"`devices` is 2, and --jobs 2 .* leave one of them"
    ):
        workers.settle(executor, spread, 2)
    workers.settle(executor, spread, None)
    assert executor.jobs == 1
    executor.shutdown()


def test_memory_is_shared_by_runs_side_by_side():
    alone = Storage(memory="2 GB").memory_bytes, Storage().device_bytes
    share.among(4)
    try:
        assert Storage(memory="2 GB").memory_bytes == alone[0] // 4
        assert Storage().device_bytes == alone[1] // 4
    finally:
        share.among(1)


def test_how_many_at_once(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        workers, "LocalExecutor", lambda jobs, first=None, own=(): made.append((jobs, list(own)))
    )
    monkeypatch.setattr(machine, "cores", lambda: 4)
    path = tmp_path / "experiment.toml"
    path.write_text(MANY)
    file = read(path)
    workers.begun(file, None, {})
    workers.begun(file, 3, {})
    workers.begun(file, None, {}, complete=7)
    monkeypatch.setattr(machine, "_free", lambda: 1e9)
    workers.begun(file, None, {})
    assert [jobs for jobs, _ in made] == [4, 3, 1, 2]
    assert made[0][1] == [machine.one_device()] * 3
    # One run on each graphics card, the first of which is this process's own.
    made.clear()
    monkeypatch.setattr(workers, "accelerators", lambda: ["3", "5"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    workers.begun(file, None, {})
    assert made == [(2, [{"CUDA_VISIBLE_DEVICES": "5"}])]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize("words", [("--jobs", "2", "--processes", "2")])
def test_runs_that_are_divided_go_one_after_another(tmp_path, words):
    (tmp_path / "experiment.toml").write_text(FILE)
    process = started("run", "experiment.toml", *words, cwd=tmp_path)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "give one or the other" in said
