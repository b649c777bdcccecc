"""A whole federation on this machine: SuperLink, a SuperNode for every site, a run; on loopback only.

Processes are Flower's own commands. They are started with telemetry, update checks and installation of
packages off, and ended when the federation is left. The server's app is started by a process of its own
(`--isolation process`), so that a run outlives its SuperLink.
"""

import concurrent.futures
import contextlib
import fcntl
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from holdfast.deploy.connection import Connection, command
from holdfast.deploy.ending import end, end_all, marked
from holdfast.deploy.keys import write_keys
from holdfast.errors import HoldfastError

_START = 120.0  # seconds a SuperLink may take


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


class LocalFederation:
    """Starts everything on entry and ends it on exit.

    Args:
        folder: for Flower's files, logs and keys.
        sites: site files by the name of the site.
        insecure: without TLS and keys.
    """

    def __init__(self, folder: Path, sites: dict[str, Path], insecure: bool = False) -> None:
        self.folder, self.sites, self.insecure = folder.resolve(), sites, insecure
        self.keys = self.folder / "keys"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []
        self._before: dict[int, Any] = {}  # what signals did before
        self._lock: IO[bytes] | None = None
        self._ports = _free_ports(1 + len(sites))
        self.folder.mkdir(parents=True, exist_ok=True)
        if not insecure:
            write_keys(self.keys, list(self.sites))
        certificate = None if insecure else self.keys / "ca.crt"
        self.connection = Connection(self.folder, self.address, certificate)

    @property
    def address(self) -> str:
        """Of the SuperLink."""
        return f"127.0.0.1:{self._ports[0]}"

    def __enter__(self) -> "LocalFederation":
        self._take()
        # Told to end, a Python process ends without leaving its `with`. Signals are for the main thread only.
        if threading.current_thread() is threading.main_thread():
            for sign in (signal.SIGTERM, signal.SIGHUP):
                self._before[sign] = signal.signal(sign, _interrupted)
            self._before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # Whoever presses Ctrl-C again does not want processes left behind.
        for sign in self._before:
            signal.signal(sign, signal.SIG_IGN)
        with concurrent.futures.ThreadPoolExecutor() as side_by_side:
            list(side_by_side.map(end, self.processes.values()))
        self.processes.clear()
        # Processes of apps have sessions of their own, and outlive a SuperLink that was killed.
        end_all(self.started)
        for log in self._logs:
            log.close()
        self._logs.clear()
        if self._lock is not None:
            self._lock.close()
        for sign, handler in self._before.items():
            signal.signal(sign, handler)
        self._before.clear()

    def _take(self) -> None:
        """Be the only one in this folder; what one that was killed has left behind there is ended."""
        self._lock = open(self.folder / "lock", "wb")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise HoldfastError(
                f"deploy: a federation is up in {self.folder} already; wait for it, or end it."
            ) from None
        end_all(self.started)

    def started(self, word: str = "") -> list[int]:
        """Processes of this federation: by its folder in their environment, and a word of their command."""
        return marked(f"FLWR_HOME={self.connection.environment['FLWR_HOME']}", word)

    def _start(self) -> None:
        # What a SuperLink remembers of sites and runs is of no use: the saves are in the folder of the run.
        for path in (self.folder / "flower").glob("superlink.db*"):
            path.unlink()
        self.start_superlink()
        self.start_superexec()
        if not self.insecure:
            with concurrent.futures.ThreadPoolExecutor() as side_by_side:
                list(side_by_side.map(self.register, self.sites))
        for name in self.sites:
            self.start_site(name)

    def register(self, name: str) -> None:
        """Let a site in."""
        self.connection.flwr("supernode", "register", str(self.keys / f"{name}.pub"))

    def start_superlink(self) -> None:
        """The server's side; returns once it can be reached."""
        secure = (
            ["--insecure"]
            if self.insecure
            else [
                "--enable-supernode-auth",
                "--ssl-ca-certfile", str(self.keys / "ca.crt"),
                "--ssl-certfile", str(self.keys / "server.crt"),
                "--ssl-keyfile", str(self.keys / "server.key"),
            ]
        )  # fmt: skip
        database = str(self.folder / "flower" / "superlink.db")
        process = self._popen(
            "superlink",
            [
                command("flower-superlink"), "--host", "127.0.0.1", "--port", str(self._ports[0]),
                "--database", database, "--isolation", "process", *secure,
            ],
        )  # fmt: skip
        began = time.monotonic()
        while not _answers(self._ports[0]):
            if process.poll() is not None or time.monotonic() - began > _START:
                raise HoldfastError(
                    f"deploy: the SuperLink does not start; {self.folder / 'superlink.log'} says why."
                )
            time.sleep(0.1)

    def start_superexec(self) -> None:
        """What starts the server's app when one is submitted."""
        arguments = [command("flower-superexec"), "--runtime-api-address", self.address]
        self._popen("superexec", [*arguments, *self._trust()])

    def start_site(self, name: str) -> None:
        """A site's SuperNode."""
        place = list(self.sites).index(name)
        key = (
            []
            if self.insecure
            else ["--auth-supernode-private-key", str(self.keys / f"{name}.key")]
        )
        config = f'site="{self.sites[name].resolve()}"'
        self._popen(
            f"site-{name}",
            [
                command("flower-supernode"), "--superlink", self.address, "--host", "127.0.0.1",
                "--port", str(self._ports[1 + place]), "--node-config", config, *self._trust(), *key,
            ],
        )  # fmt: skip

    def _trust(self) -> list[str]:
        return (
            ["--insecure"] if self.insecure else ["--root-certificates", str(self.keys / "ca.crt")]
        )

    def _popen(self, name: str, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        log = open(self.folder / f"{name}.log", "ab")  # noqa: SIM115
        self._logs.append(log)
        self.processes[name] = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self.connection.environment,
            start_new_session=True,
        )
        return self.processes[name]


def _answers(port: int) -> bool:
    with contextlib.closing(socket.socket()) as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
