"""Ending processes that were started here, with all that they started."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_END = 10.0  # seconds that a process has before it is killed
_LOOK = 0.05


def end(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """End a process that was started here, and those it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        # Its own group, which it leads: what it started may outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        try:
            process.wait(_END)
        except subprocess.TimeoutExpired:
            continue


def marked(mark: str, word: str = "") -> list[int]:
    """Processes with these words in their environment, and a word in their command; not this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            arguments = (path / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:  # it has ended, or is somebody else's
            continue
        if mark.encode() in environment and word.encode() in arguments:
            found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid() and is_alive(pid)]


def end_all(found: Callable[[], Sequence[int]]) -> None:
    """End processes that are not children of this one, until none is found: some may be starting more."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        until, told = time.monotonic() + _END, set[int]()
        while (there := found()) and time.monotonic() < until:
            for pid in there:
                if pid not in told:
                    told.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, sign)
            time.sleep(_LOOK)


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and is not waited for yet does not."""
    try:
        # The state is Z then; the name before it may have any characters.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
