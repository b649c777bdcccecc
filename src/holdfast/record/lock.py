"""One run writes to a folder. The operating system lets go of it when the process ends, however it ends."""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast import processes
from holdfast.errors import FolderInUseError, HoldfastWarning, file_errors_said

LOCK = "lock"
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
                    for left in folder.glob(f"{LOCK}-*"):
                        with _taken(folder, left.name):
                            pass
            except FolderInUseError as error:
                refusal = str(error)
        refusal = processes.told_by_first(refusal)
        if refusal:
            raise FolderInUseError(refusal)
        if not processes.is_first():
            until.enter_context(_taken(folder, f"{LOCK}-{processes.rank()}"))
        yield


def refuse_held(folder: Path) -> None:
    """Refuse a folder that another run writes to."""
    with held(folder):
        pass


@contextlib.contextmanager
def _taken(folder: Path, name: str) -> Iterator[None]:
    # The file stays: were it removed, two runs could each hold one of that name.
    with open(folder / name, "a+b") as file:
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
