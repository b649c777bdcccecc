"""Measured dissimilarity against closed forms on quadratics."""

import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, random_quadratics


def central_loss(w):
    return 0.5 * jnp.sum((w - 2.0) ** 2)


@pytest.mark.parametrize("cohort", [None, hf.cohorts.fixed(4), hf.cohorts.bernoulli(0.3)])
def test_every_round_into_the_history(cohort, x64):
    clients, _ = random_quadratics(0)
    seen = []
    result = hf.simulate(
        hf.algorithms.parallel_training(),
        QUADRATIC,
        clients,
        hf.Local(0.05, steps=2),
        rounds=3,
        cohort=cohort,
        server=hf.Server(central_loss, hf.Local(0.05, steps=2)),
        evaluate=hf.diagnose.dissimilarity(federated=0.7, central=0.3),
        on_round=seen.append,
    )
    a, b = clients.examples
    for t, state in enumerate(seen[:-1]):
        w = np.asarray(state.params)
        ids = list(seen[t + 1].ledger.entries[-1].clients)  # measured on the coming cohort
        gradients = (a * (w - b))[ids]
        mean, own = gradients.mean(0), w - 2.0
        parts = 0.7 * mean @ mean + 0.3 * own @ own
        both = np.sum((0.7 * mean + 0.3 * own) ** 2)
        expected = {
            "G2_clients": ((gradients - mean) ** 2).sum(1).mean(),
            "xi2_server": np.sum((own - mean) ** 2),
            "G2_mixed": parts - both,
            "B2_mixed": parts / both,
        }
        for name, value in expected.items():
            assert result.history[name][t] == pytest.approx(value, rel=1e-9), name


def test_without_a_server_only_the_clients_disagree():
    train, _ = hf.data.digits()
    model, local = hf.models.softmax_regression(10), hf.Local(0.1, steps=1, batch_size=10)
    found = {}
    for name, clients in {
        "iid": hf.data.partition.iid(train, 10),
        "one class": hf.data.partition.by_classes(train, 10, 1),
    }.items():
        run = hf.simulate(
            hf.algorithms.fedavg(), model, clients, local, 1, evaluate=hf.diagnose.dissimilarity()
        )
        assert "xi2_server" not in run.history.columns
        found[name] = run.history["G2_clients"][0]
    assert found["one class"] > 20 * found["iid"]


def test_a_servers_data_like_the_clients_is_close_to_them():
    train, test = hf.data.digits()
    run = hf.simulate(
        hf.algorithms.fedavg_plus(0.5),
        hf.models.softmax_regression(10),
        hf.data.partition.by_classes(train, 10, 1),
        hf.Local(0.1, steps=1, batch_size=10),
        rounds=2,
        server=hf.Server(test, hf.Local(0.1, steps=1, batch_size=50), gradient_batch_size=200),
        evaluate=hf.diagnose.dissimilarity(),
    )
    assert (run.history["xi2_server"] < 0.2 * run.history["G2_clients"]).all()


def test_weights_must_be_positive():
    with pytest.raises(hf.HoldfastError, match=r"central=0; give weights above 0"):
        hf.diagnose.dissimilarity(central=0)
