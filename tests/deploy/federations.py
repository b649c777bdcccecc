"""Federations of three sites in one process, and the simulations they must come to."""

import dataclasses

import jax
import numpy as np

import holdfast as hf
from holdfast.deploy.states import StateVersions
from tests.problems import tiny_clients

ROUNDS = 5
LOCAL = hf.Local(learning_rate=0.1, epochs=2, batch_size=4)
MODEL = hf.models.mlp([4], classes=3)


def server_data():
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(10, 5)).astype(np.float32), rng.integers(0, 3, 10).astype(np.int32)
    return hf.Server(hf.Examples(x, y), hf.Local(learning_rate=0.05, steps=3, batch_size=4))


def flix_by_diana():
    solver = hf.solvers.GradientDescent(0.1, tolerance=1.0, max_steps=20)
    by = hf.algorithms.diana(hf.wires.RandK(k=5))
    return hf.algorithms.flix(0.5, by=by, solver=solver)


def compressed():
    wire = hf.wires.Compressed(hf.wires.Natural())
    return dataclasses.replace(hf.algorithms.fedavg(), wire=wire)


def last_layer(path):
    return path.startswith("classifier")


METHODS = {
    "fedavg": (hf.algorithms.fedavg, None),
    "scaffold": (hf.algorithms.scaffold, None),
    "fedpvr": (lambda: hf.algorithms.fedpvr(last_layer), None),
    "feddyn": (lambda: hf.algorithms.feddyn(alpha=0.1), None),
    "feddc": (lambda: hf.algorithms.feddc(alpha=0.1), None),
    "fedavg_plus": (lambda: hf.algorithms.fedavg_plus(gamma=0.5), server_data),
    "one_way_transfer": (hf.algorithms.one_way_transfer, server_data),
    "flix_by_diana": (flix_by_diana, None),
    "compressed": (compressed, None),
}


def experiment(name="fedavg", **changes):
    make, server = METHODS[name]
    clients = tiny_clients(clients=3, sizes=(7, 12, 5))
    given = hf.Experiment(
        make(), MODEL, clients, LOCAL, server=None if server is None else server(), seed=3
    )
    return dataclasses.replace(given, **changes)


def sites(given, folder):
    return [
        hf.deploy.Site(given, mine, folder / str(i), str(i)) for i, mine in enumerate(given.clients)
    ]


def state_at_site(run, site):
    """What a site has on its disk of the version that the server has accepted."""
    engine = run.experiment.engine
    number = int(site.name)
    mark = run.state.client_states[number]
    from holdfast.deploy.cohort import version_of

    states = StateVersions(site.folder / engine.run)
    return states.read(version_of(mark), engine.setup.template.client)


def everything(run):
    states = [run.client_states[i] for i in range(len(run.client_states))]
    return jax.device_get((run.params, run.state.server, states))
