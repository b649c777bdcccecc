"""Noise that later rounds take back: what it is, what it spends, which cohorts it is for."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.privacy import Scheme, epsilon
from holdfast.privacy.account import known_cohorts
from holdfast.privacy.asked import noisy
from holdfast.privacy.banded import coefficients_for, moved, separation_of
from holdfast.testing import CHECKS, check
from tests import problems
from tests.privacy.test_gaussian import LOCAL, STILL, clients

dp = pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
toeplitz = pytest.importorskip(
    "jax_privacy.matrix_factorization.toeplitz", reason="needs holdfast[privacy]"
)
# Found once for all tests that take four rounds.
FOUR = hf.privacy.Banded(coefficients=(0.8, 0.6))
IN_TURN = hf.cohorts.schedule([[0, 1], [2, 3]])


def private(rule=None, correlated=FOUR, **changed):
    given = {"clip": 0.5, "delta": 1e-3, "noise_multiplier": 2.0, "correlated": correlated}
    return hf.privacy.Gaussian(**given | changed).beside(
        hf.Algorithm(rule or hf.Rule(), weighting="uniform")
    )


def run(algorithm=None, rounds=4, cohort=IN_TURN, **more):
    given = {"cohort": cohort, "rounds": rounds, "seed": 3} | more
    return hf.simulate(algorithm or private(), STILL, clients(), LOCAL, **given)


def inverse(coefficients, rounds):
    whole = np.zeros((rounds, rounds))
    for j, c in enumerate(coefficients):
        whole += c * np.eye(rounds, k=-j)
    return np.linalg.inv(whole)


def test_noise_of_rounds_and_of_models_is_what_the_matrix_says():
    """A million numbers: covariances of rounds to half a percent of the largest, and of their sums."""
    states = hf.rounds(private(rounds=4), STILL, clients(), LOCAL, cohort=IN_TURN, seed=3)
    models = [np.asarray(next(states).params["w"], np.float64) for _ in range(4)]
    noise = np.diff([np.zeros_like(models[0]), *models], axis=0)
    # Two clients are expected; one moves the sum by half.
    factor = 2.0 * 0.5 / 2 * inverse((0.8, 0.6), 4)
    assert np.abs(np.cov(noise) - factor @ factor.T).max() < 0.005 * np.max(factor @ factor.T)
    summed = np.tril(np.ones((4, 4))) @ factor
    assert np.cov(models) == pytest.approx(summed @ summed.T, rel=0.01)
    assert np.abs(np.mean(models, axis=1)).max() < 0.005


def test_models_have_less_noise_than_with_independent_noise_of_the_same_epsilon():
    made = {}
    for bands in (1, 8):
        coefficients = coefficients_for(bands, 40)
        summed = np.tril(np.ones((40, 40))) @ inverse(coefficients, 40)
        made[bands] = np.mean(np.sum(summed**2, axis=1))
        with jax.numpy_dtype_promotion("standard"):
            told = toeplitz.per_query_error(strategy_coef=jnp.asarray(coefficients), n=40)
        assert made[bands] == pytest.approx(float(jnp.mean(told)), rel=1e-3)
    assert made[8] < 0.5 * made[1]
    assert np.linalg.norm(coefficients_for(8, 40)) == pytest.approx(1, abs=1e-4)


def test_what_a_client_moves_is_jax_privacys_own():
    """Clients in turn, at least as many rounds apart as there are bands; and from the matrix itself."""
    three = (0.8, 0.5, np.sqrt(1 - 0.8**2 - 0.5**2))
    for size, coefficients, rounds in ((3, three, 13), (6, three, 30), (5, (1.0,), 11)):
        cohorts = [np.array([t % size]) for t in range(rounds)]
        assert separation_of(cohorts)[0] == size
        found = moved(coefficients, cohorts)
        told = toeplitz.minsep_sensitivity_squared(jnp.asarray(coefficients), size, n=rounds)
        assert found[-1] == pytest.approx(float(jnp.sqrt(told)), rel=1e-5)
        whole = np.linalg.inv(inverse(coefficients, rounds))
        for t in (1, 5, rounds):
            columns = [whole[:t, k:t:size].sum(axis=1) for k in range(size)]
            assert found[t - 1] == pytest.approx(max(np.linalg.norm(c) for c in columns), rel=1e-6)
    assert list(found) == sorted(found)


def test_epsilon_is_dp_accountings_of_one_gaussian_mechanism():
    cohorts = known_cohorts(IN_TURN, np.arange(4), 40)
    scheme = Scheme("planned", 4, 0.5, moved((0.8, 0.6), cohorts))
    for rounds in (1, 7, 40):
        whole = dp.GaussianDpEvent(5.0 / scheme.moved[rounds - 1])
        own = dp.pld.PLDAccountant(value_discretization_interval=1e-5).compose(whole)
        found = epsilon(scheme, 5.0, rounds, 1e-5, "pld")
        assert found == pytest.approx(own.get_epsilon(1e-5), abs=1e-4)
    # Two rounds apart with two bands: as many independent Gaussians as a client comes.
    everyone = epsilon(Scheme("everyone", 4), 5.0, 20, 1e-5, "pld")
    assert epsilon(scheme, 5.0, 40, 1e-5, "pld") == pytest.approx(everyone, abs=1e-6)


def test_the_budget_is_for_the_rounds_of_the_run_and_ends_with_them():
    asked = private(epsilon=8.0, noise_multiplier=None, correlated=hf.privacy.Banded())
    done = run(asked, rounds=5)
    assert done.privacy.cohort == "planned"
    assert 7.9 < done.history["epsilon"][-1] <= 8.0
    assert done.privacy.epsilon == done.history["epsilon"][-1]
    assert np.all(np.diff(done.history["epsilon"]) >= 0)
    wire = done.simulation.setup.algorithm.wire
    assert len(wire.correlated.coefficients) == 2
    assert done.privacy.noise_in_mean == pytest.approx(
        wire.noise_multiplier * 0.5 / wire.correlated.coefficients[0] / 2
    )
    assert "in which rounds a client takes part is public" in done.privacy.sentence
    states = hf.rounds(private(rounds=3), STILL, clients(), LOCAL, cohort=IN_TURN)
    for _ in range(3):
        next(states)
    with pytest.raises(hf.HoldfastError, match="the 3 rounds for which the noise is correlated"):
        next(states)


def test_a_run_that_was_stopped_goes_on_with_the_same_noise(tmp_path):
    whole = run()
    saved = hf.Checkpoint(tmp_path, every=1)
    run(checkpoint=saved, until=lambda state: state.round == 2)
    again = run(checkpoint=saved)
    assert len(again.history) == 4
    assert np.array_equal(whole.params["w"], again.params["w"])
    past = jax.tree.leaves(whole.state.server.wire.past)
    assert len(past) == 1
    assert np.array_equal(past[0], jax.tree.leaves(again.state.server.wire.past)[0])


@pytest.mark.parametrize("name", ["feddyn", "scaffold"])
def test_server_states_are_the_mean_of_client_states_and_all_noise(name):
    """As with independent noise; all of it has been taken back in part by then."""
    data, _ = problems.random_quadratics(1, clients=4)
    rule = hf.rules.ControlVariate() if name == "scaffold" else hf.rules.Dynamic(alpha=0.5)
    local = hf.Local(learning_rate=0.1, steps=3)
    with jax.enable_x64(True):
        done = hf.simulate(
            private(rule, clip=1.5),
            problems.QUADRATIC,
            data,
            local,
            rounds=6,
            cohort=IN_TURN,
            seed=4,
        )
        setup = done.simulation.setup
        wire = setup.algorithm.wire
        shapes = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), setup.template.payload)
        fresh = []
        for t in range(6):
            delta, upload = noisy(shapes, wire.deviation, wire.noise_key(4, t))
            fresh.append(np.asarray(upload if name == "scaffold" else delta) / 2)
    noise = inverse((0.8, 0.6), 6) @ np.array(fresh)
    # A round's mean over the two who come is half of the population's.
    added = noise.sum(axis=0) / 2
    rows = np.stack([done.client_states[i].rule for i in range(4)])
    assert np.abs(rows).max() > 0.1
    state = np.asarray(done.state.server.rule)
    np.testing.assert_allclose(state, rows.mean(axis=0) + added, atol=1e-9)
    assert np.abs(added - sum(fresh) / 2).max() > 1e-2


def test_what_a_client_moves_is_bound_whatever_the_signs():
    """Of coefficients and of its replies: never less than the worst of all directions, by trying them."""
    cohorts = [np.array([0])] * 5
    for coefficients in ((0.8, 0.6), (0.8, -0.6), (0.7, -0.5, 0.5)):
        whole = np.linalg.inv(inverse(coefficients, 5))
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=5)))
        worst = np.linalg.norm(signs @ whole.T, axis=1).max()
        assert moved(coefficients, cohorts)[-1] >= worst * (1 - 1e-12)
    assert moved((0.8, 0.6), cohorts)[-1] == pytest.approx(
        np.linalg.norm(np.linalg.inv(inverse((0.8, 0.6), 5)).sum(axis=1))
    )


PAIRS = {
    "plain": (hf.Wire(), LOCAL),
    "packed": (hf.wires.Compressed(hf.wires.Natural()), LOCAL),
    "downlink": (hf.wires.Downlink(hf.Wire(), hf.wires.Natural()), LOCAL),
    "momentum and decay": (
        hf.Wire(),
        hf.Local(learning_rate=0.1, steps=2, batch_size=4, momentum=0.9, weight_decay=1e-3),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_one_band_is_independent_noise(name):
    """Beside every wire that noise goes with; where everybody comes, by two accounts."""
    wire, local = PAIRS[name]
    made = []
    for correlated in (None, hf.privacy.Banded(bands=1)):
        algorithm = hf.algorithms.feddyn(0.1, weighting="examples")
        private = hf.privacy.Gaussian(
            clip=0.5,
            delta=1e-3,
            noise_multiplier=0.1,
            max_examples=10,
            mean_examples=8,
            correlated=correlated,
        ).beside(dataclasses.replace(algorithm, wire=wire))
        model = hf.models.softmax_regression(classes=3)
        made.append(hf.simulate(private, model, clients(), local, rounds=3, seed=2))
    for a, b in zip(*(jax.tree.leaves(run.params) for run in made), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    np.testing.assert_allclose(made[0].history["epsilon"], made[1].history["epsilon"], rtol=1e-9)


def test_masks_and_the_servers_own_data_go_with_it():
    """FedPVR's upload is bounded and noised with delta; a server that learns counts by a number."""
    for algorithm in (
        hf.algorithms.fedpvr(lambda path: path.startswith("classifier")),
        hf.algorithms.fedavg_plus(gamma=0.5),
    ):
        private = hf.privacy.Gaussian(
            clip=0.5, delta=1e-3, noise_multiplier=0.1, correlated=FOUR
        ).beside(dataclasses.replace(algorithm, weighting="uniform"))
        needs = hf.Need.SERVER_DATA in algorithm.rule.traits.needs
        done = hf.simulate(
            private,
            hf.models.mlp([4], classes=3),
            clients(),
            LOCAL,
            rounds=4,
            cohort=IN_TURN,
            server=hf.Server(clients()[0], LOCAL) if needs else None,
        )
        assert all(np.isfinite(p).all() for p in jax.tree.leaves(done.params))
        (past,) = done.state.server.wire.past
        payload = done.simulation.setup.template.payload
        shapes = [a.shape for a in jax.tree.leaves(payload)]
        assert [a.shape for a in jax.tree.leaves(past)] == shapes


