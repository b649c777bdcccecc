"""Runs with PyTorch: they go on where they stopped, leave out what is not finite, refuse what they cannot."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import holdfast as hf
import holdfast.torch
from holdfast import processes
from holdfast.client_states.storage import Storage
from tests.problems import largest_difference, same_bits
from tests.torch.networks import (
    CLASSES,
    CLIENTS,
    DATA,
    FEATURES,
    NETWORK,
    linear_in_torch,
    network,
    network_in_torch,
    torch,
)

LOCAL = hf.Local(0.1, batch_size=4)
nn = torch.nn


def dropping():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(FEATURES, 4), nn.Dropout(0.3), nn.Linear(4, CLASSES))
    return holdfast.torch.model(module, classes=CLASSES)


def simulate(model, rounds=2, algorithm=None, clients=CLIENTS, **settings):
    algorithm = algorithm or hf.algorithms.feddyn(0.1)
    return hf.simulate(algorithm, model, clients, LOCAL, rounds, seed=1, **settings)


def test_a_run_goes_on_to_the_bit(tmp_path):
    settings = {"cohort": hf.cohorts.fixed(2), "evaluate": hf.evaluate.on(DATA)}
    whole = simulate(dropping(), 4, **settings)
    simulate(dropping(), 2, checkpoint=tmp_path, **settings)
    # As a new process would, which makes the module anew.
    gone_on = simulate(dropping(), 4, checkpoint=tmp_path, **settings)
    assert same_bits(whole.params, gone_on.params)
    for i in range(len(CLIENTS)):
        assert same_bits(whole.client_states[i], gone_on.client_states[i])
    assert whole.ledger == gone_on.ledger
    np.testing.assert_array_equal(whole.history["loss"], gone_on.history["loss"])
    other = holdfast.torch.model(network(), classes=CLASSES)
    with pytest.raises(hf.HoldfastError, match="another"):
        simulate(other, 4, checkpoint=tmp_path, **settings)


SCRIPT = """
import sys
from tests.torch import test_engine
test_engine.simulate(test_engine.dropping(), int(sys.argv[2]), checkpoint=sys.argv[1])
"""


def test_another_process_goes_on_with_it(tmp_path):
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path), "1"], check=True)
    gone_on = simulate(dropping(), 2, checkpoint=tmp_path)
    assert same_bits(simulate(dropping(), 2).params, gone_on.params)


def test_examples_that_are_read_round_by_round():
    plain = simulate(dropping())
    assert same_bits(plain.params, simulate(dropping(), storage=Storage(device="1 B")).params)


def test_a_reply_that_is_not_finite_is_left_out():
    x = np.array(DATA.x)
    x[CLIENTS.rows(2)] = 1e30
    clients = hf.Clients.from_rows(
        hf.Examples(x, DATA.y), [CLIENTS.rows(i) for i in range(len(CLIENTS))]
    )
    theirs, ours = (
        simulate(m, 1, clients=clients, params=NETWORK.init(jax.random.key(0), DATA))
        for m in (NETWORK, network_in_torch())
    )
    assert theirs.ledger.entries[0].left_out == ours.ledger.entries[0].left_out == (2,)
    assert largest_difference(theirs.params, ours.params) < 1e-5
    assert same_bits(ours.client_states[2], ours.client_states.first)


def test_a_client_without_data_and_two_of_different_work():
    sizes = (0, 12, 5, 9)
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    data = hf.Examples(np.asarray(DATA.x)[: sum(sizes)], np.asarray(DATA.y)[: sum(sizes)])
    clients = hf.Clients.from_rows(data, rows)
    algorithm = hf.algorithms.scaffold(weighting="examples")
    theirs, ours = (
        simulate(model, algorithm=algorithm, clients=clients)
        for model in (NETWORK, network_in_torch())
    )
    assert largest_difference(theirs.params, ours.params) < 1e-5
    assert theirs.ledger == ours.ledger


def test_the_debug_engine_runs_a_module_too():
    one = dict(rounds=1, algorithm=hf.algorithms.fedavg())
    debugged = simulate(network_in_torch(), engine=hf.DebugEngine(), **one)
    assert largest_difference(debugged.params, simulate(network_in_torch(), **one).params) < 1e-6


def test_a_sweep_of_a_module():
    over = {"rule.alpha": [0.1, 1.0]}
    algorithm, model = hf.algorithms.feddyn(0.1), dropping()
    on = hf.evaluate.on(DATA)
    found = hf.sweep(algorithm, model, CLIENTS, LOCAL, 2, over=over, seeds=[1], evaluate=on)
    first, second = (run.history["loss"] for run in found)
    np.testing.assert_array_equal(first, simulate(model, evaluate=on).history["loss"])
    assert np.abs(first - second).max() > 1e-4


def test_a_saved_module_predicts(tmp_path):
    model = network_in_torch()
    run = simulate(model, 1)
    saved = hf.load(run.save(tmp_path / "model.safetensors"), model=model)
    assert same_bits(saved.params, run.params)
    odds = model.predict(run.params, DATA)
    np.testing.assert_allclose(saved.predict_proba(DATA.x), odds, rtol=1e-6)
    with pytest.raises(hf.HoldfastError, match="export the module there"):
        saved.export(tmp_path / "program")


REFUSED = {
    "select": (lambda: simulate(network_in_torch(), select=True), "select cuts tables"),
    "a model of JAX": (
        lambda: simulate(NETWORK, engine=holdfast.torch.Engine()),
        "is not a model of PyTorch; give Engine",
    ),
    "another network": (
        lambda: simulate(NETWORK, engine=holdfast.torch.Engine(linear_in_torch())),
        "its model has classifier/bias",
    ),
    "clients that are not there": (
        lambda: simulate(NETWORK, engine=holdfast.torch.Engine(network_in_torch(), [4])),
        "client 4 of 4",
    ),
    "pooled clients": (
        lambda: simulate(
            NETWORK,
            algorithm=hf.algorithms.centralised(),
            engine=holdfast.torch.Engine(network_in_torch(), [1]),
        ),
        "pools their data",
    ),
    "clients without a model": (lambda: holdfast.torch.Engine(clients=[0]), "and no model"),
    "an engine of JAX": (lambda: holdfast.torch.Engine(NETWORK), "is not one of PyTorch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name):
    make, words = REFUSED[name]
    with pytest.raises(hf.HoldfastError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(processes, "count", lambda: 2)
    with pytest.raises(hf.HoldfastError, match="several processes"):
        simulate(network_in_torch())


def test_joined_populations_are_refused():
    with pytest.raises(hf.HoldfastError, match="joined populations"):
        hf.join([hf.Population(CLIENTS, NETWORK), hf.Population(CLIENTS, network_in_torch())])
    both = hf.join([hf.Population(CLIENTS, NETWORK, local=LOCAL, name=name) for name in "ab"])
    engine = holdfast.torch.Engine(network_in_torch())
    with pytest.raises(hf.HoldfastError, match="losses of their own"):
        hf.simulate(hf.algorithms.fedavg(), **both, rounds=1, engine=engine)
