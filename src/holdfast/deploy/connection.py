"""A SuperLink that is up, and Flower's own commands with which it is spoken to.

They run with telemetry, update checks and installation of packages off.
"""

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.deploy.ending import end
from holdfast.errors import HoldfastError
from holdfast.record.files import write_whole

_CONNECTION = "holdfast"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
}
_HERE = ("127.0.0.1", "localhost", "::1")
_ANSWER = 30.0  # seconds
_LAST_WORDS = 30.0  # after the server's exception
_AGAIN = 2.0  # between looks at a run whose lines have ended
_GONE = 300.0  # without a SuperLink, after which a run is not followed any more


def command(name: str) -> str:
    """One of Flower's commands, beside this Python or on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise HoldfastError(
            f'deploy: the command {name} is not there; pip install "holdfast[flower]".'
        )
    return found


class Connection:
    """A SuperLink that is up, and Flower's command with which it is spoken to.

    Args:
        folder: for Flower's own files.
        address: of the SuperLink, host and port.
        certificate: of the CA that signed the SuperLink's; None is without TLS, on loopback only.
    """

    def __init__(self, folder: Path, address: str, certificate: Path | None) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        if not host or not port.isdecimal():
            raise HoldfastError(
                f"deploy: {address} is no host and port; give one such as 127.0.0.1:8000.",
                about=("superlink",),
            )
        if certificate is None and host not in _HERE:
            raise HoldfastError(
                f"deploy: {address} without TLS is not on this machine; give the certificate of its CA.",
                about=("certificate",),
            )
        if certificate is not None and not certificate.is_file():
            raise HoldfastError(
                f"deploy: there is no certificate {certificate}.", about=("certificate",)
            )
        self.address, self._host, self._port, self._certificate = (
            address,
            host,
            int(port),
            certificate,
        )
        home = folder.resolve() / "flower"
        home.mkdir(parents=True, exist_ok=True)
        # Flower's commands start others of its commands by name.
        path = os.pathsep.join([str(Path(command("flwr")).parent), os.environ.get("PATH", "")])
        self.environment = {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}
        trust = (
            "insecure = true"
            if certificate is None
            else f'root-certificates = "{certificate.resolve()}"'
        )
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n[superlink.{_CONNECTION}]\n'
            f'address = "{address}"\n{trust}\n'
        )

    def check(self) -> None:
        """Refuse a SuperLink that cannot be spoken to, and say why."""
        link = self._http()
        try:
            link.request("GET", "/health")
            link.getresponse().read()
        except ssl.SSLCertVerificationError as error:
            raise HoldfastError(
                f"deploy: the certificate of the SuperLink {self.address} does not fit "
                f"{self._certificate}: {error.verify_message.rstrip('.')}; give the ca.crt that it was "
                f"made with, and an address for which it was made (holdfast deploy keys --host).",
                about=("certificate",),
            ) from None
        except (ssl.SSLError, http.client.HTTPException, ConnectionResetError) as error:
            spoken = "with" if self._certificate is not None else "without"
            raise HoldfastError(
                f"deploy: {self.address} answers, but not as a SuperLink {spoken} TLS does "
                f"({type(error).__name__}); give --ca where it has a certificate, --insecure where not.",
                about=("certificate",),
            ) from None
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise HoldfastError(
                f"deploy: no SuperLink answers at {self.address} ({why}); start it there, or give "
                f"--superlink HOST:PORT.",
                about=("superlink",),
            ) from None
        finally:
            link.close()

    def _http(self) -> http.client.HTTPConnection:
        if self._certificate is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER)
        try:
            trust = ssl.create_default_context(cafile=str(self._certificate))
        except (ssl.SSLError, OSError):
            raise HoldfastError(
                f"deploy: {self._certificate} has no certificate that can be read; give the ca.crt of "
                f"holdfast deploy keys.",
                about=("certificate",),
            ) from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=_ANSWER, context=trust)

    def flwr(self, *arguments: str, at: int | None = None) -> str:
        """A command of Flower's to this SuperLink, whose name goes to the end or to a place; its output."""
        place = len(arguments) if at is None else at
        done = subprocess.run(
            [command("flwr"), *arguments[:place], _CONNECTION, *arguments[place:]],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = " ".join(_plain(done.stderr or done.stdout).split()).strip("╭╮╰╯─│ ")
            # Asked for JSON, Flower says what is wrong in it, after a line of its own.
            told = re.search(r'"error-message": "(.*?)(?<!\\)"', said)
            said = told[1].rpartition(r"\n")[2] if told else said
            raise HoldfastError(f"deploy: flwr {' '.join(arguments[:2])} failed: {said[-300:]}")
        return done.stdout

    def register(self, key: Path) -> None:
        """Let a site in by its public key, whose file has its name: Flower lists sites by numbers."""
        found = self._json("supernode", "register", str(key))
        names = self._names() | {str(found.get("node-id")): key.stem}
        write_whole(self._named, json.dumps(names, indent=1) + "\n")

    def sites(self) -> list[dict[str, Any]]:
        """Registered sites and those that are there, each with Flower's `node-id` and `status`, and with the
        `name` by which it was registered from here."""
        names = self._names()
        return [
            one | {"name": names.get(str(one["node-id"]), "")}
            for one in self._listed("nodes", "supernode", "list")
        ]

    @property
    def _named(self) -> Path:
        return Path(self.environment["FLWR_HOME"]) / "sites.json"

    def _names(self) -> dict[str, str]:
        try:
            found = json.loads(self._named.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            raise HoldfastError(
                f"deploy: {self._named} cannot be read; delete it, and sites are listed by numbers."
            ) from None
        return {str(number): str(name) for number, name in found.items()}

    def runs(self) -> list[dict[str, Any]]:
        """Runs that were submitted, each with Flower's `run-id` and `status`."""
        return self._listed("runs", "list")

    def _listed(self, what: str, *words: str) -> list[dict[str, Any]]:
        said = self._json(*words)
        gone = ("deleted", "unregistered")
        return [one for one in said.get(what, ()) if one.get("status") not in gone]

    def _json(self, *words: str) -> dict[str, Any]:
        said = self.flwr(*words, "--format", "json")
        try:
            # Flower says what it is about to do on the line before.
            found = json.loads(said[said.index("{") :])
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found.get("success"):
            raise HoldfastError(
                f"deploy: flwr {' '.join(words[:2])} failed: {' '.join(said.split())[-300:]}"
            )
        return found

    def run(self, app: Path, **config: str | float) -> Iterator[str]:
        """Submit an app; the lines that its server says, until it ends."""
        return self.follow(self.submit(app, **config))

    def submit(self, app: Path, **config: str | float) -> str:
        """Submit an app; the number of its run."""
        words = " ".join(
            f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"
            for name, value in config.items()
        )
        said = self.flwr("run", str(app), "--run-config", words, "--format", "json", at=2)
        found = re.search(r'"run-id": *"(\d+)"', said)
        if found is None:
            raise HoldfastError(f"deploy: no run was begun: {' '.join(said.split())[-300:]}")
        return found[1]

    def follow(self, run: str) -> Iterator[str]:
        """The lines that a run's server says, until the run ends; raises if it fails.

        A SuperLink that is started again meanwhile is asked again: the run may outlive it.
        """
        told, silent, failure = 0, time.monotonic(), ""
        over = False
        while True:
            for place, line in enumerate(self._lines(run)):
                silent = time.monotonic()
                # From the first line again, if it was interrupted.
                if place >= told:
                    told = place + 1
                    if re.match(r"\S*(Error|Exception): ", line):
                        failure = line
                    if line:
                        yield line
            if over:
                return
            status, why = self._status(run, silent)
            if status == "finished:completed":
                # Its last lines may have come after the stream broke.
                over = True
            elif status.startswith("finished") or failure:
                raise HoldfastError(
                    f"deploy: the run ended: {_reason(failure or why or status)[:400]}"
                )
            else:
                time.sleep(_AGAIN)

    def _lines(self, run: str) -> Iterator[str]:
        process = subprocess.Popen(
            [command("flwr"), "log", run, _CONNECTION, "--stream"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        ending = threading.Timer(_LAST_WORDS, end, [process])
        ending.daemon = True
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield _plain(line)
                # Flower ends its stream of lines with the run; but a SuperLink may fail to note that it did.
                if "raised an exception" in line and not ending.is_alive():
                    ending.start()
        finally:
            ending.cancel()
            end(process)
            if process.stdout is not None:
                process.stdout.close()

    def _status(self, run: str, silent: float) -> tuple[str, str]:
        """Of a run, and details; of a SuperLink that does not answer for long, its error."""
        try:
            found = self._json("list", "--run-id", run)["runs"][0]
        except HoldfastError:
            if time.monotonic() - silent > _GONE:
                raise
            return "unknown", ""
        return str(found["status"]), str(found.get("status-details") or "")


def _plain(line: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line).strip()


def _reason(line: str) -> str:
    """In plain words: of the last line of a traceback what this library said."""
    if "No heartbeat" in line:
        return (
            "its server's process is gone; submit it again (holdfast deploy resume), and it goes on from "
            "its folder."
        )
    return re.sub(r"^[\w.]*Error: ", "", line)[:400]
