"""Stopped and killed at random moments, a run ends in the same bits."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.record.progress import Progress
from holdfast.runs.execute import create, execute
from holdfast.runs.one_run import interrupts

FILE = """\
rounds = 200
seeds = 2

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 8
concentration = 0.3

[model]
name = "softmax_regression"

[local]
learning_rate = 0.1
batch_size = 20

[cohort]
name = "fixed"
size = 3

[checkpoint]
every = 3

[[algorithm]]
name = "scaffold"
"""
SAME = (
    "history.jsonl",
    "ledger.jsonl",
    "clients.json",
    "params.safetensors",
    "predictions.safetensors",
    "start.json",
)


def test_what_ctrl_c_comes_out_as_is_ctrl_c():
    def write(interrupted):
        try:
            if interrupted:
                signal.raise_signal(signal.SIGINT)
        finally:
            raise OSError("the transaction is closed")  # as a database does on its way out

    with pytest.raises(KeyboardInterrupt), interrupts():
        write(True)
    with pytest.raises(OSError, match="closed"), interrupts():
        write(False)


def start(*words: str, cwd: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "holdfast", *words, "--no-report"]
    # What one start compiles the next one finds.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(cwd / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | cache,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def ends_well(process: subprocess.Popen) -> None:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said.decode()


def rounds_written(folder: Path) -> int:
    files = folder.glob("methods/scaffold/seed-*/history.jsonl")
    return sum(len(f.read_text().splitlines()) for f in files)


def stop_after(process: subprocess.Popen, folder: Path, rounds: int, how: int) -> str:
    """Wait until some rounds are written, then a moment more, and send the signal."""
    while rounds_written(folder) < rounds and process.poll() is None:
        time.sleep(0.002)
    time.sleep(random.random() * 0.02)
    assert process.poll() is None, "it ended before it could be stopped"
    process.send_signal(how)
    said, _ = process.communicate(timeout=120)
    return said.decode()


@pytest.mark.long
def test_stopped_and_killed_it_ends_in_the_same_bits(tmp_path):
    (tmp_path / "experiment.toml").write_text(FILE)
    ends_well(start("run", "experiment.toml", "--out", "whole", cwd=tmp_path))
    killed = tmp_path / "killed"

    first = start("run", "experiment.toml", "--out", "killed", cwd=tmp_path)
    said = stop_after(first, killed, 8, signal.SIGINT)
    assert first.returncode == 130, said
    assert "holdfast resume killed" in said
    for rounds in (random.randint(15, 30), random.randint(50, 65)):
        again = start("resume", "killed", cwd=tmp_path)
        stop_after(again, killed, rounds, signal.SIGKILL)
        assert again.returncode == -signal.SIGKILL
    ends_well(start("resume", "killed", cwd=tmp_path))

    for seed in ("seed-0", "seed-1"):
        for name in SAME:
            one = tmp_path / "whole" / "methods" / "scaffold" / seed / name
            other = tmp_path / "killed" / "methods" / "scaffold" / seed / name
            assert one.read_bytes() == other.read_bytes(), f"{seed}: {name}"
    assert rounds_written(killed) == 400


def test_an_interrupt_that_a_library_swallows_still_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(FILE)
    made = study(read(Path("experiment.toml")))

    def swallows(method: str, seed: int, row: dict) -> None:
        if row["round"] == 4:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    folder = create(made, Path("run"))
    with (
        pytest.raises(KeyboardInterrupt),
        Progress(200, 2) as silent,
    ):
        execute(made, folder, silent, (swallows,))
    assert rounds_written(Path("run")) == 4
    assert signal.getsignal(signal.SIGINT) is before
