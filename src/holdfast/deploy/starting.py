"""A federation to start from: an app of a few lines, and three sites with made-up shares of the digits."""

import tomllib
from pathlib import Path

import numpy as np

from holdfast.data.bundled import digits
from holdfast.data.clients import Examples
from holdfast.data.partition import dirichlet
from holdfast.errors import HoldfastError, file_errors_said

SITES = ("east", "north", "south")

PROJECT = """\
[project]
name = "study"
version = "0.1.0"
description = "A holdfast experiment as a Flower app"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "holdfast"

[tool.flwr.app.components]
serverapp = "study.app:server"
clientapp = "study.app:client"

# What `holdfast deploy run` may change.
[tool.flwr.app.config]
rounds = {rounds}
folder = "run"       # on the server's disk
quorum = 1.0         # of the sites; with fewer replies a round waits
deadline = 600.0     # seconds after which a round closes with a quorum
{more}"""

_APP = '''\
"""The app: Flower carries messages, and all else is in experiment.py and in each site's own file."""

import holdfast.flower

server = holdfast.flower.server_app("study.experiment:experiment")
client = holdfast.flower.client_app("study.experiment:site")
'''

_EXPERIMENT = '''\
"""What is run: the same at the server and at every site. Try another method here, by hf.simulate first."""

import holdfast as hf
import numpy as np

SITES = {sites}
# Of the shapes and types that every site has.
EXAMPLE = hf.Examples(np.zeros((1, 64), np.float32), np.zeros(1, np.int32))


def experiment():
    clients = hf.deploy.population(SITES, EXAMPLE)
    return hf.Experiment(
        hf.algorithms.scaffold(),
        hf.models.softmax_regression(classes=10),
        clients,
        hf.Local(learning_rate=0.1, epochs=1, batch_size=32),
        # Sites measure on their own held-out examples, and send sums and counts.
        evaluate=hf.evaluate.personal(clients),
        seed=0,
    )


def site(config):
    """A SuperNode is started with --node-config 'site="/path/to/site.toml"'."""
    return hf.deploy.site_from_file(config["site"], experiment())
'''

_SITE = """\
# This file stays at the site: the server never sees it, nor the data it names.
name = "{name}"
folder = "{name}"          # what the site remembers, relative to this file

[data]
file = "{name}.npz"        # arrays x and y, and test_x and test_y that are held out
"""


@file_errors_said()
def new_package(folder: Path) -> Path:
    """The folder of an app's code in a new federation; refuses a federation that is there."""
    if folder.exists():
        raise HoldfastError(f"{folder} exists already; give another name, or delete it first.")
    package = folder / "app" / "study"
    package.mkdir(parents=True)
    return package


@file_errors_said()
def write_federation(folder: Path, sites: int = len(SITES)) -> None:
    """Write the folder, with so many sites; refuses one that is there."""
    names = [*SITES, *(f"site-{i}" for i in range(len(SITES) + 1, sites + 1))][:sites]
    package = new_package(folder)
    (folder / "app" / "pyproject.toml").write_text(PROJECT.format(more="", rounds=5))
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text(_APP)
    (package / "experiment.py").write_text(_EXPERIMENT.format(sites=names))
    places = folder / "sites"
    places.mkdir()
    train, _ = digits()
    clients = dirichlet(Examples(train.x, train.y), sites, 0.5, seed=0)
    for name, own in zip(names, clients, strict=True):
        held = np.arange(len(own.y)) % 5 == 0
        np.savez(
            places / f"{name}.npz",
            x=own.x[~held].astype(np.float32),
            y=own.y[~held].astype(np.int32),
            test_x=own.x[held].astype(np.float32),
            test_y=own.y[held].astype(np.int32),
        )
        (places / f"{name}.toml").write_text(_SITE.format(name=name))


@file_errors_said()
def run_config(app_folder: Path, rounds: int | None, method: str | None) -> dict[str, str | float]:
    """What of the app's own run configuration is given otherwise, and its number of rounds."""
    path = app_folder / "pyproject.toml"
    try:
        own = tomllib.loads(path.read_text("utf-8"))["tool"]["flwr"]["app"]["config"]
        given: dict[str, str | float] = {"rounds": int(own["rounds"] if rounds is None else rounds)}
    except (ValueError, KeyError, TypeError):
        raise HoldfastError(
            f"{path} has no `rounds` under [tool.flwr.app.config]; give it there, as holdfast deploy new "
            f"does."
        ) from None
    if method is not None:
        if "method" not in own:
            raise HoldfastError(
                f"--method {method}: {app_folder} is no app of an experiment file, and has one method; leave "
                f"--method out."
            )
        given["method"] = method
    return given
