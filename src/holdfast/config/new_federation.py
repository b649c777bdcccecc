"""A federation of an experiment file: the app that carries it, and simulated clients as sites to try it."""

import copy
import csv
import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from holdfast.config import build
from holdfast.config.deployment import SITES_FILE, DeployedFile, described, shapes_of
from holdfast.config.file import ExperimentFile, read
from holdfast.config.own_code import is_own
from holdfast.data.designs import TEST, TRAIN
from holdfast.data.preprocessing.columns import text
from holdfast.data.tables.apart import TableApart
from holdfast.deploy.starting import PROJECT, new_package
from holdfast.errors import HoldfastError, file_errors_said

_APP = '''\
"""The app: Flower carries messages, and all else is in experiment.toml and in each site's own file."""

from pathlib import Path

import holdfast.flower

server = holdfast.flower.server_app(Path(__file__).with_name("experiment.toml"))
client = holdfast.flower.client_app("study.site:site")
'''
_SITE_CODE = '''\
"""A site, made in a process of its own that stays between Flower's messages."""

from pathlib import Path

import holdfast.deploy


def site(config):
    """A SuperNode is started with --node-config 'site="/path/to/site.toml"'."""
    experiment = Path(__file__).with_name("experiment.toml")
    return holdfast.deploy.site_from_file(config["site"], experiment)
'''
_MORE = """\
method = "{method}"  # which of experiment.toml, by its label
seed = {seed}
server = "{server}"  # a file whose [data] says where the server's own data is, if it learns too
"""
_SITE = """\
# This file stays at the site: the server never sees it, nor the data it names.
name = "{name}"
folder = "{name}"

[data]
{data}
"""
_TABLE = """\
path = "{name}-train.csv"
test_path = "{name}-test.csv"   # held out; or test = 0.2, a share of `path`"""
_ARRAYS = """\
file = "{name}.npz"             # arrays x and y, and test_x and test_y that are held out"""
_FILE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FILES = ("path", "test_path", "folder", "columns", "separator")


@file_errors_said()
def write_federation_of(folder: Path, experiment: Path) -> DeployedFile:
    """Write the app of an experiment file, and its simulated clients as sites; refuses a folder
    that is there."""
    study = build.study(read(experiment), pretrained=False)
    file = study.file
    names, like = shapes_of(study)
    deployed = DeployedFile(file, names, like)
    deployed.sections  # noqa: B018  # it refuses what cannot be deployed, before anything is written
    odd = next((name for name in names if not _FILE_NAME.fullmatch(name)), None)
    if odd is not None:
        raise HoldfastError(
            f"a client is called {odd!r}, and files and keys of a site have its name; call clients by "
            f"letters, digits, - and _."
        )
    package = new_package(folder)
    served = _write_server(folder, study, deployed)
    several = len(deployed.labels) > 1
    more = _MORE.format(
        method=deployed.labels[0] if several else "", seed=study.seeds[0], server=served
    )
    project = PROJECT.format(more=more, rounds=study.rounds)
    (package.parent / "pyproject.toml").write_text(project, "utf-8")
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text(_APP)
    (package / "site.py").write_text(_SITE_CODE)
    (package / "experiment.toml").write_text(_without_files(file), "utf-8")
    (package / SITES_FILE).write_text(tomlkit.dumps(described(names, like)), "utf-8")
    _copy_code(file, package)
    if deployed.validation is not None:
        # Sites set apart their own, the same as the simulation does.
        study = build.study(_without_choosing(file), pretrained=False)
    _write_sites(folder / "sites", study, deployed)
    return deployed


def _without_files(file: ExperimentFile) -> str:
    """The file as it is, without a word of where a simulation's data is."""
    document = tomlkit.parse(file.as_used())
    data: Any = document.get("data")
    for key in _FILES if isinstance(data, dict) else ():
        data.pop(key, None)
    return tomlkit.dumps(document)


def _without_choosing(file: ExperimentFile) -> ExperimentFile:
    """The file without examples to choose by, and what is done with them."""
    values = copy.deepcopy(file.values)
    for key in ("validation", "patience", "keep", "choose_by"):
        values["evaluate"].pop(key, None)
    return dataclasses.replace(file, values=values)


def _copy_code(file: ExperimentFile, package: Path) -> None:
    """Own code that methods, models and the like are made by; what it imports must be beside it too."""

    def names_in(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [
                n
                for key, v in value.items()
                if key not in ("data", "partition")
                for n in names_in(v)
            ]
        if isinstance(value, list):
            return [n for v in value for n in names_in(v)]
        return [value] if isinstance(value, str) and is_own(value) and ".py:" in value else []

    for name in dict.fromkeys(names_in(file.values)):
        written = Path(name.rpartition(":")[0])
        if len(written.parts) > 1:
            raise HoldfastError(
                f"`{name}` lies in another folder than the experiment file; Flower carries one folder, so "
                f"put it beside the file."
            )
        shutil.copy(written, package / written.name)


def _write_server(folder: Path, study: build.Study, deployed: DeployedFile) -> str:
    """The simulated server's own data in a file of its own; its path, or nothing."""
    section = deployed.sections.server
    if section is None or section.loss is not None:
        return ""
    place = (folder / "server").resolve()
    place.mkdir()
    own = 'file = "server.npz"'
    if deployed.table is not None:
        own = '# path = "..."   # a table with the columns that the sites have'
    elif study.server is not None:
        x, y = study.server.source
        np.savez(place / "server.npz", x=np.asarray(x), y=np.asarray(y))
    (place / "server.toml").write_text(f"[data]\n{own}\n")
    return str(place / "server.toml")


def _write_sites(place: Path, study: build.Study, deployed: DeployedFile) -> None:
    """The simulated clients' examples, a file for each."""
    place.mkdir()
    if deployed.table is None:
        for i, name in enumerate(deployed.names):
            train, test = study.clients[i], study.tests[i]
            held = {"test_x": test.x, "test_y": test.y} if len(test.y) else {}
            np.savez(place / f"{name}.npz", x=train.x, y=train.y, **held)
            (place / f"{name}.toml").write_text(
                _SITE.format(name=name, data=_ARRAYS.format(name=name))
            )
        return
    rows = _simulated_rows(deployed)
    for i, name in enumerate(deployed.names):
        _write_csv(place / f"{name}-train.csv", rows.rows_of(TRAIN, study.clients.rows(i)))
        _write_csv(place / f"{name}-test.csv", rows.rows_of(TEST, study.tests.rows(i)))
        (place / f"{name}.toml").write_text(_SITE.format(name=name, data=_TABLE.format(name=name)))


def _simulated_rows(deployed: DeployedFile) -> TableApart:
    """The table of the simulation, as its rows were divided."""
    file, given = deployed.file, deployed.file.values["data"]
    found = {
        key: [file.found(p) for p in given[key]]
        if isinstance(given[key], list)
        else file.found(given[key])
        for key in ("path", "test_path")
        if key in given
    }
    assert deployed.table is not None
    formats = given.get("columns"), given.get("separator")
    return TableApart(found["path"], deployed.table, found.get("test_path"), *formats, of_all=True)


def _write_csv(path: Path, columns: dict[str, np.ndarray]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(columns)
        cells = [[_cell(v) for v in values.tolist()] for values in columns.values()]
        writer.writerows(zip(*cells, strict=True))


def _cell(value: Any) -> str:
    """As it is read again; empty where it is missing."""
    return text(value) or ""
