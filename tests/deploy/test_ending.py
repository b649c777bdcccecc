"""What a local federation started is ended with it, whatever ends it. A stand-in plays Flower's part."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from holdfast.deploy.ending import marked

# A SuperLink that starts a server's process in a session of its own and does not end it.
_STAND_IN = """\
#!{python}
import signal, subprocess, sys, time, socket
# It takes its time to end, in which more may happen.
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(1)))
subprocess.Popen(["sleep", "600"], start_new_session=True)
if "superlink" in sys.argv[0]:
    one = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
time.sleep(600)
"""

_MAIN = """\
import sys, time
from pathlib import Path
import holdfast.deploy.connection as connection
import holdfast.deploy.local as local
connection.command = local.command = lambda name: str(Path(sys.argv[1]) / name)
with local.LocalFederation(Path(sys.argv[2]), {"a": Path("a.toml")}, insecure=True) as federation:
    while len(federation.started("sleep")) < 3:
        time.sleep(0.05)
    print("up", flush=True)
    time.sleep(600)
"""


def left_behind(home):
    mark = f"FLWR_HOME={home}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_bytes())
        except OSError:
            continue
    return found


def begun(tmp_path):
    """A federation of stand-ins, in a process of its own; the home of its processes, and that process."""
    for name in ("flwr", "flower-superlink", "flower-superexec", "flower-supernode"):
        (tmp_path / name).write_text(_STAND_IN.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_MAIN), str(tmp_path), str(tmp_path / "local")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    return (tmp_path / "local" / "flower").resolve(), process


@pytest.mark.parametrize(
    ("sign", "moment"),
    [
        (signal.SIGINT, "up"),
        (signal.SIGTERM, "up"),
        (signal.SIGHUP, "up"),
        (signal.SIGINT, "starting"),
        (signal.SIGINT, "ending"),
    ],
)
def test_an_interrupted_federation_leaves_no_process_behind(sign, moment, tmp_path):
    home, process = begun(tmp_path)
    try:
        if moment == "starting":
            while not left_behind(home):
                time.sleep(0.005)
        else:
            assert process.stdout.readline() == "up\n"
            assert len(left_behind(home)) == 6
        process.send_signal(sign)
        if moment == "ending":
            time.sleep(0.2)
            process.send_signal(sign)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.communicate()
    until = time.monotonic() + 5
    while left_behind(home) and time.monotonic() < until:
        time.sleep(0.05)
    assert left_behind(home) == []


def test_one_that_was_killed_is_ended_by_the_next_and_one_that_is_up_is_left_alone(tmp_path):
    home, first = begun(tmp_path)
    try:
        assert first.stdout.readline() == "up\n"
        old = marked(f"FLWR_HOME={home}")
        _, second = begun(tmp_path)
        _, said = second.communicate(timeout=120)
        assert second.returncode != 0
        assert "a federation is up in" in said
        assert marked(f"FLWR_HOME={home}") == old
    finally:
        first.kill()
        first.communicate()
    _, third = begun(tmp_path)
    try:
        assert third.stdout.readline() == "up\n"
        now = marked(f"FLWR_HOME={home}")
        assert len(now) == 6
        assert not set(now) & set(old)
    finally:
        third.send_signal(signal.SIGINT)
        third.communicate(timeout=120)
    assert marked(f"FLWR_HOME={home}") == []
