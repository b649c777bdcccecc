"""Noise that clients add themselves: what leaves them, what it costs, and what it goes with."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast import privacy
from holdfast.testing import CHECKS, check
from tests import problems
from tests.privacy.test_bound import TREES, norms, random_trees
from tests.privacy.test_gaussian import LOCAL, MANY, SMALL, STILL, clients

dp = pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")


def gaussian(**changed):
    given = {"clip": 0.5, "delta": 1e-3, "noise_multiplier": 2.0, "accountant": "rdp"}
    return privacy.LocalGaussian(**given | changed)


def private(rule=None, wire=None, weighting="uniform", **changed):
    algorithm = hf.Algorithm(rule or hf.Rule(), wire or hf.Wire(), weighting=weighting)
    return gaussian(**changed).beside(algorithm)


def test_ten_thousand_replies_are_bounded_and_never_tell_that_they_were_not_finite():
    wire = gaussian(clip=0.37, noise_multiplier=1e-30)
    keys = jax.random.split(jax.random.key(1), TREES)
    sent = jax.jit(jax.vmap(lambda u, key: wire.encode(u, (), key)[0]))(random_trees(), keys)
    lengths = norms(sent)
    assert np.isfinite(lengths).all()
    assert lengths.max() <= 0.37
    assert np.quantile(lengths, 0.9) > 0.999 * 0.37


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_noise_in_the_mean_is_that_of_every_reply(weighting):
    sizes = np.array((7, 12, 4, 9))
    run = hf.simulate(private(weighting=weighting), STILL, clients(sizes), LOCAL, rounds=1, seed=3)
    shares = np.full(4, 0.25) if weighting == "uniform" else sizes / sizes.sum()
    noise = np.asarray(run.params["w"], np.float64)
    assert np.var(noise) == pytest.approx((2.0 * 0.5) ** 2 * (shares**2).sum(), rel=0.01)
    assert abs(noise.mean()) < 5 / np.sqrt(MANY)
    assert run.privacy.noise_in_reply == 1.0
    assert run.privacy.noise_in_mean is None


@pytest.mark.parametrize(("z", "replies", "delta"), [(4.0, 1, 1e-3), (9.0, 20, 1e-5)])
@pytest.mark.parametrize("kind", ["rdp", "pld"])
def test_a_client_moves_its_reply_by_two_clips(z, replies, delta, kind):
    maker = dp.rdp.RdpAccountant if kind == "rdp" else dp.pld.PLDAccountant
    accountant = maker().compose(dp.GaussianDpEvent(z / 2), replies)
    found = privacy.epsilon(privacy.Scheme("local", 50), z, replies, delta, kind)
    assert found == pytest.approx(accountant.get_epsilon(delta), abs=1e-6)


def test_two_opposite_clients_are_two_clips_apart():
    wire = gaussian(clip=2.0, noise_multiplier=3.0)
    keys = jax.random.split(jax.random.key(5), 20_000)
    send = jax.jit(jax.vmap(lambda u, key: wire.encode(u, (), key)[1], in_axes=(None, 0)))
    far = [np.asarray(send(jnp.array([side * 1e9, 0.0]), keys))[:, 0] for side in (1, -1)]
    assert far[0].mean() - far[1].mean() == pytest.approx(4.0, abs=0.01)
    assert far[0].std() == pytest.approx(6.0, rel=0.02)


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_server_states_are_the_mean_of_client_states(name):
    """The noise is in both, so they agree to the last bits of float64."""
    data, _ = problems.random_quadratics(1, clients=6)
    rule = hf.rules.ControlVariate() if name == "scaffold" else hf.rules.Dynamic(alpha=0.5)
    with jax.enable_x64(True):
        run = hf.simulate(
            private(rule, clip=1.5), problems.QUADRATIC, data, hf.Local(0.1, steps=3), rounds=8,
            cohort=hf.cohorts.fixed(3), seed=4,
        )  # fmt: skip
        rows = np.stack([run.client_states[i].rule for i in range(6)])
        assert np.abs(rows).max() > 0.5
        np.testing.assert_allclose(np.asarray(run.state.server.rule), rows.mean(axis=0), atol=1e-9)


def test_a_client_whose_numbers_are_not_finite_is_not_left_out():
    data = clients()
    x = np.array(data.examples.x)
    x[data.rows(1)] = 3e38
    sick = dataclasses.replace(data, examples=data.examples._replace(x=x))
    model = hf.models.softmax_regression(classes=3)
    rule = hf.rules.ControlVariate()
    run = hf.simulate(private(rule), model, sick, LOCAL, rounds=2)
    assert run.history["left_out"].tolist() == [0, 0]
    assert all(np.isfinite(p).all() for p in jax.tree.leaves(run.params))
    plain = hf.simulate(hf.Algorithm(rule, weighting="uniform"), model, sick, LOCAL, rounds=2)
    assert plain.history["left_out"].tolist() == [1, 1]


def test_the_account_counts_the_replies_of_the_client_that_sent_most(tmp_path):
    cohort = hf.cohorts.fixed(2)
    settings = (private(epsilon=5.0, noise_multiplier=6.0), SMALL, clients(), LOCAL)
    whole = hf.simulate(*settings, rounds=30, cohort=cohort, seed=2)
    taking_part = whole.state.ledger.participation(4).sum(axis=0)
    most = int(taking_part.max())
    account = whole.simulation.setup.account
    assert account.epsilon(most) <= 5.0 < account.epsilon(most + 1)
    assert whole.state.round > most
    assert f"after {most} replies of a client" in whole.stopped
    assert whole.history["epsilon"][-1] == account.epsilon(most)
    assert whole.privacy.rounds == most
    assert f"in at most {most} replies" in whole.privacy.sentence
    for rounds in (2, 30):
        resumed = hf.simulate(*settings, rounds=rounds, cohort=cohort, seed=2, checkpoint=tmp_path)
    assert resumed.state.round == whole.state.round
    assert resumed.history["epsilon"].tolist() == whole.history["epsilon"].tolist()
    assert np.array_equal(resumed.params["w"], whole.params["w"])


def test_a_budget_finds_noise_for_a_client_that_is_always_there():
    algorithm = private(noise_multiplier=None, epsilon=5.0)
    run = hf.simulate(algorithm, SMALL, clients(), LOCAL, rounds=4)
    assert 4.9 < run.history["epsilon"][-1] <= 5.0
    few = private(noise_multiplier=None, epsilon=5.0, replies=1)
    once = hf.simulate(few, SMALL, clients(), LOCAL, rounds=4)
    assert once.state.round == 1
    with pytest.raises(hf.HoldfastError, match="not for how many replies"):
        hf.rounds(algorithm, SMALL, clients(), LOCAL)


def refused(match, algorithm=None, **settings):
    given = {"clients": clients(), "model": SMALL, "local": LOCAL} | settings
    with pytest.raises(hf.HoldfastError, match=match):
        hf.simulate(algorithm or private(), rounds=1, **given)


def test_what_voids_the_guarantee_is_refused():
    central = privacy.Gaussian(clip=1.0, delta=1e-3, noise_multiplier=1.0)
    refused("Gaussian is inside it", gaussian().beside(central.beside(hf.Algorithm(hf.Rule()))))
    refused("before they were bounded", central.beside(private()))
    refused("replies without noise", first_round=hf.Algorithm(hf.Rule()))
    refused("delta=0.3 for 4 clients", private(delta=0.3))
    refused("one reply with noise_multiplier=2 spends", private(epsilon=0.01))
    refused("asks for the table rows that a client uses", select=True)
    with pytest.raises(hf.HoldfastError, match="sends nothing that could be made private"):
        gaussian().beside(hf.algorithms.local_only())
    with pytest.raises(hf.HoldfastError, match="LocalGaussian: clip is the same for all"):
        gaussian(clip=hf.PerClient([1.0, 2.0]))
    with pytest.raises(hf.HoldfastError, match="LocalGaussian: replies=0"):
        gaussian(replies=0)
    settings = (SMALL, clients(), LOCAL)
    plain = hf.simulate(hf.Algorithm(hf.Rule()), *settings, rounds=1)
    refused("were run with no noise", start=plain.state)


def test_conformance():
    rule, wire = (
        hf.Uploaded(hf.rules.ControlVariate(damping=0.1)),
        hf.wires.Diana(hf.wires.Natural()),
    )
    report = check(private(rule, wire))
    assert len(report.passed) == len(CHECKS)
