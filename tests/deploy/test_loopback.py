"""A real federation on Flower, on loopback, with TLS and registered keys; needs Flower installed."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import holdfast as hf
from holdfast.deploy.connection import Connection, command
from holdfast.deploy.ending import end
from holdfast.deploy.keys import write_keys
from holdfast.deploy.local import LocalFederation
from holdfast.deploy.starting import SITES, write_federation
from tests.problems import same_bits

needs_flower = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None,
    reason='Flower is not installed: pip install "holdfast[flower]"',
)

# A word of the command of a site's own process.
SITE_PROCESS = "holdfast.deploy.site_process"


def simulated(folder, rounds):
    """The same experiment in this process: the app's, with what the sites have on their disks."""
    sys.path.insert(0, str(folder / "app"))
    try:
        from study.experiment import experiment
    finally:
        sys.path.remove(str(folder / "app"))
    given = experiment()
    sites = [hf.deploy.site_from_file(folder / "sites" / f"{name}.toml", given) for name in SITES]
    clients = hf.Clients.from_datasets([site.examples for site in sites])
    return given, hf.simulate(
        hf.Experiment(given.algorithm, given.model, clients, given.local, seed=given.seed), rounds
    )


def resumed(folder, given, rounds, run="run"):
    """The run as it was saved; nobody is asked anything."""
    return hf.deploy.run(given, hf.deploy.InProcess([]), rounds, folder / run)


def kill_when(process, folder, pattern):
    """Kill it as soon as there is such a file."""
    until = time.monotonic() + 600
    while not list(folder.glob(pattern)) and time.monotonic() < until:
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)


def kept_programs(folder):
    """What sites have compiled and kept."""
    return {*folder.glob("sites/*/compiled/*-cache")}


@needs_flower
def test_a_federation_with_tls_and_keys_comes_to_the_simulation(tmp_path, monkeypatch):
    """Two runs, the second going on from the first; a site without a registered key is turned away, and the
    process of another is killed."""
    folder = tmp_path / "federation"
    write_federation(folder)
    # Processes of Flower's find the library under test.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    sites = {name: folder / "sites" / f"{name}.toml" for name in SITES}
    run = str(folder / "run")
    with LocalFederation(folder / "local", sites) as federation:
        write_keys(tmp_path / "others", ["stranger"])
        stranger = subprocess.Popen(
            [
                command("flower-supernode"), "--superlink", federation.address,
                "--root-certificates", str(federation.keys / "ca.crt"),
                "--auth-supernode-private-key", str(tmp_path / "others" / "stranger.key"),
                "--host", "127.0.0.1", "--port", "0",
            ],
            env=federation.connection.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            said = list(federation.connection.run(folder / "app", rounds=1, folder=run))
            (told,) = [line for line in said if line.startswith("holdfast round=")]
            assert told.startswith("holdfast round=1 ")
            assert "personal_accuracy=" in told
            assert "details" not in told
            assert stranger.wait(300) != 0
        finally:
            end(stranger)
        there = federation.started(SITE_PROCESS)
        assert len(there) == len(SITES)
        compiled = kept_programs(folder)
        assert len(compiled) > 10
        # As soon as a site has its new state on its disk, whether or not its reply has left.
        (killed,) = set(there) & {*federation.started("north.toml")}
        state = folder / "sites" / "north"
        watch = threading.Thread(target=kill_when, args=(killed, state, "*/round-00000002-*.state"))
        watch.start()
        said = list(federation.connection.run(folder / "app", rounds=2, folder=run))
        watch.join()
        told = [line.split()[1] for line in said if line.startswith("holdfast round=")]
        assert told == ["round=2"]
        # Two stayed, and one was started again.
        now = federation.started(SITE_PROCESS)
        assert len(now) == len(SITES)
        assert set(now) & set(there) == set(there) - {killed}
        # Nobody compiled anything again, a new process at a site included.
        assert kept_programs(folder) == compiled
    given, expected = simulated(folder, 2)
    found = resumed(folder, given, 2)
    assert same_bits(found.params, expected.params)
    assert same_bits(found.state.server, expected.state.server)
    assert found.ledger.entries == expected.ledger.entries
    # What three sites measured on what they hold out.
    assert 0 < found.history.records[-1]["personal_accuracy"] <= 1
    assert federation.started() == []


def test_a_superlink_elsewhere_needs_a_certificate(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.deploy.connection.command", lambda name: f"/bin/{name}")
    with pytest.raises(hf.HoldfastError, match="without TLS is not on this machine"):
        Connection(tmp_path, "fed.example.org:8000", None)
    Connection(tmp_path, "127.0.0.1:8000", None)
