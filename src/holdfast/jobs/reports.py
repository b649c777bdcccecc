"""What jobs in other processes of this machine say while they work."""

import contextlib
import os
import queue
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple


class Address(NamedTuple):
    """Where to say it."""

    path: str
    key: bytes


class Reports:
    """Listens for as long as its `with` lasts; `heard` gives what has come, in whatever thread asks for it.

    Example:
        >>> with Reports() as reports:
        ...     with reporting(reports.address) as say:
        ...         say("halfway")
        ...     reports.next(timeout=10)
        'halfway'
    """

    def __enter__(self) -> "Reports":
        key = os.urandom(16)
        # By a name that is no file's: a path to one has a limit, and folders for temporary files may be deep.
        name = f"\0holdfast-{os.getpid()}-{uuid.uuid4().hex}"
        self._listener = Listener(name, "AF_UNIX", backlog=64, authkey=key)
        self.address = Address(name, key)
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._over = False
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        # Who waits for a caller does not notice that nobody can call any more. Without a word, since it may
        # have seen that all is over and answer nobody.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as caller:
            caller.connect(self.address.path)
        self._listener.close()

    def heard(self) -> Iterator[Any]:
        """All that has come and was not asked for before."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._said.get_nowait()

    def next(self, timeout: float) -> Any:
        """The next that comes; `queue.Empty` if none does in so many seconds."""
        return self._said.get(timeout=timeout)

    def _listen(self) -> None:
        while not self._over:
            # Somebody may go away while they introduce themselves.
            with contextlib.suppress(OSError, EOFError):
                line = self._listener.accept()
                threading.Thread(target=self._read, args=(line,), daemon=True).start()

    def _read(self, line: "Connection[Any, Any]") -> None:
        # A worker that is killed says nothing more.
        with line, contextlib.suppress(EOFError, OSError):
            while True:
                self._said.put(line.recv())


@contextlib.contextmanager
def reporting(address: Address) -> Iterator[Callable[[Any], None]]:
    """A function that says something there."""
    with Client(address.path, "AF_UNIX", authkey=address.key) as line:
        yield line.send
