"""A site's own process: it answers as the site does, stays, is started again, follows its file, and ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import holdfast as hf
from holdfast.deploy import messages, site_process
from holdfast.deploy.ending import is_alive, marked
from holdfast.deploy.site_process import SiteFailedError, answered
from tests.deploy.federations import experiment

_ASK = messages.Ask().pack()
_MODULE = """\
from pathlib import Path

import holdfast as hf
from tests.deploy.federations import experiment


def site(config):
    path = Path(config["site"])
    with open(path.parent / "times", "a") as f:
        f.write("made\\n")
    return hf.deploy.site_from_file(path, experiment())
"""
# A message's process, which has no JAX; its parent is this test.
_MESSAGE = """\
import sys
from holdfast.deploy.site_process import answered
answer = answered("a_site:site", {"site": sys.argv[1]}, bytes.fromhex(sys.argv[2]), float(sys.argv[3]))
assert "jax" not in sys.modules
print(answer.hex())
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A site's file, and a module that makes the site of it; its processes are ended."""
    own = experiment().clients[0]
    np.savez(tmp_path / "north.npz", x=own.x, y=own.y)
    (tmp_path / "site.toml").write_text(
        'name = "north"\nfolder = "state"\n[data]\nfile = "north.npz"\n'
    )
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a_site.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "given"))
    # By which its processes are found.
    monkeypatch.setenv("SITE_PROCESS_TEST", str(tmp_path))
    yield tmp_path
    for pid in processes(tmp_path):
        os.kill(pid, signal.SIGKILL)
    for process in site_process._started:
        process.wait()


def processes(place):
    return marked(f"SITE_PROCESS_TEST={place}", "serve(given)")


def asked(place, stay=60.0):
    return answered("a_site:site", {"site": str(place / "site.toml")}, _ASK, stay)


def times_made(place):
    return len((place / "times").read_text().split())


def gone(pids, seconds=30.0):
    until = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(is_alive(pid) for pid in pids)


def test_it_stays_is_started_again_if_it_is_killed_and_reads_a_file_that_was_changed(place):
    expected = hf.deploy.site_from_file(place / "site.toml", experiment()).answer(_ASK)
    assert asked(place) == asked(place) == expected
    assert times_made(place) == 1
    (first,) = processes(place)
    os.kill(first, signal.SIGKILL)
    assert gone([first])
    assert asked(place) == expected
    assert times_made(place) == 2
    written = (place / "site.toml").read_text()
    (place / "site.toml").write_text(written.replace('"north"\nf', '"west"\nf'))
    assert b'"west"' in asked(place)


def test_what_is_wrong_with_a_site_is_said_and_mended_without_a_restart(place):
    written = (place / "site.toml").read_text()
    (place / "site.toml").write_text(written.replace("north.npz", "south.npz"))
    with pytest.raises(SiteFailedError, match=r"HoldfastError: .*there is no file .*south\.npz"):
        asked(place)
    # A file that the site's file names is not looked at; who has failed is gone anyway.
    np.savez(place / "south.npz", **np.load(place / "north.npz"))
    assert b"facts" in asked(place)


def test_it_ends_when_nothing_comes_and_with_the_process_of_its_supernode(place):
    assert b"facts" in asked(place, stay=0.5)
    assert gone(processes(place))
    there = [sys.executable, "-c", _MESSAGE, str(place / "site.toml"), _ASK.hex(), "600"]
    # The shell plays the SuperNode: it starts a message's process, and is there until it is told to go.
    shell = 'read go; "$@"; read go'
    supernode = subprocess.Popen(
        ["sh", "-c", shell, "sh", *there],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
    )
    with supernode:
        supernode.stdin.write("go\n")
        supernode.stdin.flush()
        assert b"facts" in bytes.fromhex(supernode.stdout.readline())
        here = processes(place)
        assert len(here) == 1
        supernode.stdin.write("go\n")
        supernode.stdin.close()
        assert supernode.wait(60) == 0
    assert gone(here)


def test_its_socket_is_for_its_user_alone(place, tmp_path, monkeypatch):
    short = Path("/tmp") / f"holdfast-test-{os.getpid()}"
    short.mkdir()
    try:
        monkeypatch.setattr("tempfile.tempdir", str(short))
        (short / f"holdfast-{os.getuid()}").mkdir(mode=0o755)
        with pytest.raises(SiteFailedError, match="not a folder of this user alone"):
            asked(place)
        (short / f"holdfast-{os.getuid()}").rmdir()
        assert b"facts" in asked(place)
        assert (short / f"holdfast-{os.getuid()}").stat().st_mode & 0o077 == 0
    finally:
        for pid in processes(place):
            os.kill(pid, signal.SIGKILL)
        for path in sorted(short.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        short.rmdir()
