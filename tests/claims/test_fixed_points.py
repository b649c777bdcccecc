"""Closed-form optima of heterogeneous quadratics: where the methods must, and must not, end."""

import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, random_quadratics, two_quadratics

LOCAL = hf.Local(learning_rate=0.05, steps=10)
FULL = {
    "scaffold": hf.algorithms.scaffold(),
    "scaffold option I": hf.algorithms.scaffold(option="I"),
    "feddyn": hf.algorithms.feddyn(alpha=2.0),
    "feddc": hf.algorithms.feddc(alpha=2.0),
    "fedpvr with a full mask": hf.algorithms.fedpvr(mask=[True]),
}


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_two_clients_meet_at_the_optimum(name, x64):
    run = hf.simulate(FULL[name], QUADRATIC, two_quadratics(), LOCAL, rounds=300)
    assert abs(float(run.params[0]) - 5 / 6) < 1e-6


def test_fedavg_keeps_its_known_bias(x64):
    run = hf.simulate(hf.algorithms.fedavg(), QUADRATIC, two_quadratics(), LOCAL, rounds=300)
    # y_i = b_i + (1 - 0.05 a_i)^10 (x - b_i): the mean of both maps has the fixed point
    shrink = 1 - (1 - 0.05 * np.array([1.0, 5.0])) ** 10
    biased = shrink[1] / shrink.sum()
    assert abs(float(run.params[0]) - biased) < 1e-9
    assert abs(float(run.params[0]) - 0.70165) < 1e-5


@pytest.mark.parametrize("cohort", [hf.cohorts.everyone(), hf.cohorts.fixed(3)], ids=["all", "30%"])
@pytest.mark.parametrize("name", FULL)
def test_ten_random_quadratics(name, cohort, x64):
    # They are separable, so ten problems of 4 dimensions are one of 40.
    problems = [random_quadratics(seed) for seed in range(10)]
    curvature, centre = (
        np.concatenate([clients.examples[k] for clients, _ in problems], axis=1) for k in (0, 1)
    )
    clients = hf.Clients.from_rows(hf.Examples(curvature, centre), [[i] for i in range(10)])
    optimum = np.concatenate([found for _, found in problems])
    local = hf.Local(learning_rate=0.05, steps=5)
    run = hf.simulate(FULL[name], QUADRATIC, clients, local, 400, cohort=cohort)
    np.testing.assert_allclose(run.params, optimum, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("average", ["all", "active"])
def test_fedsplit_reaches_the_optimum_under_full_participation(average, x64):
    """With enough local steps its proximal operator is exact, and so is its fixed point."""
    clients, optimum = random_quadratics(3)
    algorithm = hf.algorithms.fedsplit(step_size=0.5, average=average)
    run = hf.simulate(algorithm, QUADRATIC, clients, hf.Local(0.15, steps=60), rounds=80)
    np.testing.assert_allclose(run.params, optimum, atol=1e-8)


def test_fedsplit_all_tracks_the_mean_of_every_row(x64):
    clients, _ = random_quadratics(4)
    algorithm = hf.algorithms.fedsplit(step_size=0.5, average="all")
    settings = {"cohort": hf.cohorts.fixed(3), "seed": 1}
    run = hf.simulate(algorithm, QUADRATIC, clients, hf.Local(0.1, steps=5), rounds=20, **settings)
    rows = np.stack([run.client_states[i].rule for i in range(len(run.client_states))])
    np.testing.assert_allclose(run.params, rows.mean(0), atol=1e-12)


def test_fedsplit_active_is_the_mean_of_the_rounds_rows(x64):
    clients, _ = random_quadratics(4)
    algorithm = hf.algorithms.fedsplit(step_size=0.5, average="active")
    settings = {"cohort": hf.cohorts.fixed(3), "seed": 1}
    run = hf.simulate(algorithm, QUADRATIC, clients, hf.Local(0.1, steps=5), rounds=20, **settings)
    active = run.ledger.entries[-1].clients
    rows = np.stack([run.client_states[i].rule for i in active])
    np.testing.assert_allclose(run.params, rows.mean(0), atol=1e-12)


def test_control_variates_sum_to_the_server_one(x64):
    """c is the mean of the c_i at all times, also when few take part."""
    clients, _ = random_quadratics(5)
    run = hf.simulate(
        FULL["scaffold"], QUADRATIC, clients, LOCAL, rounds=7, cohort=hf.cohorts.fixed(3)
    )
    rows = np.stack([run.client_states[i].rule for i in range(len(run.client_states))])
    np.testing.assert_allclose(run.state.server.rule, rows.mean(0), atol=1e-12)
