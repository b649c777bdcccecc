"""`make deploy-test`: nine methods over Flower in one federation, to the bit of their simulations."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import holdfast as hf
from holdfast.deploy.local import LocalFederation
from holdfast.deploy.starting import write_federation
from tests.deploy.federations import METHODS, ROUNDS, experiment, state_at_site
from tests.problems import same_bits

_EXPERIMENT = """\
import holdfast as hf

from tests.deploy.federations import experiment as given


def experiment():
    return given({name!r})


def site(config):
    return hf.deploy.site_from_file(config["site"], experiment())
"""


def federation_of(folder: Path) -> dict[str, Path]:
    """The folder of a federation whose sites have the data of the tests; the files of its sites."""
    write_federation(folder)
    shutil.rmtree(folder / "sites")
    (folder / "sites").mkdir()
    files = {}
    for number, own in enumerate(experiment().clients):
        name = str(number)
        np.savez(folder / "sites" / f"{name}.npz", x=own.x, y=own.y)
        files[name] = folder / "sites" / f"{name}.toml"
        files[name].write_text(f'name = "{name}"\nfolder = "{name}"\n[data]\nfile = "{name}.npz"\n')
    return files


def check(federation: LocalFederation, folder: Path, name: str) -> None:
    """One method; raises if parameters, states or ledger are not the simulation's."""
    (folder / "app" / "study" / "experiment.py").write_text(_EXPERIMENT.format(name=name))
    run = folder / f"run-{name}"
    for line in federation.connection.run(folder / "app", rounds=ROUNDS, folder=str(run)):
        print(f"  {line[:150]}", flush=True)
    given = experiment(name)
    expected = hf.simulate(given, rounds=ROUNDS)
    # As it was saved; nobody is asked anything.
    found = hf.deploy.run(given, hf.deploy.InProcess([]), ROUNDS, run)
    assert same_bits(found.params, expected.params), "another model"
    assert same_bits(found.state.server, expected.state.server), "another server's state"
    assert found.ledger.entries == expected.ledger.entries, "another ledger"
    for number, file in enumerate(federation.sites.values()):
        site = hf.deploy.site_from_file(file, given)
        assert same_bits(state_at_site(found, site), expected.client_states[number]), "a state"


def main() -> None:
    """All methods, or those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(p or os.getcwd() for p in sys.path)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "federation"
        files = federation_of(folder)
        with LocalFederation(folder / "local", files) as federation:
            for name in given.methods:
                began = time.monotonic()
                check(federation, folder, name)
                print(f"{name}: the same bits after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
