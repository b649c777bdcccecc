"""What a local federation started is ended with it, whatever ends it. A stand-in plays Flower's part."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

# A SuperLink that starts a server's process in a session of its own and does not end it.
_STAND_IN = """\
#!{python}
import subprocess, sys, time, socket
subprocess.Popen(["sleep", "600"], start_new_session=True)
if "superlink" in sys.argv[0]:
    one = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
time.sleep(600)
"""

_MAIN = """\
import sys, time
from pathlib import Path
import holdfast.deploy.local as local
local.command = lambda name: str(Path(sys.argv[1]) / name)
with local.LocalFederation(Path(sys.argv[2]), {"a": Path("a.toml")}, insecure=True) as federation:
    while len(federation.started("sleep")) < 2:
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


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_federation_leaves_no_process_behind(sign, tmp_path):
    for name in ("flwr", "flower-superlink", "flower-supernode"):
        (tmp_path / name).write_text(_STAND_IN.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    home = (tmp_path / "local" / "flower").resolve()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_MAIN), str(tmp_path), str(tmp_path / "local")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    try:
        assert process.stdout.readline() == "up\n"
        assert len(left_behind(home)) == 4
        process.send_signal(sign)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    until = time.monotonic() + 5
    while left_behind(home) and time.monotonic() < until:
        time.sleep(0.05)
    assert left_behind(home) == []
