"""Meta-learning baselines, and personal models by local steps."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from tests.engine.test_select import MODEL, viewers
from tests.problems import (
    QUADRATIC,
    largest_difference,
    random_quadratics,
    same_bits,
    tiny_clients,
)


def test_fomaml_follows_the_gradient_after_the_inner_steps(x64):
    clients, _ = random_quadratics(1)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    run = hf.simulate(
        hf.algorithms.fomaml(learning_rate=0.3), QUADRATIC, clients, hf.Local(0.1, steps=4), 5
    )
    x = np.zeros(4)
    for _ in range(5):
        adapted = centre + (1 - 0.1 * curvature) ** 4 * (x - centre)
        x = x - 0.3 * (curvature * (adapted - centre)).mean(0)
    np.testing.assert_allclose(run.params, x, atol=1e-12)


def test_reptile_is_fedavg_with_a_server_step():
    model, clients = hf.models.mlp([4], classes=3), tiny_clients()
    local = hf.Local(0.1, steps=3, batch_size=4)
    runs = [
        hf.simulate(algorithm, model, clients, local, rounds=2)
        for algorithm in (
            hf.algorithms.reptile(learning_rate=0.5),
            hf.algorithms.fedavg(server_learning_rate=0.5, weighting="uniform"),
        )
    ]
    assert same_bits(runs[0].params, runs[1].params)


def test_personal_models_after_local_steps(x64):
    clients, _ = random_quadratics(2)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    adapt = hf.Local(0.2, steps=3)
    run = hf.simulate(
        hf.algorithms.reptile(0.5),
        QUADRATIC,
        clients,
        hf.Local(0.1, steps=2),
        rounds=2,
        evaluate=hf.evaluate.personal(clients, adapt=adapt),
    )
    adapted = centre + (1 - 0.2 * curvature) ** 3 * (np.asarray(run.params) - centre)
    np.testing.assert_allclose(run.adapted(4, adapt), adapted[4], atol=1e-12)
    losses = 0.5 * (curvature * (adapted - centre) ** 2).sum(1)
    np.testing.assert_allclose(run.history[-1]["personal_loss"], losses.mean(), rtol=1e-10)


@pytest.mark.parametrize("method", [hf.algorithms.reptile, hf.algorithms.fomaml])
def test_what_meta_learning_deploys_is_the_adapted_model(x64, method):
    clients, _ = random_quadratics(2)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    settings = (QUADRATIC, clients, hf.Local(0.1, steps=2), 2)
    run = hf.simulate(method(0.5), *settings, evaluate=hf.evaluate.personal(clients))

    def after(rate, steps):
        return centre + (1 - rate * curvature) ** steps * (np.asarray(run.params) - centre)

    def mean_loss(models):
        return (0.5 * (curvature * (models - centre) ** 2).sum(1)).mean()

    # By the method's own local steps, for whoever asks: evaluators, personal, all at once.
    own = after(0.1, 2)
    np.testing.assert_allclose(run.personal(4), own[4], atol=1e-12)
    np.testing.assert_allclose(run.personal_all(), own, atol=1e-12)
    np.testing.assert_allclose(run.history[-1]["personal_loss"], mean_loss(own), rtol=1e-10)
    # Steps that are given replace them; they are not taken on top.
    np.testing.assert_allclose(run.adapted(4, hf.Local(0.2, steps=3)), after(0.2, 3)[4], atol=1e-12)
    algorithm = dataclasses.replace(method(0.5), adapt=hf.Local(0.2, steps=3))
    other = hf.simulate(algorithm, *settings, evaluate=hf.evaluate.personal(clients))
    np.testing.assert_array_equal(other.params, run.params)
    np.testing.assert_allclose(other.personal(4), after(0.2, 3)[4], atol=1e-12)
    plain = hf.simulate(dataclasses.replace(method(0.5), adapt=False), *settings)
    np.testing.assert_array_equal(plain.personal(4), run.params)


def test_an_adapted_model_takes_the_step_size_of_its_round(x64):
    clients, _ = random_quadratics(2)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    local = hf.Local(hf.schedules.exponential(0.1, decay=0.5), steps=1)
    run = hf.simulate(hf.algorithms.reptile(), QUADRATIC, clients, local, rounds=2)
    adapted = centre + (1 - 0.025 * curvature) * (np.asarray(run.params) - centre)
    np.testing.assert_allclose(run.personal(1), adapted[1], atol=1e-12)


def test_a_client_without_data_and_pooled_clients_adapt_to_nothing():
    some, model = tiny_clients(), hf.models.softmax_regression(3)
    clients = hf.Clients.from_rows(some.examples, [some.rows(0), some.rows(0)[:0], some.rows(1)])
    run = hf.simulate(hf.algorithms.reptile(), model, clients, hf.Local(0.1), rounds=1)
    assert same_bits(run.personal(1), run.params)
    assert not same_bits(run.personal(0), run.params)
    with pytest.raises(hf.HoldfastError, match=r"centralised: .* no client has data of its own"):
        dataclasses.replace(hf.algorithms.centralised(), adapt=True)
    adapting = hf.evaluate.personal(clients, adapt=hf.Local(0.1))
    with pytest.raises(hf.HoldfastError, match="no client has data of its own"):
        hf.simulate(
            hf.algorithms.centralised(), model, clients, hf.Local(0.1), 1, evaluate=adapting
        )
    with pytest.raises(hf.HoldfastError, match="adapt=3; give"):
        dataclasses.replace(hf.algorithms.reptile(), adapt=3)


def test_each_population_adapts_as_it_trains(x64):
    a, b = random_quadratics(1, clients=3)[0], random_quadratics(2, clients=4)[0]
    joined = hf.join([hf.Population(p, QUADRATIC, weight=1.0) for p in (a, b)])
    local = (hf.Local(0.1, steps=2), hf.Local(0.2, steps=1))
    run = hf.simulate(hf.algorithms.reptile(), **joined._asdict(), local=local, rounds=2)
    for client, clients, i, how in ((1, a, 1, 0), (5, b, 2, 1)):
        curvature, centre = (np.asarray(e)[i] for e in clients.examples)
        rate, steps = local[how].learning_rate, local[how].steps
        expected = centre + (1 - rate * curvature) ** steps * (np.asarray(run.params) - centre)
        np.testing.assert_allclose(run.personal(client), expected, atol=1e-12)


def test_adapted_models_are_the_same_with_select_and_after_a_resume(tmp_path):
    def run(rounds, select=False, checkpoint=None, adapt=True):
        algorithm = dataclasses.replace(hf.algorithms.reptile(0.5), adapt=adapt)
        local = hf.Local(0.1, steps=2, batch_size=2)
        settings = {"select": select, "evaluate": hf.evaluate.personal(viewers())}
        return hf.simulate(
            algorithm, MODEL, viewers(), local, rounds, checkpoint=checkpoint, **settings
        )

    whole = run(3)
    assert largest_difference(run(3, select=True).personal(1), whole.personal(1)) < 1e-6
    run(2, checkpoint=tmp_path)
    gone_on = run(3, checkpoint=tmp_path)
    assert same_bits(gone_on.personal(1), whole.personal(1))
    assert gone_on.history["personal_loss"].tolist() == whole.history["personal_loss"].tolist()
    # What was measured before would not be comparable.
    with pytest.raises(hf.HoldfastError, match="another evaluation"):
        run(4, checkpoint=tmp_path, adapt=hf.Local(0.1, steps=7))


def test_a_decay_of_the_inner_steps_alone_is_refused():
    local = hf.Local(0.1, steps=2, weight_decay=0.1)
    clients, model = tiny_clients(), hf.models.softmax_regression(3)
    with pytest.raises(hf.HoldfastError, match="FirstOrderMAML needs any penalty in the loss"):
        hf.simulate(hf.algorithms.fomaml(), model, clients, local, rounds=1)
