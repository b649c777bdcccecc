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
        ids = list(seen[t + 1].ledger.entries[-1].clients)
        everyone, own = a * (w - b), w - 2.0
        # What the mixture has is measured on the coming cohort.
        mean = everyone[ids].mean(0)
        parts = 0.7 * mean @ mean + 0.3 * own @ own
        both = np.sum((0.7 * mean + 0.3 * own) ** 2)
        expected = {
            "G2_clients": ((everyone - everyone.mean(0)) ** 2).sum(1).mean(),
            "xi2_server": np.sum((own - everyone.mean(0)) ** 2),
            "G2_mixed": parts - both,
            "B2_mixed": parts / both,
        }
        for name, value in expected.items():
            assert result.history[name][t] == pytest.approx(value, rel=1e-9), name


def _measured(clients, rounds=1, **given):
    """At the model 0, where all rounds stay."""
    measure = hf.diagnose.dissimilarity(clients=given.pop("drawn", None))
    model, weighting = given.pop("model", QUADRATIC), given.pop("weighting", "uniform")
    run = hf.simulate(
        hf.algorithms.fedavg_plus(hf.schedules.constant(1e-9), weighting=weighting),
        model,
        clients,
        hf.Local(1e-12, steps=1),
        rounds,
        server=hf.Server(central_loss, hf.Local(1e-12, steps=1)),
        evaluate=measure,
        **given,
    )
    return run.history["G2_clients"], run.history["xi2_server"]


def _expected(gradients, objective, heads, own):
    mean = objective @ gradients / objective.sum()
    apart = heads @ ((gradients - mean) ** 2).sum(1) / heads.sum()
    return apart, np.sum((own - mean) ** 2)


def test_a_sample_is_right_on_average(x64):
    clients, _ = random_quadratics(3, clients=6)
    a, b = clients.examples
    wanted = _expected(-a * b, np.ones(6), np.ones(6), np.full(4, -2.0))
    for drawn in (2, 4):
        for found, right in zip(_measured(clients, 400, drawn=drawn), wanted, strict=True):
            error = found.std() / np.sqrt(len(found))
            assert error > 0
            assert abs(found.mean() - right) < 4 * error
    for found, right in zip(_measured(clients, drawn=6), wanted, strict=True):
        assert found[0] == pytest.approx(right, rel=1e-9)


def _unequal(seed, sizes):
    data, _ = random_quadratics(seed, clients=sum(sizes))
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    a, b = data.examples
    gradients = np.stack([-(a[r] * b[r]).mean(0) for r in rows])
    return hf.Clients.from_rows(data.examples, rows), gradients


def test_the_objective_is_that_of_the_run(x64):
    sizes = (1, 3, 2)
    clients, gradients = _unequal(4, sizes)
    for weighting, weights in (("examples", np.array(sizes, float)), ("uniform", np.ones(3))):
        wanted = _expected(gradients, weights, np.ones(3), np.full(4, -2.0))
        found = _measured(clients, weighting=weighting, cohort=hf.cohorts.fixed(1))
        np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-9)


def test_the_mixture_is_that_of_the_weighted_losses(x64):
    sizes = (1, 3, 2)
    clients, gradients = _unequal(4, sizes)
    own = np.full(4, -2.0)
    for weighting, weights in (("examples", np.array(sizes)), ("uniform", np.ones(3))):
        run = hf.simulate(
            hf.algorithms.parallel_training(weighting=weighting),
            QUADRATIC,
            clients,
            hf.Local(1e-12, steps=1),
            rounds=1,
            server=hf.Server(central_loss, hf.Local(1e-12, steps=1)),
            evaluate=hf.diagnose.dissimilarity(),
        )
        mean = weights @ gradients / weights.sum()
        # With half and half the difference of the two terms is a quarter of the squared distance.
        wanted = np.sum((mean - own) ** 2) / 4
        assert run.history["G2_mixed"][0] == pytest.approx(wanted, rel=1e-9)


def test_joined_populations_count_by_their_weights(x64):
    (a, of_a), (b, of_b) = _unequal(5, (1, 1)), _unequal(6, (1, 1, 1, 1, 1, 1))
    few = hf.Population(a, QUADRATIC, weight=3.0, cohort=hf.cohorts.fixed(1))
    joined = hf.join([few, hf.Population(b, QUADRATIC)])
    weights = np.repeat([3.0 / 2, 1.0 / 6], (2, 6))
    wanted = _expected(np.concatenate([of_a, of_b]), weights, weights, np.full(4, -2.0))
    found = _measured(**joined._asdict())
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-9)


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


def test_two_clients_are_the_fewest():
    for clients in (1, 0.5, "all"):
        with pytest.raises(hf.HoldfastError, match=r"dissimilarity: clients=.* at least 2"):
            hf.diagnose.dissimilarity(clients=clients)


def test_weights_must_be_positive():
    with pytest.raises(hf.HoldfastError, match=r"central=0; give weights above 0"):
        hf.diagnose.dissimilarity(central=0)


def test_layers_add_up_to_the_whole_model():
    from tests.problems import tiny_clients

    clients = tiny_clients()
    server = hf.Server(clients[0], hf.Local(0.1, steps=2))
    runs = [
        hf.simulate(
            hf.algorithms.parallel_training(),
            hf.models.mlp([4], classes=3),
            clients,
            hf.Local(0.1, steps=2),
            2,
            server=server,
            evaluate=hf.diagnose.dissimilarity(layers=layers),
        )
        for layers in (True, False)
    ]
    by_layer, whole = (run.history for run in runs)
    for name in ("G2_clients", "xi2_server", "G2_mixed"):
        parts = [by_layer[f"{name}/{layer}"] for layer in ("hidden_0", "classifier")]
        np.testing.assert_allclose(np.sum(parts, axis=0), whole[name], rtol=1e-5)
        np.testing.assert_array_equal(by_layer[name], whole[name])
    assert (by_layer["B2_mixed/classifier"] >= 1 - 1e-6).all()
    with pytest.raises(hf.HoldfastError, match="dissimilarity: layers='all'; give True or False"):
        hf.diagnose.dissimilarity(layers="all")
