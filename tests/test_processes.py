"""Two processes on the loopback interface: the same bits as one, and a good save if one is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from holdfast import HoldfastError, processes
from holdfast.errors import FolderInUseError
from holdfast.record.lock import held
from tests.trials import two_processes

FILE = """
rounds = {rounds}
[data]
name = "breast_cancer"
[partition]
name = "dirichlet"
clients = 9
concentration = 1.0
[model]
name = "logistic_regression"
[local]
learning_rate = 0.1
epochs = 1
batch_size = 16
[cohort]
name = "fixed"
size = 5
[checkpoint]
every = 3
[evaluate]
every = 50
[[algorithm]]
name = "feddyn"
alpha = 0.1
"""
RESULTS = (
    "params.safetensors",
    "history.jsonl",
    "ledger.jsonl",
    "clients.json",
    "predictions.safetensors",
    "start.json",
)


def holdfast(*words, **options):
    command = [sys.executable, "-m", "holdfast", *words, "--no-report"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def finished(child, code=0):
    out, err = child.communicate(timeout=240)
    assert child.returncode == code, out + err
    return out, err


def same_results(one, two):
    folders = [Path(f) / "methods" / "feddyn" / "seed-0" for f in (one, two)]
    return all(len({(f / name).read_bytes() for f in folders}) == 1 for name in RESULTS)


JOINED = """
import sys
import jax
import numpy as np
from jax import tree
import holdfast as hf
from holdfast import processes

processes.connect_from_environment()
rng = np.random.default_rng(0)
def population(clients, weight):
    sizes = rng.integers(3, 20, clients)
    parts = [hf.Examples(rng.normal(size=(n, 4)), rng.integers(0, 3, n)) for n in sizes]
    model = hf.models.softmax_regression(3)
    local = hf.Local(0.1 / weight, epochs=2, batch_size=6, clip=1.0 if weight > 1 else None)
    clients = hf.Clients.from_datasets(parts)
    return hf.Population(clients, model, hf.cohorts.fixed(4), weight, local=local)
both = hf.join([population(5, 1.0), population(7, 2.5)])
kept = []
run = hf.simulate(hf.algorithms.scaffold(), **both, rounds=6, on_round=kept.append)
again = hf.simulate(hf.algorithms.scaffold(), **both, rounds=6, start=kept[2])
# States of rounds that later ones have overwritten, wherever they are by now.
states = [kept[k].client_states.read(np.arange(12)) for k in (0, 2, 5)]
found = run.params, run.state.server, again.params, again.state.client_states.read(np.arange(12)), states
moved = run.state.client_states.exchanged_bytes
assert (moved > 0) == (processes.count() > 1), moved
if processes.is_first():
    np.savez(sys.argv[1], *tree.leaves(jax.device_get(found)))
"""


def test_several_populations_in_two_processes_give_the_bits_of_one(tmp_path):
    (tmp_path / "joined.py").write_text(JOINED)
    found = []
    for number in (1, 2):
        path = tmp_path / f"{number}.npz"
        assert (
            processes.launch([sys.executable, str(tmp_path / "joined.py"), str(path)], number) == 0
        )
        with np.load(path) as file:
            found.append(dict(file))
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) >= 14
    for name, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][name])


@pytest.mark.long
def test_two_processes_give_the_bits_of_one_and_survive_a_loss(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(FILE.format(rounds=60))
    finished(holdfast("run", str(file), "--out", str(tmp_path / "one")))
    two = tmp_path / "two"
    run = holdfast("run", str(file), "--out", str(two), "--processes", "2")
    deadline = time.monotonic() + 120
    while not list(two.glob("methods/*/seed-0/checkpoints/round-*")):
        assert time.monotonic() < deadline, run.communicate()
        time.sleep(0.02)
    os.kill(_child(run.pid, rank=1), signal.SIGKILL)
    _, err = finished(run, processes.LOST)
    assert "process 1 of 2 was killed (signal 9)" in err
    said = " ".join(err.split())
    assert "another of the 2 processes is gone; the save of round" in said
    assert f"holdfast resume {two} --processes 2" in said

    finished(holdfast("resume", str(two), "--processes", "2"))
    assert same_results(tmp_path / "one", two)


def _child(parent, rank):
    """The process with this rank that the command has started."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            father = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if father != parent:
                continue
            told = (process / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if f"{processes.RANK}={rank}".encode() in told:
            return int(process.name)
    raise AssertionError(f"no process with rank {rank}")


@pytest.mark.long
def test_named_methods_give_the_same_bits_in_one_and_two_processes(tmp_path):
    # `make trials` has all of them: FLIX draws; of the last two the program decided how they were rounded.
    names = ["feddc", "flix", "fedadam", "population_transfer"]
    assert two_processes.compare(tmp_path, names) == []
    for name in ("feddc", "flix"):
        stored = sorted(p.name for p in (tmp_path / "2" / name / "disk").glob("rows-*/*"))
        assert stored == ["0", "1"]  # each process has its own


def test_a_rank_too_many_is_refused():
    with pytest.raises(HoldfastError, match=r"rank=2 of 2; give a number in 0..1"):
        processes.connect("127.0.0.1:7000", 2, 2)
    with pytest.raises(HoldfastError, match=r"coordinator='somewhere'; give host and port"):
        processes.connect("somewhere", 2, 0)


LAUNCHES = """
import sys
from holdfast import processes
sys.exit(processes.launch([sys.executable, sys.argv[1], sys.argv[2]], 2))
"""
WRITES = """
import os, sys, time
from pathlib import Path
from holdfast import processes
from holdfast.record.lock import held
processes.connect_from_environment()
for _ in range(5):  # the second lets go of it later than the first, which asks for it again at once
    with held(Path(sys.argv[1])):
        time.sleep(0.02 * processes.rank())
with held(Path(sys.argv[1])):
    Path(sys.argv[1], f"pid-{processes.rank()}").write_text(str(os.getpid()))
    time.sleep(600)
"""


def test_children_end_with_their_launcher_and_keep_others_out_until_then(tmp_path):
    (tmp_path / "launches.py").write_text(LAUNCHES)
    (tmp_path / "writes.py").write_text(WRITES)
    folder = tmp_path / "run"
    command = [sys.executable, str(tmp_path / "launches.py"), str(tmp_path / "writes.py"), folder]
    launcher = subprocess.Popen(command)
    pids = _eventually(
        lambda: [int(p.read_text()) for p in folder.glob("pid-*") if p.read_text()], 2, launcher
    )
    with pytest.raises(FolderInUseError, match="is in use"), held(folder):
        pass
    for pid in pids:  # they cannot see their launcher die yet
        os.kill(pid, signal.SIGSTOP)
    launcher.kill()
    launcher.wait()
    with pytest.raises(FolderInUseError, match="is in use"), held(folder):
        pass
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    _eventually(lambda: [pid for pid in pids if _has_ended(pid)], 2)
    # A process whose first thread has ended keeps its files until the last one has.
    _eventually(lambda: _free(folder), 1)


def _free(folder):
    try:
        with held(folder):
            return [folder]
    except FolderInUseError:
        return []


def _eventually(found, count, process=None):
    deadline = time.monotonic() + 60
    while len(found()) < count:
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None
        time.sleep(0.02)
    return found()


def _has_ended(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # nobody waits for orphans in some containers