def test_bands_unless_told():
    assert hf.privacy.Banded().bands_for(5) == 5
    assert hf.privacy.Banded().bands_for(500) == 16
    assert FOUR.bands_for(500) == 2
    # Nobody comes back within the run, so any number of bands will do.
    alone = hf.cohorts.schedule([[k] for k in range(4)])
    done = run(private(correlated=hf.privacy.Banded(bands=8, separation=9)), cohort=alone)
    assert len(done.simulation.setup.algorithm.wire.correlated.coefficients) == 4


def test_conformance():
    """Where everybody always comes it is independent noise, by the same path."""
    report = check(private(correlated=hf.privacy.Banded(), rounds=100))
    assert len(report.passed) == len(CHECKS)


REFUSED = [
    ({"quantile": hf.privacy.Quantile()}, {}, "all must have one clip"),
    ({"clip": lambda t: 1.0}, {}, "all must have one clip"),
    ({"accountant": "rdp"}, {}, "one Gaussian mechanism"),
    ({"correlated": hf.privacy.Banded(bands=3)}, {}, "bands=3, and client . comes back after 2"),
    (
        {"correlated": hf.privacy.Banded(bands=1, separation=3)},
        {},
        "separation=3, and client . comes back after 2 rounds; give at most 2",
    ),
    (
        {"correlated": hf.privacy.Banded(bands=2)},
        {"cohort": hf.cohorts.everyone()},
        "after 1 round",
    ),
    (
        {"correlated": hf.privacy.Banded(coefficients=(0.8, 0.5, 0.3))},
        {},
        "bands=3, and client . comes back after 2",
    ),
    ({}, {"cohort": hf.cohorts.bernoulli(0.5)}, "which Bernoulli draws by lot"),
    ({}, {"cohort": hf.cohorts.schedule([[0, 1], [2]])}, "rounds of 1 to 2 clients"),
    ({"correlated": None}, {}, "a schedule takes correlated=hf.privacy.Banded"),
]


@pytest.mark.parametrize(("changed", "more", "said"), REFUSED)
def test_what_is_refused(changed, more, said):
    with pytest.raises(hf.HoldfastError, match=said):
        run(private(**changed), **more)


def test_numbers_that_are_none_are_refused():
    for value in (0, 1.5, True):
        with pytest.raises(hf.HoldfastError, match="give a whole number of rounds, from 1"):
            hf.privacy.Banded(bands=value)
    for value in ((), (0.0, 1.0), (1.0, float("nan")), [1.0], "ab"):
        with pytest.raises(
            hf.HoldfastError, match="give a tuple of finite numbers, the first above 0"
        ):
            hf.privacy.Banded(coefficients=value)
    with pytest.raises(hf.HoldfastError, match="3 of them"):
        hf.privacy.Banded(bands=3, coefficients=(0.8, 0.6))
    with pytest.raises(hf.HoldfastError, match="not for how many rounds"):
        next(hf.rounds(private(), STILL, clients(), LOCAL, cohort=IN_TURN))
