"""Experiment files, the federations of their simulated clients, and what both come to."""

import csv

import numpy as np

import holdfast as hf
from holdfast.config import build
from holdfast.config.file import read
from holdfast.config.new_federation import write_federation_of
from holdfast.deploy.cohort import version_of
from holdfast.deploy.states import StateVersions

TABLE = """
rounds = 2
partition = "natural"
model = { name = "logistic_regression", l2 = 0.01 }
local = { learning_rate = 0.1, epochs = 1, batch_size = 8 }
evaluate = { personal = true, metrics = ["auc"] }
engine = { width = 1 }

[data]
name = "table"
path = "rows/site-*.csv"
label = "sick"
na_values = { dose = 0 }
missing = "median"
scale = "robust"
indicator = true

[[algorithm]]
name = "scaffold"
[[algorithm]]
name = "flix"
alpha = 0.4
solver = { name = "GradientDescent", step = 0.1, tolerance = 0.5, max_steps = 20 }
"""
ARRAYS = """
rounds = 2
data = "digits"
partition = { name = "dirichlet", clients = 3, concentration = 0.5 }
model = "softmax_regression"
local = { learning_rate = 0.1, steps = 2, batch_size = 8 }
engine = { width = 1 }
server = { examples = 60 }

[[algorithm]]
name = "fedavg_plus"
gamma = 0.5
[[algorithm]]
name = "one_way_transfer"
"""


def write_tables(folder):
    """A table for each of three sites, with words, missing values and another scale for each column."""
    rng = np.random.default_rng(0)
    (folder / "rows").mkdir(parents=True)
    for k, name in enumerate(("east", "north", "south")):
        with open(folder / "rows" / f"site-{name}.csv", "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["age", "ward", "dose", "sick"])
            for _ in range(30 + 10 * k):
                age, sick = rng.normal(50 + k, 10), rng.integers(2)
                dose = rng.exponential(5) * rng.integers(2) + 2 * sick
                out.writerow([round(age, 1), "abc"[rng.integers(1 + k)], round(dose, 2), sick])


def file_of(folder, text):
    folder.mkdir(exist_ok=True)
    if "site-*" in text:
        write_tables(folder)
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def simulated(path, method):
    """The run of one method of a file, as `holdfast run` has it; and the study."""
    study = build.study(read(path))
    one = next(m for m in study.methods if m.label == method)
    return hf.simulate(study.experiment(one, study.seeds[0]), rounds=study.rounds), study


def federation_of(folder, path, method):
    """The app's file and its sites, as `holdfast deploy new --experiment` writes them."""
    if not folder.exists():
        write_federation_of(folder, path)
    app = folder / "app" / "study" / "experiment.toml"
    own = folder / "server" / "server.toml"
    given = hf.deploy.from_file(app, method, server=own if own.exists() else None)
    files = sorted((folder / "sites").glob("*.toml"))
    return given, [hf.deploy.site_from_file(file, app) for file in files]


def state_at(run, site):
    """What a site has on its disk of the version that the server has accepted."""
    engine = run.experiment.engine
    number = engine.roster.names.index(site.name)
    states = StateVersions(site.folder / engine.run)
    return number, states.read(version_of(run.client_states[number]), engine.setup.template.client)
