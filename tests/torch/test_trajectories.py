"""Every method of the library takes the same way with PyTorch at the clients as with JAX."""

import numpy as np
import optax
import pytest

import holdfast as hf
import holdfast.torch
from tests.claims.test_conformance import ALGORITHMS
from tests.problems import largest_difference
from tests.torch.networks import CLIENTS, DATA, LINEAR, NETWORK, linear_in_torch, network_in_torch

SERVER = hf.Server(DATA, hf.Local(0.05, steps=2, batch_size=4))
MINIBATCHES = hf.Local(0.1, epochs=2, batch_size=4)


def with_server(algorithm):
    return hf.Need.SERVER_DATA in algorithm.rule.traits.needs


def _run(model, algorithm, local, rounds, **settings):
    server = SERVER if with_server(algorithm) else None
    return hf.simulate(algorithm, model, CLIENTS, local, rounds, seed=1, server=server, **settings)


def assert_same(theirs, ours, tolerance=1e-5):
    assert largest_difference(theirs.params, ours.params) < tolerance
    for client in range(len(theirs.client_states)):
        states = [run.client_states[client] for run in (theirs, ours)]
        assert largest_difference(*states) < tolerance
    assert theirs.ledger == ours.ledger
    deployed = [run.personal(1) for run in (theirs, ours)]
    assert largest_difference(*deployed) < tolerance
    assert largest_difference(deployed[1], ours.simulation.params) > 10 * tolerance


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_way_of_every_method(name):
    algorithm = ALGORITHMS[name]
    theirs, ours = (_run(model, algorithm, MINIBATCHES, 2) for model in (LINEAR, linear_in_torch()))
    assert_same(theirs, ours)


LOCALS = {
    "full batches": (hf.Local(0.3, steps=3), hf.algorithms.feddc(0.1)),
    "clip": (hf.Local(0.1, batch_size=4, clip=0.5), hf.algorithms.feddyn(0.1)),
    "decay": (hf.Local(0.1, batch_size=4, weight_decay=0.1), hf.algorithms.fedprox(0.5)),
    "clip, decay, momentum": (
        hf.Local(0.1, batch_size=4, clip=0.5, weight_decay=0.1, momentum=0.9),
        hf.algorithms.fedprox(hf.PerClient([0.1, 0.2, 0.3, 0.0])),
    ),
    "momentum on some": (
        hf.Local(0.1, batch_size=4, momentum=0.9, momentum_on=lambda path: "hidden" in path),
        hf.algorithms.fedpvr(lambda path: path.startswith("classifier")),
    ),
    "a schedule, short batches dropped": (
        hf.Local(hf.schedules.exponential(0.3, 0.5), batch_size=4, last_batch="drop"),
        hf.algorithms.scaffold(server_learning_rate=0.8),
    ),
    "an optimiser of optax": (
        hf.Local(0.01, batch_size=4, optimizer=optax.adam),
        hf.algorithms.fedavg(weighting="examples"),
    ),
}


@pytest.mark.parametrize("name", LOCALS)
def test_the_way_of_local_steps(name):
    local, algorithm = LOCALS[name]
    cohort = hf.cohorts.fixed(3)
    theirs, ours = (
        _run(model, algorithm, local, 3, cohort=cohort, evaluate=hf.evaluate.on(DATA))
        for model in (NETWORK, network_in_torch())
    )
    assert_same(theirs, ours)
    for metric in ("loss", "accuracy"):
        np.testing.assert_allclose(theirs.history[metric], ours.history[metric], rtol=1e-5)


def test_a_penalty_around_the_loss_is_part_of_it():
    algorithm = hf.algorithms.scaffold(option="I")
    theirs, ours, bare = (
        _run(model, algorithm, MINIBATCHES, 2)
        for model in (
            hf.models.regularised(LINEAR, l2=0.1),
            hf.models.regularised(linear_in_torch(), l2=0.1),
            linear_in_torch(),
        )
    )
    assert_same(theirs, ours)
    assert largest_difference(bare.params, ours.params) > 1e-3


@pytest.mark.parametrize("name", ["scaffold, option I", "flix", "downlink"])
def test_sites_of_both_frameworks_in_one_run(name):
    algorithm = ALGORITHMS[name]
    engine = holdfast.torch.Engine(linear_in_torch(), clients=[0, 2])
    theirs, mixed = (
        _run(LINEAR, algorithm, MINIBATCHES, 2, engine=engine) for engine in (None, engine)
    )
    assert_same(theirs, mixed)
