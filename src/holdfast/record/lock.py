"""One run writes to a folder. The operating system lets go of it when the process ends, however it ends."""

import contextlib
import datetime
import errno
import fcntl
import itertools
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from holdfast import processes
from holdfast.errors import FolderInUseError, HoldfastWarning, file_errors_said

LOCK = "lock"
# Seconds for processes of a run that was killed to notice.
_MOMENT = 3
# What a file system without locks answers.
_UNKNOWN = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Be the only run that writes to this folder; refuses where another one does.

    Every process of a run has a file of its own: one that outlives the first still writes.
    """
    refusal = ""
    with contextlib.ExitStack() as until:
        if processes.is_first():
            try:
                with file_errors_said():
                    folder.mkdir(parents=True, exist_ok=True)
                    until.enter_context(_taken(folder, LOCK))
                    _refuse_left(folder, processes.count())
            except FolderInUseError as error:
                refusal = str(error)
        refusal = processes.told_by_first(refusal) or _of_the_others(folder, until)
        if refusal:
            raise FolderInUseError(refusal)
        yield


@contextlib.contextmanager
def held_beside(folder: Path) -> Iterator[None]:
    """Write to this folder beside the run that holds it, for which this process works.

    Should that run be killed, no other one begins before this process has ended.
    """
    with contextlib.ExitStack() as until:
        for number in itertools.count(1):
            try:
                with file_errors_said():
                    until.enter_context(_taken(folder, f"{LOCK}-{number}"))
                    break
            except FolderInUseError:
                continue
        yield


def _of_the_others(folder: Path, until: contextlib.ExitStack) -> str:
    """Every process but the first takes its own; what keeps one of them out, to all."""
    if processes.count() == 1:
        return ""
    free = True
    if not processes.is_first():
        # Taken by the process itself: were it asked for by the first, one that is just about to let go
        # of the folder would be in the way of the same run.
        try:
            until.enter_context(_taken(folder, f"{LOCK}-{processes.rank()}"))
        except FolderInUseError:
            free = False
    all_free = processes.gathered(np.array(free))
    if all_free.all():
        return ""
    with open(folder / f"{LOCK}-{int(np.argmin(all_free))}", "rb") as file:
        return _refusal(folder, file)


def refuse_held(folder: Path) -> None:
    """Refuse a folder that another run writes to; the first process looks, before any of this run does."""
    if processes.is_first():
        with file_errors_said(), _taken(folder, LOCK):
            _refuse_left(folder, 1)


def is_held_by_living_process(folder: Path) -> bool:
    """Whether the process that last signed the folder's lock is there, as far as this machine can tell.

    Who only looks on must not take the lock, not even for an instant: a run might just ask for it.
    """
    try:
        about = json.loads((folder / LOCK).read_bytes())
        process, machine = int(about["process"]), about["machine"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if machine != socket.gethostname():
        return True  # nobody can know; its files will tell
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _refuse_left(folder: Path, first: int) -> None:
    """Refuse what a process of another run holds, from this number on, if it does not end in a moment."""
    end = time.monotonic() + _MOMENT
    for path in folder.glob(f"{LOCK}-*"):
        rank = path.name.removeprefix(f"{LOCK}-")
        while rank.isdecimal() and int(rank) >= first:
            try:
                with _taken(folder, path.name):
                    break
            except FolderInUseError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def _taken(folder: Path, name: str) -> Iterator[None]:
    # The file stays: were it removed, two runs could each hold one of that name.
    with open(folder / name, "a+b") as file, contextlib.ExitStack() as until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(_refusal(folder, file)) from None
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
            warnings.warn(
                f"{folder} is on a file system without locks ({error.strerror}); see to it that no other "
                f"run writes to it.",
                HoldfastWarning,
                stacklevel=2,
            )
        else:
            # Said rather than left to closing: a child that another thread is just starting has a
            # copy of this file until it runs its own program, and would hold the lock that long.
            until.callback(fcntl.flock, file, fcntl.LOCK_UN)
        _sign(file)
        yield


def _sign(file: BinaryIO) -> None:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    about = {"process": os.getpid(), "machine": socket.gethostname(), "since": now}
    file.truncate(0)
    file.write(json.dumps(about).encode())
    file.flush()


def _refusal(folder: Path, file: BinaryIO) -> str:
    file.seek(0)
    try:
        about = json.loads(file.read())
        who = f"process {about['process']} on {about['machine']}, since {about['since']}"
    except (ValueError, KeyError, TypeError):  # it is just being written
        who = "another process"
    return (
        f"{folder} is in use: {who}, writes to it. Wait until it ends or stop it; or give "
        f"another folder."
    )
