"""Bounds of the server: what is made of a reply is what the client goes by, and nobody moves more."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.aggregates.bounded import Bounding
from holdfast.core.mean import Judged, Seen, middle
from holdfast.trees import norm
from tests.problems import QUADRATIC, random_quadratics, tiny_clients

METHODS = {
    "scaffold": hf.algorithms.scaffold(),
    "scaffold published": hf.algorithms.scaffold(upload="published"),
    "scaffold option I": hf.algorithms.scaffold(option="I"),
    "feddyn": hf.algorithms.feddyn(alpha=2.0),
}
MEANS = {
    "bounded": hf.aggregates.NormBounded(),
    "bounded hard": hf.aggregates.NormBounded(factor=0.5),
    "centred": hf.aggregates.CenteredClipping(factor=1.0),
}
LOCAL = hf.Local(learning_rate=0.05, steps=5)


def having(algorithm, mean):
    return dataclasses.replace(algorithm, aggregate=mean)


def rows_of(run):
    return np.stack([run.client_states[i].rule for i in range(len(run.client_states))])


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("name", METHODS)
def test_the_servers_state_stays_the_mean_of_the_rows(name, mean, x64):
    """Whoever takes part, however many replies are bounded."""
    clients, _ = random_quadratics(5)
    method = having(METHODS[name], MEANS[mean])
    cohort = hf.cohorts.fixed(3)
    run = hf.simulate(method, QUADRATIC, clients, LOCAL, rounds=12, cohort=cohort)
    assert sum(run.history["bounded"][1:]) > 0
    assert np.abs(rows_of(run)).max() > 0.1
    np.testing.assert_allclose(run.state.server.rule, rows_of(run).mean(0), atol=1e-12)


@pytest.mark.parametrize("mean", ["bounded", "centred"])
@pytest.mark.parametrize("name", METHODS)
def test_the_fixed_point_is_the_optimum_where_nobody_lies(name, mean, x64):
    clients, optimum = random_quadratics(3)
    run = hf.simulate(having(METHODS[name], MEANS[mean]), QUADRATIC, clients, LOCAL, rounds=400)
    np.testing.assert_allclose(run.params, optimum, atol=1e-6)


@pytest.mark.parametrize("wire", ["plain", "compressed", "error feedback", "clipped"])
def test_rows_follow_the_server_through_every_wire(wire, x64):
    wires = {
        "plain": hf.Wire(),
        "compressed": hf.wires.Compressed(hf.wires.Natural()),
        "error feedback": hf.wires.ErrorFeedback(hf.wires.TopK(k=2)),
        "clipped": hf.wires.Clipped(hf.Wire(), bound=0.5),
    }
    clients, _ = random_quadratics(6)
    mean = hf.aggregates.NormBounded(factor=0.7)
    rule = hf.rules.ControlVariate(damping=0.5)
    method = hf.Algorithm(rule, wires[wire], aggregate=mean)
    cohort = hf.cohorts.fixed(4)
    run = hf.simulate(method, QUADRATIC, clients, LOCAL, rounds=8, cohort=cohort)
    assert sum(run.history["bounded"][1:]) > 0
    np.testing.assert_allclose(run.state.server.rule, rows_of(run).mean(0), atol=1e-12)


def test_no_reply_moves_more_than_the_bound():
    """Ten thousand random trees: of sizes from 1e-30 to beyond what squares of floats can hold."""
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-30, 30, 10_000)
    delta = (rng.normal(size=(10_000, 7)) * sizes[:, None]).astype(np.float32)
    upload = (rng.normal(size=(10_000, 2, 3)) * sizes[:, None, None]).astype(np.float32)
    centre = (jnp.asarray(rng.normal(size=7) / 10, jnp.float32), jnp.zeros((2, 3), jnp.float32))
    for around in (None, centre):
        mean = Bounding(jnp.float32(1.5), around)
        taken, seen = jax.vmap(mean.take)((jnp.asarray(delta), jnp.asarray(upload)))
        way = taken if around is None else jax.tree.map(lambda a, c: a - c[None], taken, around)
        found = jax.vmap(norm)(jax.tree.map(lambda a: a.astype(jnp.float32), way))
        assert bool(jnp.isfinite(found).all())
        assert float(found.max()) <= 1.5 * (1 + 1e-5)
        assert 0.1 < float(seen.bounded.mean()) < 0.9


def test_what_is_within_the_bound_keeps_its_bits():
    reply = (jnp.array([0.3, -0.4]), (jnp.array(1e-20),))
    taken, seen = Bounding(jnp.float32(0.6)).take(reply)
    pairs = zip(jax.tree.leaves(taken), jax.tree.leaves(reply), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert not seen.bounded


def test_middle_is_the_median_of_who_is_there():
    values = jnp.array([5.0, 1.0, jnp.inf, 3.0, 2.0])
    there = np.array(
        [[1, 1, 0, 1, 0], [1, 1, 0, 1, 1], [1, 0, 0, 0, 0], [0] * 5, [0, 1, 1, 1, 0]], bool
    )
    found = [float(middle(values, jnp.asarray(who))) for who in there]
    assert found == [3.0, 2.5, 5.0, 0.0, 3.0]


def test_the_bound_is_a_multiple_of_the_medians_of_medians(x64):
    mean = hf.aggregates.NormBounded(factor=3.0, first=7.0, window=3)
    state = mean.init(jnp.zeros(2))
    assert float(mean.say(state)) == 7.0
    for sizes, there, bound in (
        ([1.0, 2.0, 9.0], [True, True, True], 6.0),
        ([4.0, 5.0, 9.0], [True, False, False], 9.0),  # of 2 and 4
        ([0.0, 0.0, 0.0], [True, True, True], 9.0),  # zeros count in no median
        ([jnp.inf, jnp.inf, 1.0], [True, True, True], 9.0),
        ([6.0, 6.0, 0.0], [True, True, True], 12.0),
        ([8.0, 8.0, 8.0], [True, True, True], 18.0),  # 4, 6 and 8: the first has left the window
    ):
        judged = Judged(jnp.array(there), Seen(jnp.array(sizes), jnp.zeros(3, bool)))
        state = mean.after(state, judged, ())
        assert float(mean.say(state)) == bound


def test_the_first_round_measures_and_moves_nothing():
    clients, _ = random_quadratics(1)
    method = having(hf.algorithms.feddyn(alpha=1.0), hf.aggregates.NormBounded())
    run = hf.simulate(method, QUADRATIC, clients, LOCAL, rounds=1)
    assert not np.asarray(run.params).any()
    assert not rows_of(run).any()
    assert run.history["bounded"].tolist() == [10]
    given = having(hf.algorithms.fedavg(), hf.aggregates.NormBounded(first=1e6))
    moved = hf.simulate(given, QUADRATIC, clients, LOCAL, rounds=1)
    plain = hf.simulate(hf.algorithms.fedavg(), QUADRATIC, clients, LOCAL, rounds=1)
    assert np.array_equal(moved.params, plain.params)


def test_a_bound_that_nobody_reaches_is_the_plain_mean():
    clients = tiny_clients()
    model, local = hf.models.softmax_regression(classes=3), hf.Local(0.1, epochs=1, batch_size=4)
    mean = hf.aggregates.NormBounded(factor=1e9, first=1e9)
    for method in (hf.algorithms.fedavg(), hf.algorithms.scaffold()):
        plain, bounded = (
            hf.simulate(m, model, clients, local, rounds=3) for m in (method, having(method, mean))
        )
        for a, b in zip(
            jax.tree.leaves(plain.params), jax.tree.leaves(bounded.params), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


def test_the_plain_mean_is_the_same_program():
    """Given or not, to the letter of what is compiled."""
    clients = tiny_clients()
    model, local = hf.models.softmax_regression(classes=3), hf.Local(0.1, steps=2, batch_size=4)

    def program(method):
        from holdfast.core.round import federated_round
        from holdfast.engine.simulation import Simulation

        simulation = Simulation(hf.Experiment(method, model, clients, local))
        state = simulation.begin()
        inputs = simulation.inputs(state, simulation.planner(0))
        return jax.jit(federated_round).lower(inputs).as_text()

    method = hf.algorithms.feddyn(alpha=1.0)
    assert program(method) == program(having(method, hf.aggregates.Mean()))
    assert program(method) != program(having(method, hf.aggregates.NormBounded()))


def test_the_ledger_counts_what_is_said():
    clients, _ = random_quadratics(1)
    settings = dict(model=QUADRATIC, clients=clients, local=LOCAL, rounds=1)
    plain = hf.simulate(hf.algorithms.fedavg(), **settings)
    size = np.asarray(plain.params).dtype.itemsize
    for mean, more in ((MEANS["bounded"], size), (MEANS["centred"], 5 * size)):
        run = hf.simulate(having(hf.algorithms.fedavg(), mean), **settings)
        assert run.ledger.bytes_down == plain.ledger.bytes_down + 10 * more
        assert run.ledger.bytes_up == plain.ledger.bytes_up


def test_history_says_who_is_bounded(x64):
    clients, _ = random_quadratics(2)
    attack = hf.attacks.Boosted(times=100.0, clients=[4, 7])
    mean = hf.aggregates.NormBounded(factor=4.0)
    run = hf.simulate(
        having(hf.algorithms.fedavg(), mean), QUADRATIC, clients, LOCAL, 5, attack=attack
    )
    assert [d["bounded_clients"] for d in run.history.details[1:]] == [[4, 7]] * 4
    assert run.history["bounded"].tolist() == [10, 2, 2, 2, 2]


@pytest.mark.parametrize("mean", ["bounded", "centred"])
@pytest.mark.parametrize(
    "method",
    [hf.algorithms.fedavg(), hf.algorithms.scaffold(upload="published"), hf.algorithms.feddyn(0.5)],
    ids=lambda a: a.name,
)
def test_conformance(method, mean):
    hf.testing.check(having(method, MEANS[mean]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda mean: hf.Algorithm(wire=hf.OnSite(), aggregate=mean), "nothing travels"),
        (
            lambda mean: hf.Algorithm(wire=hf.wires.Diana(hf.wires.Natural()), aggregate=mean),
            "tells the server only their mean",
        ),
        (lambda mean: hf.Algorithm(aggregate="NormBounded"), "give one of hf.aggregates"),
        (
            lambda mean: hf.Algorithm(
                aggregate=hf.aggregates.NormBounded(hf.PerClient([1.0, 2.0]))
            ),
            "the same for all",
        ),
        (
            lambda mean: hf.Algorithm(
                hf.rules.AdaptiveClip(initial=1.0),
                weighting="uniform",
                aggregate=mean,
            ),
            "counts clients",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(hf.HoldfastError, match=words) as refused:
        make(MEANS["bounded"])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", [dict(factor=0.0), dict(first=-1.0), dict(window=0)])
def test_numbers_out_of_range_are_refused(given):
    with pytest.raises(hf.HoldfastError, match=next(iter(given))):
        hf.aggregates.NormBounded(**given)
