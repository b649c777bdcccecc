"""A site with PyTorch: its half of the round is the library's own, and its data comes from a loader."""

import jax
import numpy as np
import pytest

import holdfast as hf
import holdfast.torch
from holdfast.core import hyper
from holdfast.core.client import Preparation, client_round, prepare_cohort
from holdfast.core.round_types import Shared
from holdfast.core.server import accept, close_round, open_round, server_view
from holdfast.engine.simulation import Simulation
from tests.problems import largest_difference
from tests.torch.networks import (
    CLASSES,
    CLIENTS,
    DATA,
    FEATURES,
    NETWORK,
    network,
    network_in_torch,
    torch,
)

data = torch.utils.data
PAIRS = data.TensorDataset(
    torch.tensor(np.asarray(DATA.x)), torch.tensor(np.asarray(DATA.y), dtype=torch.int64)
)


@pytest.mark.parametrize(
    "algorithm",
    [hf.algorithms.scaffold(option="I"), hf.algorithms.diana(hf.wires.RandK(k=9))],
    ids=lambda algorithm: algorithm.name,
)
def test_a_server_hears_a_site_of_pytorch_as_any_other(algorithm):
    """Open, one reply at a time, close: what a deployed server does, with sites of both frameworks."""
    local = hf.Local(0.1, batch_size=4)
    simulation = Simulation(hf.Experiment(algorithm, NETWORK, CLIENTS, local, seed=1))
    state = simulation.begin()
    inputs = simulation.inputs(state, simulation.planner(0))
    site = holdfast.torch.Site(network_in_torch(), DATA)
    slots, client_states = jax.tree.map(np.asarray, (inputs.slots, inputs.client_states))

    def one_round(run_of):
        at = server_view(inputs)
        first = jax.tree.map(lambda a: a[0], client_states)
        opened = open_round(algorithm, at, inputs.server.wire, first, inputs.key)
        shared = Shared(
            NETWORK, algorithm, inputs.steps, opened.x, opened.msg, inputs.examples, inputs.key
        )
        heard, states = opened.aggregate, []
        for i in range(len(slots.client)):
            slot, mine = jax.tree.map(lambda a, i=i: a[i], (slots, client_states))
            own = hyper.of_client(algorithm, slot.client, np.float32)
            reply = run_of(int(slot.client))(shared, own, mine, slot)
            heard, new, accepted = accept(own, heard, reply, mine, slot)
            assert accepted
            states.append(new)
        at = at._replace(state=opened.server.rule)
        x, server = close_round(algorithm, at, opened.server.wire, heard, len(CLIENTS))
        return x, server, states

    theirs = one_round(lambda client: jax.jit(client_round))
    mixed = one_round(lambda client: site.client_round if client % 2 else jax.jit(client_round))
    assert largest_difference(theirs, mixed) < 1e-5


def test_a_site_finds_its_own_optimum():
    solver = hf.solvers.GradientDescent(step=0.2, tolerance=0.05)
    algorithm = hf.algorithms.flix(0.3, solver=solver)
    experiment = hf.Experiment(algorithm, NETWORK, CLIENTS, hf.Local(0.1), seed=1)
    simulation = Simulation(experiment)
    slots, examples = simulation.feed(simulation.setup.batches, 0, np.array([2]), 1)
    first = jax.tree.map(lambda a: np.asarray(a)[None], simulation.begin().client_states.first.rule)
    params, key = simulation.params, jax.random.key(0)
    inputs = Preparation(
        NETWORK, algorithm.rule, params, first, slots, examples, np.array([True]), key
    )
    theirs = jax.jit(prepare_cohort)(inputs)
    ours = holdfast.torch.Site(network_in_torch(), DATA).prepare(inputs)
    assert largest_difference(theirs, ours) < 1e-5
    assert largest_difference(first, ours) > 1e-2


def test_a_loader_gives_its_data_set_in_its_own_order():
    for given in (PAIRS, data.DataLoader(PAIRS, batch_size=5, shuffle=True), DATA):
        found = holdfast.torch.examples(given)
        np.testing.assert_array_equal(found.x, DATA.x)
        np.testing.assert_array_equal(found.y, DATA.y)


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter([(np.zeros(FEATURES, np.float32), 1), (np.ones(FEATURES, np.float32), 2)])


def test_a_stream_is_read_once():
    found = holdfast.torch.examples(data.DataLoader(Stream(), batch_size=1))
    assert found.x.shape == (2, FEATURES)
    assert found.y.tolist() == [1, 2]


def test_a_site_of_a_module_or_of_a_model():
    loader = data.DataLoader(PAIRS, batch_size=5)
    for module in (network(), network_in_torch()):
        site = holdfast.torch.site(module, loader=loader, classes=CLASSES)
        assert site.examples.x.shape == DATA.x.shape
        assert site.model.engine is not None
    assert site.model is network_in_torch()


REFUSED = {
    "no loader": (lambda: holdfast.torch.site(network(), classes=CLASSES), "a NoneType is given"),
    "no pairs": (lambda: holdfast.torch.examples(data.TensorDataset(torch.ones(3))), "than pairs"),
    "nothing": (
        lambda: holdfast.torch.examples(data.TensorDataset(torch.ones(0), torch.ones(0))),
        "is empty",
    ),
    "a model of JAX": (lambda: holdfast.torch.Site(NETWORK, DATA), "not one of PyTorch"),
    "labels beyond the classes": (
        lambda: holdfast.torch.site(network(), loader=PAIRS, classes=2),
        "found 0..2",
    ),
    "other fields": (
        lambda: holdfast.torch.Site(network_in_torch(), {"x": DATA.x, "y": DATA.y}),
        "hf.Examples",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name):
    make, words = REFUSED[name]
    with pytest.raises(hf.HoldfastError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)
