"""A real federation on Flower, on loopback, with TLS and registered keys; needs Flower installed."""

import importlib.util
import os
import subprocess
import sys

import pytest

import holdfast as hf
from holdfast.deploy.keys import write_keys
from holdfast.deploy.local import Connection, LocalFederation, command, end
from holdfast.deploy.starting import SITES, write_federation
from tests.problems import same_bits

needs_flower = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None,
    reason='Flower is not installed: pip install "holdfast[flower]"',
)


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


def resumed(folder, given, rounds):
    """The run as it was saved; nobody is asked anything."""
    return hf.deploy.run(given, hf.deploy.InProcess([]), rounds, folder / "run")


@needs_flower
def test_a_federation_with_tls_and_keys_comes_to_the_simulation(tmp_path, monkeypatch):
    """Two runs, the second going on from the first; a site without a registered key is turned away."""
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
            assert any(line.startswith("holdfast round=1 ") for line in said)
            assert stranger.wait(300) != 0
        finally:
            end(stranger)
        said = list(federation.connection.run(folder / "app", rounds=2, folder=run))
        told = [line for line in said if line.startswith("holdfast round=")]
        assert len(told) == 1
        assert told[0].startswith("holdfast round=2 ")
    given, expected = simulated(folder, 2)
    found = resumed(folder, given, 2)
    assert same_bits(found.params, expected.params)
    assert same_bits(found.state.server, expected.state.server)
    assert found.ledger.entries == expected.ledger.entries
    # What three sites measured on what they hold out.
    assert 0 < found.history.records[-1]["personal_accuracy"] <= 1


def test_a_superlink_elsewhere_needs_a_certificate(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.deploy.local.command", lambda name: f"/bin/{name}")
    with pytest.raises(hf.HoldfastError, match="without TLS is not on this machine"):
        Connection(tmp_path, "fed.example.org:8000", None)
    Connection(tmp_path, "127.0.0.1:8000", None)
