"""A site's own process, which stays between messages: what it imported, read and compiled is still there.

Flower starts a process for every message. That process hands its message on by a socket that only its user
can open, and starts the site's own process if there is none. Nothing rests on it: a site is a function of a
message and its disk, so whoever kills its process has the next message start another.

Nothing here imports JAX, since Flower's process needs none.
"""

import contextlib
import fcntl
import hashlib
import importlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.deploy.site import Site

_STARTS = 3  # of a process that ends before it answers
_LOOK = 0.2  # seconds between looks at whether its SuperNode is there
_ANSWER, _ERROR = b"\0", b"\1"
# No module is looked for in the current folder, and all others where they are looked for here.
_MAIN = (
    "import sys, json; given = json.loads(sys.stdin.readline()); sys.path[:] = given['path']; "
    "from holdfast.deploy.site_process import serve; serve(given)"
)

# Those that were started here, which outlive this process.
_started: list[subprocess.Popen[bytes]] = []


class SiteFailedError(HoldfastError):
    """The site could not be made, or did not answer; in its own words."""


def named(reference: str) -> Callable[..., Any]:
    """What `module:name` is the name of."""
    module, _, name = reference.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (AttributeError, ValueError):
        raise HoldfastError(f"there is no {reference}; give module:function.") from None
    if not callable(found):
        raise HoldfastError(f"{reference} is no function.")
    return found


def answered(reference: str, config: Mapping[str, Any], data: bytes, stay: float) -> bytes:
    """The answer of a site to a message, by its own process.

    Args:
        reference: of the function that makes the site of `config`, as `module:name`.
        config: what the SuperNode was started with.
        data: the message.
        stay: seconds without a message after which its process ends.
    """
    given = {
        "reference": reference,
        "config": dict(config),
        "path": [str(Path(p or ".").absolute()) for p in sys.path],
        "python": [sys.executable, __version__, __file__],
        # A site's file that was changed is read again.
        "files": [_state_of(value) for value in config.values()],
        # Flower's process of this site: its end is that of the site's own.
        "parent": os.getppid(),
        "stay": stay,
    }
    name = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:32]
    place = _private_folder() / name
    for _ in range(_STARTS):
        _start_unless_there(place, given)
        answer = _asked(place, data)
        if answer is not None:
            break
    else:
        raise SiteFailedError("the site's own process ends before it answers; its log says why.")
    if answer[:1] == _ERROR:
        raise SiteFailedError(answer[1:].decode("utf-8", "replace"))
    return answer[1:]


def _state_of(value: Any) -> list[int]:
    """Of a file, what changes when it is changed."""
    try:
        found = os.stat(value) if isinstance(value, str) else None
    except (OSError, ValueError):
        return []
    return [] if found is None else [found.st_ino, found.st_size, found.st_mtime_ns]


def _private_folder() -> Path:
    """For sockets: of this user alone, and with a short name, as those of sockets must be."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SiteFailedError(
            f"{folder} is not a folder of this user alone; delete it, or set TMPDIR to a folder that is."
        )
    return folder


def _link(place: Path) -> Connection | None:
    try:
        return Client(str(place), family="AF_UNIX")
    except (FileNotFoundError, ConnectionRefusedError):
        return None


def _start_unless_there(place: Path, given: Mapping[str, Any]) -> None:
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (link := _link(place)) is not None:
            link.close()
            return
        # Of one that was killed.
        place.unlink(missing_ok=True)
        process = subprocess.Popen(
            # The words at the end are for whoever looks at a list of processes.
            [
                sys.executable,
                "-P",
                "-c",
                _MAIN,
                given["reference"],
                *map(str, given["config"].values()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        _started[:] = [*(p for p in _started if p.poll() is None), process]
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as told:
            told.write(json.dumps({**given, "place": str(place)}).encode() + b"\n")
        with process.stdout as said:
            said.readline()


def _asked(place: Path, data: bytes) -> bytes | None:
    """The answer; None if the process is not there, or ends before it has answered."""
    link = _link(place)
    if link is None:
        return None
    with link:
        try:
            link.send_bytes(data)
            return link.recv_bytes()
        except (EOFError, OSError):
            return None


def serve(given: Mapping[str, Any]) -> None:
    """Be the site's own process: answer messages until none has come for a while, or its SuperNode ends."""
    place = Path(given["place"])
    threading.Thread(target=_end_with, args=(given["parent"],), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        # Who started it may ask now. Whatever is printed from here on goes to the SuperNode's log.
        print("listening", flush=True)
        os.dup2(2, 1)
        listening.settimeout(given["stay"])
        site: Site | None = None
        with contextlib.suppress(TimeoutError):
            while True:
                link = Connection(listening.accept()[0].detach())
                with link, contextlib.suppress(EOFError, OSError):
                    data = link.recv_bytes()
                    # Whoever only looked whether it is there has gone.
                    try:
                        if site is None:
                            site = made(named(given["reference"]), given["config"])
                        answer = _ANSWER + site.answer(data)
                    except Exception as error:
                        traceback.print_exc()
                        link.send_bytes(_ERROR + f"{type(error).__name__}: {error}".encode())
                        break
                    link.send_bytes(answer)
    place.unlink(missing_ok=True)


def made(make: Callable[..., Any], config: Mapping[str, Any]) -> "Site":
    """The site; what it compiles stays in its folder, for the next process."""
    import jax

    site: Site = make(config)
    jax.config.update("jax_compilation_cache_dir", str(Path(site.folder) / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return site


def _end_with(parent: int) -> None:
    while True:
        time.sleep(_LOOK)
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            os._exit(0)
        except PermissionError:
            continue
