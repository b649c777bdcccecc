"""`make deploy-test`: a federation started by hand, as the page on deployment says for several machines.

`holdfast deploy keys | register | run | resume | status` are used on it as one would, and misused.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from holdfast.deploy.connection import QUIET, Connection, command
from holdfast.deploy.ending import end
from holdfast.deploy.local import _free_ports
from holdfast.deploy.starting import SITES, write_federation
from holdfast.errors import HoldfastError
from tests.deploy.test_loopback import resumed, simulated
from tests.problems import same_bits


class ByHand:
    """Processes of a federation, each started as the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ports = folder, _free_ports(1 + len(SITES))
        self.processes: list[subprocess.Popen[bytes]] = []
        home = {"FLWR_HOME": str(folder / "flwr")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, **QUIET, **home, "PATH": path}

    def __enter__(self) -> "ByHand":
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            end(process)

    def start(self, *words: str) -> None:
        log = open(self.folder / f"{Path(words[0]).name}.log", "ab")  # noqa: SIM115
        with log:
            self.processes.append(
                subprocess.Popen(
                    [command(words[0]), *words[1:]],
                    env=self.environment,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def start_server(self) -> None:
        port = str(self.ports[0])
        self.start(
            "flower-superlink", "--host", "127.0.0.1", "--port", port, "--database", "superlink.db",
            "--isolation", "process", "--enable-supernode-auth",
            "--ssl-ca-certfile", "keys/ca.crt", "--ssl-certfile", "keys/server.crt",
            "--ssl-keyfile", "keys/server.key",
        )  # fmt: skip
        self.start(
            "flower-superexec", "--runtime-api-address", f"127.0.0.1:{port}",
            "--root-certificates", "keys/ca.crt",
        )  # fmt: skip

    def start_site(self, name: str) -> None:
        self.start(
            "flower-supernode", "--superlink", f"127.0.0.1:{self.ports[0]}",
            "--root-certificates", "keys/ca.crt", "--auth-supernode-private-key", f"keys/{name}.key",
            "--host", "127.0.0.1", "--port", str(self.ports[1 + SITES.index(name)]),
            "--node-config", f'site="{self.folder / "sites" / name}.toml"',
        )  # fmt: skip

    def deploy(self, *words: str) -> "subprocess.Popen[str]":
        """`holdfast deploy`, begun."""
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", "deploy", *words],
            env={**os.environ, "COLUMNS": "200"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(self, *words: str, fails: bool = False, ca: str = "keys/ca.crt") -> str:
        """`holdfast deploy`: what it said."""
        there = ("--superlink", f"127.0.0.1:{self.ports[0]}", "--ca", ca)
        process = self.deploy(*words, *(() if words[0] == "keys" else there))
        out, _ = process.communicate(timeout=3600)
        print(f"$ holdfast deploy {' '.join(words)}", flush=True)
        print("".join(f"  {line[:180]}\n" for line in out.splitlines()), flush=True)
        assert (process.returncode != 0) == fails, f"it ended with {process.returncode}"
        assert "Traceback" not in out
        return out


def expect(said: str, *words: str) -> None:
    """All these words."""
    for one in words:
        assert one in said, f"not said: {one}"


def main() -> None:
    """All of it, once."""
    os.environ["PYTHONPATH"] = os.pathsep.join(p or os.getcwd() for p in sys.path)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "federation"
        write_federation(folder)
        with ByHand(folder) as there:
            check(there, folder)
        time.sleep(1)
    print("a federation that is up: run, resumed, listed, refused as it should be", flush=True)


def check(there: ByHand, folder: Path) -> None:
    """Every command, rightly and wrongly used."""
    sites = [word for name in SITES for word in ("--site", name)]
    there.said("keys", "keys", *sites)
    there.said("keys", "others", "--site", "x")
    run = ("run", "app", "--folder", "trial")
    expect(there.said(*run, fails=True), "no SuperLink answers at 127.0.0.1:", "start it there")
    there.start_server()
    until = time.monotonic() + 120
    while not up(there):
        assert time.monotonic() < until, "no SuperLink"
        time.sleep(1)
    expect(there.said("status"), "no site is registered", "no run was submitted")
    expect(there.said("status", fails=True, ca="others/ca.crt"), "does not fit others/ca.crt")
    expect(there.said("status", fails=True, ca="nowhere.crt"), "no certificate nowhere.crt")
    expect(there.said("status", fails=True, ca="app/pyproject.toml"), "no certificate that can be")
    expect(there.said(*run, fails=True), "no site is registered at 127.0.0.1:")
    insecure = there.deploy("status", "--superlink", f"127.0.0.1:{there.ports[0]}", "--insecure")
    expect(insecure.communicate(timeout=120)[0], "not as a SuperLink without TLS does", "--ca")
    elsewhere = there.deploy("status", "--superlink", "192.0.2.1:8000", "--insecure")
    expect(elsewhere.communicate(timeout=120)[0], "without TLS is not on this machine")

    there.said("register", *(f"keys/{name}.pub" for name in SITES))
    for name in SITES[:2]:
        there.start_site(name)
    # A site that is missing is named, and waited for.
    threading.Timer(90, there.start_site, (SITES[2],)).start()
    said = there.said(*run, "--rounds", "2")
    expect(
        said,
        "registered sites are there",
        f"deploy: waiting for {SITES[2]}",
        "round=1 ",
        "round=2 ",
    )

    # Two at once in one folder. The first is no longer shown, and goes on until it is stopped.
    first = there.deploy(
        *run,
        "--rounds",
        "1000",
        "--superlink",
        f"127.0.0.1:{there.ports[0]}",
        "--ca",
        "keys/ca.crt",
    )
    try:
        assert first.stdout is not None
        for line in first.stdout:
            if line.startswith("round=3 "):
                break
        expect(there.said(*run, "--rounds", "4", fails=True), "the run ended", "trial is in use")
        first.send_signal(signal.SIGINT)
        rest = first.stdout.read()
        assert first.wait(60) == 130
        print(rest.splitlines()[-1], flush=True)
        hint = rest.partition("goes on. End it: ")[2]
        assert hint
        subprocess.run(["sh", "-c", hint], env=there.environment, cwd=folder, check=True)
    finally:
        first.kill()
        first.communicate()
    time.sleep(5)
    done = max(int(path.stem.removeprefix("round-")) for path in (folder / "trial").glob("round-*"))
    rounds = done + 1
    said = there.said("resume", "app", "--folder", "trial", "--rounds", str(rounds))
    expect(said, f"round={rounds} ")
    assert f"round={done} " not in said
    said = there.said("status")
    assert said.count("online") == len(SITES)
    expect(said, *(f"site {name}  " for name in SITES))
    expect(said, "finished:completed", "finished:failed", "finished:stopped")

    given, expected = simulated(folder, rounds)
    found = resumed(folder, given, rounds, "trial")
    assert same_bits(found.params, expected.params), "another model"
    assert found.ledger.entries == expected.ledger.entries, "another ledger"

    # A site that does not take part in such an algorithm says so, and is left out.
    path = folder / "sites" / f"{SITES[0]}.toml"
    path.write_text(path.read_text() + '\n[allow]\nalgorithms = ["00"]\n')
    patience = ("--quorum", "0.6", "--deadline", "20")
    said = there.said("run", "app", "--folder", "other", "--rounds", "1", *patience)
    expect(said, "is not on this site's list of allowed ones", "round=1 ")
    traffic(there, folder)


def up(there: ByHand) -> bool:
    """Whether the SuperLink answers."""
    try:
        link = Connection(
            there.folder / "look", f"127.0.0.1:{there.ports[0]}", there.folder / "keys/ca.crt"
        )
        link.check()
    except HoldfastError:
        return False
    return True


def traffic(there: ByHand, folder: Path) -> None:
    """What Flower says of the bytes of each run."""
    link = Connection(folder / "look", f"127.0.0.1:{there.ports[0]}", folder / "keys/ca.crt")
    for run in link.runs():
        print(f"run {run['run-id']}: {run['status']} {run['network-traffic']}", flush=True)


if __name__ == "__main__":
    main()
