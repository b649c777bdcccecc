"""Meta-learning baselines, and personal models by local steps."""

import numpy as np

import holdfast as hf
from tests.problems import QUADRATIC, random_quadratics, same_bits, tiny_clients


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
