"""One writer to a folder, and nobody is locked out by what is dead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import FolderInUseError
from holdfast.record.lock import held
from tests.problems import tiny_clients

HOLDS = """
import fcntl, sys, time
file = open(sys.argv[1], "ab")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def test_a_second_writer_is_refused_and_told_who_the_first_is(tmp_path):
    with held(tmp_path):
        with pytest.raises(FolderInUseError, match="is in use") as caught, held(tmp_path):
            pass
        said = str(caught.value)
        assert f"process {os.getpid()} on " in said
        assert "since 2" in said
        assert "Wait until it ends or stop it" in said
    with held(tmp_path):
        pass


def test_what_a_child_has_inherited_holds_nothing(tmp_path):
    # A child that another thread is just starting has copies of all open files for an instant.
    with held(tmp_path):
        files = {
            int(f.name): os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.is_symlink()
        }
        copies = [
            os.dup(number) for number, path in files.items() if path == str(tmp_path / "lock")
        ]
    try:
        assert copies
        with held(tmp_path):
            pass
    finally:
        for copy in copies:
            os.close(copy)


@pytest.mark.parametrize("name", ["lock", "lock-1"])
def test_a_killed_writer_holds_nothing(tmp_path, name):
    # `lock-1` is held by the second process of a run, which may outlive the first.
    command = [sys.executable, "-c", HOLDS, str(tmp_path / name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(FolderInUseError), held(tmp_path):
            pass
        other.kill()
    with held(tmp_path):
        pass


def test_simulate_refuses_a_folder_that_another_run_saves_to(tmp_path):
    def run():
        model, local = hf.models.softmax_regression(3), hf.Local(0.1, steps=1, batch_size=4)
        return hf.simulate(
            hf.algorithms.fedavg(), model, tiny_clients(), local, rounds=1, checkpoint=tmp_path
        )

    with held(tmp_path), pytest.raises(FolderInUseError, match="is in use"):
        run()
    assert not list(tmp_path.glob("round-*"))
    assert run().state.round == 1
