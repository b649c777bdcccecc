"""Several federations with losses and cohorts of their own, one model."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, largest_difference, random_quadratics, tiny_clients

LOCAL = hf.Local(0.05, steps=5)
TILTED = dataclasses.replace(
    QUADRATIC, loss=lambda w, batch: QUADRATIC.loss(w, batch) + 2.0 * jnp.sum(w), name="tilted"
)


def two_populations(**cohorts):
    a, _ = random_quadratics(1, clients=6)
    b, _ = random_quadratics(2, clients=15)
    joined = hf.join(
        [
            hf.Population(a, QUADRATIC, weight=1.0, cohort=cohorts.get("a", hf.cohorts.everyone())),
            hf.Population(b, TILTED, weight=0.5, cohort=cohorts.get("b", hf.cohorts.everyone())),
        ]
    )
    (c_a, m_a), (c_b, m_b) = a.examples, b.examples
    curvature = c_a.mean(0) + 0.5 * c_b.mean(0)
    pull = (c_a * m_a).mean(0) + 0.5 * ((c_b * m_b).mean(0) - 2.0)
    return joined, pull / curvature


@pytest.mark.parametrize(
    "cohorts",
    [{}, {"a": hf.cohorts.fixed(2), "b": hf.cohorts.fixed(9)}],
    ids=["everyone", "different rates"],
)
@pytest.mark.parametrize(
    "algorithm",
    [hf.algorithms.scaffold(), hf.algorithms.feddyn(2.0), hf.algorithms.feddc(2.0)],
    ids=lambda a: a.name,
)
def test_corrections_reach_the_optimum_of_the_weighted_objective(algorithm, cohorts, x64):
    joined, optimum = two_populations(**cohorts)
    run = hf.simulate(algorithm, **joined._asdict(), local=LOCAL, rounds=800)
    np.testing.assert_allclose(run.params, optimum, atol=1e-7)


def test_one_full_step_is_gradient_descent_on_the_weighted_objective(x64):
    joined, _ = two_populations()
    run = hf.simulate(
        hf.algorithms.fedavg(weighting="uniform"),
        **joined._asdict(),
        local=hf.Local(0.1, steps=1),
        rounds=1,
    )
    a, b = random_quadratics(1, clients=6)[0], random_quadratics(2, clients=15)[0]
    gradients = [-(c.examples.x * c.examples.y).mean(0) for c in (a, b)]
    expected = -0.1 * (gradients[0] + 0.5 * (gradients[1] + 2.0)) / 1.5
    np.testing.assert_allclose(run.params, expected, atol=1e-12)


def test_with_a_central_loss_too(x64):
    joined, _ = two_populations()
    rule = hf.Chain((hf.rules.ControlVariate(), hf.rules.OneWayTransfer()))
    server = hf.Server(lambda w: 0.5 * jnp.sum((w - 7.0) ** 2), LOCAL)
    run = hf.simulate(
        hf.Algorithm(rule), **joined._asdict(), local=LOCAL, rounds=800, server=server
    )
    a, b = random_quadratics(1, clients=6)[0].examples, random_quadratics(2, clients=15)[0].examples
    # deltas are averaged over populations by weight, 1 and 0.5 of 1.5
    curvature = (a.x.mean(0) + 0.5 * b.x.mean(0)) / 1.5 + 1
    pull = ((a.x * a.y).mean(0) + 0.5 * ((b.x * b.y).mean(0) - 2.0)) / 1.5 + 7.0
    np.testing.assert_allclose(run.params, pull / curvature, atol=1e-8)


def test_one_population_is_as_without_joining():
    clients, model = tiny_clients(), hf.models.mlp([4], 3)
    joined = hf.join([hf.Population(clients, model, hf.cohorts.fixed(3))])
    local = hf.Local(0.1, epochs=2, batch_size=4)
    for algorithm in (hf.algorithms.fedavg(), hf.algorithms.scaffold()):
        ours = hf.simulate(algorithm, **joined._asdict(), local=local, rounds=3, seed=2)
        plain = hf.simulate(algorithm, model, clients, local, 3, seed=2, cohort=hf.cohorts.fixed(3))
        assert largest_difference(ours.params, plain.params) < 1e-6


def test_each_population_draws_its_own_cohort():
    joined, _ = two_populations(a=hf.cohorts.fixed(2), b=hf.cohorts.bernoulli(0.4))
    run = hf.simulate(hf.algorithms.fedavg(), **joined._asdict(), local=LOCAL, rounds=20)
    first = [sum(i < 6 for i in e.clients) for e in run.ledger.entries]
    second = [sum(i >= 6 for i in e.clients) for e in run.ledger.entries]
    assert set(first) == {2}
    assert len(set(second)) > 2


def test_metrics_are_each_populations_own():
    clients, model = tiny_clients(), hf.models.mlp([4], 3)
    louder = dataclasses.replace(
        model,
        metrics=lambda p, b: {n: 2 * v for n, v in model.measure(p, b).items()},
    )
    joined = hf.join([hf.Population(clients, model), hf.Population(clients, louder)])
    together = joined.clients.examples
    run = hf.simulate(
        hf.algorithms.fedavg(),
        **joined._asdict(),
        local=hf.Local(0.1),
        rounds=1,
        evaluate=[hf.evaluate.on(together)],
    )
    plain = hf.evaluate.measure(model, run.params, clients.examples)
    assert run.history["loss"][0] == pytest.approx(1.5 * plain["loss"], rel=1e-5)


def test_what_cannot_be_joined_is_refused():
    clients = tiny_clients()
    wider = tiny_clients(features=6)
    model = hf.models.mlp([4], 3)
    with pytest.raises(hf.HoldfastError, match=r"one population has examples of x float32\(1, 5\)"):
        hf.join([hf.Population(clients, model), hf.Population(wider, model)])
    with pytest.raises(hf.HoldfastError, match="no populations are given"):
        hf.join([])
    with pytest.raises(hf.HoldfastError, match="weight=0; give a number above 0"):
        hf.Population(clients, model, weight=0)
    joined = hf.join([hf.Population(clients, model, hf.cohorts.fixed(5))])
    with pytest.raises(hf.HoldfastError, match="5 clients are asked for but 4 of 4 have data"):
        hf.simulate(hf.algorithms.fedavg(), **joined._asdict(), local=LOCAL, rounds=1)
