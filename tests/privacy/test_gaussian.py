"""Client-level privacy in rounds that are run: noise, denominators, states, refusals, stops and resumes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast import privacy
from holdfast.privacy.asked import noisy
from holdfast.testing import CHECKS, check
from tests import problems

pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
MANY = 1_000_000
LOCAL = hf.Local(learning_rate=0.1, steps=2, batch_size=4)


def still_loss(params, batch):
    """Nobody learns anything, so a model that moves has moved by noise."""
    return 0.0 * jnp.sum(params["w"]) * jnp.ones(batch.x.shape[0], batch.x.dtype)


STILL = hf.Model(
    init=lambda key, examples: {"w": jnp.zeros(MANY, jnp.float32)}, loss=still_loss, name="still"
)


def gaussian(**changed):
    given = {"clip": 0.5, "delta": 1e-3, "noise_multiplier": 2.0, "accountant": "rdp"}
    return privacy.Gaussian(**given | changed)


def private(rule=None, weighting="uniform", **changed):
    return gaussian(**changed).beside(hf.Algorithm(rule or hf.Rule(), weighting=weighting))


def clients(sizes=(7, 12, 4, 9)):
    return problems.tiny_clients(sizes=sizes)


@pytest.mark.parametrize("weighted", [False, True])
def test_noise_in_the_mean_is_what_the_account_assumes(weighted):
    """Through `simulate`: a million numbers, of whose variance a percent is seven standard errors."""
    sizes = (7, 12, 4, 9)
    capped = {"weighting": "examples", "max_examples": 10, "mean_examples": 8}
    algorithm = private(**capped if weighted else {})
    cohort = hf.cohorts.fixed(2)
    run = hf.simulate(algorithm, STILL, clients(sizes), LOCAL, rounds=1, cohort=cohort, seed=3)
    # One client moves the sum by at most the clip times what it counts at most, over the clients expected.
    sensitivity = 0.5 * (10 / 8 if weighted else 1.0) / 2
    noise = np.asarray(run.params["w"], np.float64)
    assert np.var(noise) == pytest.approx((2.0 * sensitivity) ** 2, rel=0.01)
    assert abs(noise.mean()) < 5 * 2.0 * sensitivity / np.sqrt(MANY)
    assert run.simulation.setup.account.noise_multiplier == 2.0


def test_noise_in_other_rounds_and_seeds_is_other_noise():
    wire = gaussian()
    zeros = {"w": jnp.zeros(10_000)}
    drawn = [noisy(zeros, 1.0, wire.noise_key(seed, t))["w"] for seed in (0, 1) for t in (0, 1)]
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 0.05
    # What clients know, the key of the round, is no way to the noise.
    known = [hf.core.keys.round_key(0, t) for t in range(20)]
    own = jax.random.key_data(wire.noise_key(0, 0)).tolist()
    assert own not in [jax.random.key_data(key).tolist() for key in known]


def test_a_secret_changes_the_noise(tmp_path):
    path = tmp_path / "noise.secret"
    path.write_bytes(bytes(range(32)))
    with_secret = gaussian(secret=str(path))
    keys = [jax.random.key_data(w.noise_key(0, 0)).tolist() for w in (gaussian(), with_secret)]
    assert keys[0] != keys[1]
    assert str(path) not in repr(with_secret)
    path.write_bytes(b"short")
    with pytest.raises(hf.HoldfastError, match="has 5 bytes"):
        with_secret.noise_key(0, 0)


class Told(hf.Rule):
    """Remembers what the server told it."""

    def init(self, params):
        return hf.State(server=jnp.zeros(2, params["w"].dtype))

    def step(self, delta, heard, at):
        told = jnp.stack([jnp.asarray(n, at.state.dtype) for n in (at.share, at.heads)])
        return delta, told


SMALL = hf.Model(
    init=lambda key, examples: {"w": jnp.zeros(3, jnp.float32)}, loss=still_loss, name="small"
)


def test_rules_are_told_what_was_expected_and_empty_rounds_have_noise():
    cohort = hf.cohorts.bernoulli(0.3)
    run = hf.simulate(private(Told()), SMALL, clients(), LOCAL, rounds=8, cohort=cohort, seed=1)
    came = run.history["clients"].tolist()
    assert 0 in came
    assert max(came) > 1
    states = hf.rounds(private(Told()), SMALL, clients(), LOCAL, cohort=cohort, seed=1)
    before = np.zeros(3)
    for count in came:
        state = next(states)
        assert np.allclose(state.server.rule, (0.3, 1.2))
        moved = np.asarray(state.params["w"]) - before
        assert np.abs(moved).min() > 0, f"no noise in a round of {count}"
        before = np.asarray(state.params["w"])


def test_a_client_moves_the_sum_by_its_clipped_reply_and_nothing_else():
    """Two runs with and without one client: all that differs is its bounded reply over a fixed number."""
    data, _ = problems.random_quadratics(0, clients=5)
    local = hf.Local(learning_rate=0.1, steps=3)
    algorithm = private(clip=0.5)
    with jax.enable_x64(True):
        simulation = hf.engine.simulation.Simulation(
            hf.Experiment(algorithm, problems.QUADRATIC, data, local)
        )
        state = simulation.begin()
        inputs = simulation.inputs(state, simulation.planner(0))
        steps = inputs.slots.steps
        both = [
            hf.core.round.federated_round(
                dataclasses.replace(inputs, slots=inputs.slots._replace(steps=kept))
            ).x
            for kept in (steps, np.where(np.arange(len(steps)) == 2, 0, steps))
        ]
    apart = np.linalg.norm(np.asarray(both[0]) - np.asarray(both[1]))
    assert 0.999 * 0.5 / 5 < apart <= 0.5 / 5 * (1 + 1e-9)


def test_a_reply_that_is_not_finite_is_left_out_and_changes_no_denominator():
    data = clients()
    x = np.array(data.examples.x)
    x[data.rows(1)] = np.nan
    model = hf.models.softmax_regression(classes=3)
    # What is not finite is refused before a run, so it becomes so in a round.
    sick = dataclasses.replace(
        data, examples=data.examples._replace(x=np.where(np.isnan(x), 3e38, x))
    )
    run = hf.simulate(private(), model, sick, LOCAL, rounds=2)
    assert run.history["left_out"].tolist() == [1, 1]
    assert all(np.isfinite(p).all() for p in jax.tree.leaves(run.params))
    only = dataclasses.replace(data, examples=data.examples._replace(x=np.full_like(x, 3e38)))
    alone = hf.simulate(private(), model, only, LOCAL, rounds=2)
    assert alone.history["left_out"].tolist() == [4, 4]
    assert all(np.abs(p).min() > 0 for p in jax.tree.leaves(alone.params))


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_server_states_are_the_mean_of_client_states_and_all_noise(name, weighting):
    data, _ = problems.random_quadratics(1, clients=6)
    rule = hf.rules.ControlVariate() if name == "scaffold" else hf.rules.Dynamic(alpha=0.5)
    capped = {"max_examples": 1, "mean_examples": 2.0} if weighting == "examples" else {}
    algorithm = private(rule, weighting, clip=1.5, noise_multiplier=0.7, **capped)
    local = hf.Local(learning_rate=0.1, steps=3)
    cohort = hf.cohorts.bernoulli(0.5)
    with jax.enable_x64(True):
        run = hf.simulate(
            algorithm, problems.QUADRATIC, data, local, rounds=12, cohort=cohort, seed=4
        )
        wire = run.simulation.setup.algorithm.wire
        shapes = jax.tree.map(
            lambda a: jnp.zeros(a.shape, a.dtype), run.simulation.setup.template.payload
        )
        added = np.zeros(4)
        for t in range(12):
            delta, upload = noisy(shapes, wire.deviation, wire.noise_key(4, t))
            added += np.asarray(upload if name == "scaffold" else delta) / 6
        rows = np.stack([run.client_states[i].rule for i in range(6)])
        counts = 0.5 if weighting == "examples" else 1.0
        state = np.asarray(run.state.server.rule)
        assert np.abs(rows).max() > 0.1
        np.testing.assert_allclose(state, counts * rows.mean(axis=0) + added, atol=1e-9)
        # Without the noise they would not agree: it is there.
        assert np.abs(added).max() > 1e-2


def test_rows_follow_the_bounded_reply():
    data, _ = problems.random_quadratics(2, clients=3)
    local = hf.Local(learning_rate=0.1, steps=5)
    algorithm = private(hf.rules.Dynamic(alpha=0.1), clip=0.01)
    run = hf.simulate(algorithm, problems.QUADRATIC, data, local, rounds=1)
    lengths = [np.linalg.norm(run.client_states[i].rule) for i in range(3)]
    np.testing.assert_allclose(lengths, 0.01, rtol=1e-3)


def test_the_run_ends_when_the_budget_is_spent_and_goes_on_as_it_would_have(tmp_path):
    settings = (SMALL, clients(), LOCAL)
    cohort = hf.cohorts.bernoulli(0.5)
    # 3 rounds of this noise.
    last = privacy.Account(privacy.Scheme("poisson", 4, 0.5), 2.0, 1e-3, "rdp").epsilon(3)
    algorithm = private(epsilon=1.001 * last)
    whole = hf.simulate(algorithm, *settings, rounds=9, cohort=cohort)
    assert whole.state.round == 3
    assert "budget is spent" in whole.stopped
    epsilons = whole.history["epsilon"]
    assert epsilons[-1] == pytest.approx(last)
    assert (np.diff(epsilons) > 0).all()
    hf.simulate(algorithm, *settings, rounds=1, cohort=cohort, checkpoint=tmp_path)
    resumed = hf.simulate(algorithm, *settings, rounds=9, cohort=cohort, checkpoint=tmp_path)
    assert resumed.state.round == 3
    assert resumed.history["epsilon"].tolist() == epsilons.tolist()
    assert np.array_equal(resumed.params["w"], whole.params["w"])
    again = hf.simulate(algorithm, *settings, rounds=9, cohort=cohort, checkpoint=tmp_path)
    assert again.state.round == 3
    with pytest.raises(hf.HoldfastError, match="round 4: the privacy budget is spent"):
        next(hf.rounds(algorithm, *settings, cohort=cohort, start=whole.state))
    enough = hf.simulate(algorithm, *settings, rounds=2, cohort=cohort)
    assert enough.stopped is None


def test_a_budget_finds_noise_for_the_rounds_of_the_run():
    algorithm = private(noise_multiplier=None, epsilon=5.0)
    run = hf.simulate(algorithm, SMALL, clients(), LOCAL, rounds=4)
    assert 4.9 < run.history["epsilon"][-1] <= 5.0
    assert run.stopped is None
    own = private(noise_multiplier=None, epsilon=5.0, rounds=2)
    early = hf.simulate(own, SMALL, clients(), LOCAL, rounds=4)
    assert early.state.round == 2
    assert "budget is spent" in early.stopped
    with pytest.raises(hf.HoldfastError, match="not for how many rounds"):
        hf.rounds(algorithm, SMALL, clients(), LOCAL)


def test_only_rounds_of_the_same_noise_are_gone_on_from():
    settings = (SMALL, clients(), LOCAL)
    plain = hf.simulate(hf.Algorithm(hf.Rule()), *settings, rounds=1)
    with pytest.raises(hf.HoldfastError, match="were run with no noise"):
        hf.simulate(private(), *settings, rounds=2, start=plain.state)
    less = hf.simulate(private(noise_multiplier=1.0), *settings, rounds=1)
    with pytest.raises(hf.HoldfastError, match="were run with other noise"):
        hf.simulate(private(), *settings, rounds=2, start=less.state)


def refused(match, algorithm=None, rounds=1, **settings):
    given = {"clients": clients(), "model": SMALL, "local": LOCAL} | settings
    with pytest.raises(hf.HoldfastError, match=match):
        hf.simulate(algorithm or private(), rounds=rounds, **given)


def test_what_voids_the_guarantee_is_refused():
    refused("no account of that is known", cohort=hf.cohorts.schedule([[0, 1]]))
    refused("no account of that is known", cohort=hf.cohorts.weighted(2, [1, 1, 1, 2]))
    refused("without a cap one client may count", private(weighting="examples"))
    refused("has no bound", private(weighting="processed"))
    refused("are for weighting='examples'", private(max_examples=3, mean_examples=3))
    refused("delta=0.3 for 4 clients", private(delta=0.3))
    refused(
        "before they were bounded",
        gaussian().beside(hf.Algorithm(hf.Rule(), hf.wires.ErrorFeedback(hf.wires.TopK(k=1)))),
    )
    refused(
        "before they were bounded",
        gaussian().beside(hf.Algorithm(hf.Rule(), hf.wires.Diana(hf.wires.TopK(k=1)))),
    )
    refused("replies without noise", first_round=hf.Algorithm(hf.Rule()))
    refused("asks for the table rows that a client uses", select=True)
    refused("spends epsilon", private(epsilon=0.01))
    joined = hf.join([hf.Population(clients(), SMALL), hf.Population(clients(), SMALL)])
    with pytest.raises(hf.HoldfastError, match="several populations are weighed by who"):
        hf.simulate(private(), **joined, local=LOCAL, rounds=1)
    with pytest.raises(hf.HoldfastError, match="sends what it hears"):
        hf.Algorithm(hf.rules.ControlVariate(), gaussian())
    with pytest.raises(hf.HoldfastError, match="counts clients alike"):
        private(hf.rules.AdaptiveClip(1.0), "examples", max_examples=3, mean_examples=3)
    with pytest.raises(hf.HoldfastError, match="sends nothing that could be made private"):
        gaussian().beside(hf.algorithms.local_only())
    for given in (
        {"delta": 0},
        {"delta": 2},
        {"epsilon": -1},
        {"clip": 0},
        {"noise_multiplier": 0},
    ):
        with pytest.raises(hf.HoldfastError, match="Gaussian"):
            gaussian(**given)
    with pytest.raises(hf.HoldfastError, match="neither epsilon nor noise_multiplier"):
        gaussian(noise_multiplier=None)


CONFORMING = {
    "fedavg": lambda: private(),
    "weighted": lambda: private(weighting="examples", max_examples=8, mean_examples=6),
    "feddyn": lambda: private(hf.rules.Dynamic(alpha=0.1)),
    "scaffold": lambda: private(hf.rules.ControlVariate()),
    "compressed": lambda: gaussian().beside(
        hf.Algorithm(hf.Rule(), hf.wires.Compressed(hf.wires.Natural()))
    ),
    "quantile": lambda: private(
        quantile=privacy.Quantile(noise=3.0), noise_multiplier=1.0, clip=0.1
    ),
}


@pytest.mark.parametrize("name", CONFORMING)
def test_conformance(name):
    report = check(CONFORMING[name]())
    assert len(report.passed) == len(CHECKS)


def test_drift_of_single_replies_is_not_worked_out_of_a_noised_mean():
    algorithm = hf.privacy.Gaussian(clip=1.0, noise_multiplier=1.0, delta=1e-3)
    algorithm = algorithm.beside(hf.algorithms.feddyn(alpha=0.1, weighting="uniform"))
    data = hf.Examples(np.ones((8, 1)), np.arange(8.0))
    clients = hf.data.partition.in_order(data, clients=4)
    model, local = hf.models.least_squares(intercept=False), hf.Local(0.1, steps=1)
    with pytest.raises(hf.HoldfastError, match="only their mean"):
        hf.simulate(algorithm, model, clients, local, 1, evaluate=hf.diagnose.drift())
