"""A whole federation on this machine: SuperLink, a SuperNode for every site, a run; on loopback only.

Processes are Flower's own commands. They are started with telemetry, update checks and installation of
packages off, and ended when the federation is left.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from holdfast.deploy.keys import write_keys
from holdfast.errors import HoldfastError

_CONNECTION = "holdfast"
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}
_START = 120.0  # seconds a SuperLink may take
_END = 10.0
_LAST_WORDS = 30.0  # after the server's exception


def command(name: str) -> str:
    """One of Flower's commands, beside this Python or on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise HoldfastError(
            f'deploy: the command {name} is not there; pip install "holdfast[flower]".'
        )
    return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Connection:
    """A SuperLink that is up, and Flower's command with which it is spoken to.

    Args:
        folder: for Flower's own files.
        address: of the SuperLink, host and port.
        certificate: of the CA that signed the SuperLink's; None is without TLS, on loopback only.
    """

    def __init__(self, folder: Path, address: str, certificate: Path | None) -> None:
        host = address.rpartition(":")[0].strip("[]")
        if certificate is None and host not in ("127.0.0.1", "localhost", "::1"):
            raise HoldfastError(
                f"deploy: {address} without TLS is not on this machine; give the certificate of its CA.",
                about=("certificate",),
            )
        home = folder.resolve() / "flower"
        home.mkdir(parents=True, exist_ok=True)
        # Flower's commands start others of its commands by name.
        path = os.pathsep.join([str(Path(command("flwr")).parent), os.environ.get("PATH", "")])
        self.environment = {**os.environ, **_QUIET, "FLWR_HOME": str(home), "PATH": path}
        trust = (
            "insecure = true"
            if certificate is None
            else f'root-certificates = "{certificate.resolve()}"'
        )
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n[superlink.{_CONNECTION}]\n'
            f'address = "{address}"\n{trust}\n'
        )

    def flwr(self, *arguments: str) -> str:
        """A command of Flower's to this SuperLink; its output."""
        done = subprocess.run(
            [command("flwr"), *arguments, _CONNECTION],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HoldfastError(
                f"deploy: flwr {' '.join(arguments[:2])} failed: "
                f"{' '.join((done.stderr or done.stdout).split())[-300:]}"
            )
        return done.stdout

    def run(self, app: Path, **config: str | float) -> Iterator[str]:
        """Submit an app; the lines that its server says, until it ends."""
        words = " ".join(
            f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"
            for name, value in config.items()
        )
        process = subprocess.Popen(
            [command("flwr"), "run", str(app), _CONNECTION, "--stream", "--run-config", words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        said: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(_plain(line))
                # Flower ends its stream of lines with the run; but a SuperLink may fail to note that it did.
                if "raised an exception" in said[-1]:
                    ending = threading.Timer(_LAST_WORDS, end, [process])
                    ending.daemon = True
                    ending.start()
                if said[-1]:
                    yield said[-1]
            process.wait()
        finally:
            end(process)
            if process.stdout is not None:
                process.stdout.close()
        failed = any("Exit Code" in s or "raised an exception" in s for s in said)
        if process.returncode or failed:
            last = next((s for s in reversed(said) if "Error" in s), " ".join(said[-2:]))
            raise HoldfastError(f"deploy: the run ended: {last[:300]}")


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
        self._before: Any = None  # what SIGTERM did before
        self._ports = _free_ports(1 + len(sites))
        self.folder.mkdir(parents=True, exist_ok=True)
        certificate = None if insecure else self.keys / "ca.crt"
        self.connection = Connection(self.folder, self.address, certificate)

    @property
    def address(self) -> str:
        """Of the SuperLink."""
        return f"127.0.0.1:{self._ports[0]}"

    def __enter__(self) -> "LocalFederation":
        # Told to end, a Python process ends without leaving its `with`. Signals are for the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _interrupted)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes.values()):
            end(process)
        self.processes.clear()
        # The server's process has a session of its own, and outlives a SuperLink that was killed.
        end_all(self.started())
        for log in self._logs:
            log.close()
        self._logs.clear()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def started(self, word: str = "") -> list[int]:
        """Processes of this federation: by its folder in their environment, and a word of their command."""
        mark = f"FLWR_HOME={self.connection.environment['FLWR_HOME']}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environment = (path / "environ").read_bytes().split(b"\0")
                arguments = (path / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:  # it has ended, or is somebody else's
                continue
            if mark in environment and word.encode() in arguments and int(path.name) != os.getpid():
                found.append(int(path.name))
        return found

    def _start(self) -> None:
        if not self.insecure:
            write_keys(self.keys, list(self.sites))
        self.start_superlink()
        for name in self.sites:
            if not self.insecure:
                self.connection.flwr("supernode", "register", str(self.keys / f"{name}.pub"))
            self.start_site(name)

    def start_superlink(self) -> None:
        """The server's side; returns once it can be reached."""
        port = str(self._ports[0])
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
        arguments = ["--host", "127.0.0.1", "--port", port, "--database", database, *secure]
        process = self._popen("superlink", [command("flower-superlink"), *arguments])
        began = time.monotonic()
        while not _answers(self._ports[0]):
            if process.poll() is not None or time.monotonic() - began > _START:
                raise HoldfastError(
                    f"deploy: the SuperLink does not start; {self.folder / 'superlink.log'} says why."
                )
            time.sleep(0.1)

    def start_site(self, name: str) -> None:
        """A site's SuperNode."""
        place = list(self.sites).index(name)
        secure = (
            ["--insecure"]
            if self.insecure
            else [
                "--root-certificates", str(self.keys / "ca.crt"),
                "--auth-supernode-private-key", str(self.keys / f"{name}.key"),
            ]
        )  # fmt: skip
        config = f'site="{self.sites[name].resolve()}"'
        arguments = ["--superlink", self.address, "--host", "127.0.0.1"]
        arguments += ["--port", str(self._ports[1 + place]), "--node-config", config, *secure]
        self._popen(f"site-{name}", [command("flower-supernode"), *arguments])

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


def _plain(line: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line).strip()


def _answers(port: int) -> bool:
    with contextlib.closing(socket.socket()) as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def end_all(processes: Sequence[int]) -> None:
    """End processes that are not children of this one."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        until = time.monotonic() + _END
        while any(_is_alive(pid) for pid in processes) and time.monotonic() < until:
            time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        # Who has ended and is not waited for yet has a state of Z; its name before may have any characters.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


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
