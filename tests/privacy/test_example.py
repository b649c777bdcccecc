"""Examples protected at clients: the gradient of a step, the account, what goes with it and what does not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import holdfast as hf
from holdfast import privacy
from holdfast.engine.batches import BatchPlanner
from holdfast.testing import CHECKS, check
from tests import problems
from tests.privacy.test_gaussian import MANY, SMALL, STILL

dp = pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
MODEL = hf.models.mlp([4], classes=3)


def example(**changed):
    given = {"clip": 0.5, "delta": 1e-3, "noise_multiplier": 2.0}
    return privacy.ExampleLevel(**given | changed)


def local(private=None, **changed):
    given = {"learning_rate": 0.1, "epochs": 2, "batch_size": 4}
    return hf.Local(**given | changed, private=private)


def clients(sizes=(8, 12, 4, 16)):
    return problems.tiny_clients(sizes=sizes)


QUIET = {"clip": 1e6, "noise_multiplier": 1e-30}


@pytest.mark.parametrize(
    ("algorithm", "changed"),
    [
        (hf.algorithms.fedavg(), {"momentum": 0.5, "weight_decay": 0.01, "clip": 0.3}),
        (hf.algorithms.fedprox(0.1), {"optimizer": optax.adam}),
        (hf.algorithms.scaffold(), {}),
        (hf.algorithms.feddyn(alpha=0.1), {"epochs": None, "steps": 5}),
        (hf.algorithms.feddc(alpha=0.1), {"last_batch": "drop"}),
    ],
)
def test_without_noise_and_with_a_wide_bound_it_is_the_plain_run(algorithm, changed):
    """Batches are whole ones, since a short one is divided by the size of a whole one."""
    found = [
        hf.simulate(algorithm, MODEL, clients(), local(private, **changed), rounds=3)
        for private in (example(**QUIET), None)
    ]
    assert problems.largest_difference(found[0].params, found[1].params) < 1e-5


def test_a_step_takes_bounded_gradients_over_a_whole_batch():
    """Against NumPy: two whole batches and a short one, in the order of the data."""
    rng = np.random.default_rng(0)
    curvature, centre = rng.uniform(0.5, 2, (10, 3)), rng.normal(0, 3, (10, 3))
    data = hf.data.partition.in_order(hf.Examples(curvature, centre), clients=1)
    own = local(example(clip=0.7, noise_multiplier=1e-30), epochs=1, shuffle=False)
    with jax.enable_x64(True):
        run = hf.simulate(hf.algorithms.fedavg(), problems.QUADRATIC, data, own, rounds=1)
    w, clipped = np.zeros(3), 0
    for begin in (0, 4, 8):
        g = curvature[begin : begin + 4] * (w - centre[begin : begin + 4])
        lengths = np.linalg.norm(g, axis=1, keepdims=True)
        clipped += (lengths > 0.7).sum()
        w = w - 0.1 * (g * np.minimum(1, 0.7 / lengths)).sum(axis=0) / 4
    assert clipped > 3
    np.testing.assert_allclose(run.params, w, rtol=1e-5)


@pytest.mark.parametrize("batch_size", [4, None])
def test_noise_of_a_step_is_what_the_account_assumes(batch_size):
    """A client of 6 examples takes one step: whole batches have 4 of them, or all 6."""
    own = hf.Local(1.0, steps=1, batch_size=batch_size, private=example())
    data = problems.tiny_clients(clients=1, sizes=(6,))
    run = hf.simulate(hf.algorithms.fedavg(), STILL, data, own, rounds=1, seed=3)
    noise, whole = np.asarray(run.params["w"], np.float64), batch_size or 6
    assert np.var(noise) == pytest.approx((2.0 * 0.5 / whole) ** 2, rel=0.01)
    assert abs(noise.mean()) < 5 * 2.0 * 0.5 / whole / np.sqrt(MANY)
    assert run.privacy.noise_in_step == pytest.approx(2.0 * 0.5 / whole)
    assert run.privacy.noise_in_mean is None
    assert run.privacy.noise_in_reply is None


def test_an_example_moves_a_step_by_the_bound_and_nothing_else():
    """Left blank it has no gradient; a huge one, and one that is not finite, move no more than the bound."""
    rng = np.random.default_rng(1)
    curvature, centre = np.ones((6, 3)), rng.normal(size=(6, 3))
    own = local(
        example(clip=0.7, noise_multiplier=1e-30), learning_rate=1.0, epochs=1, batch_size=6
    )
    found = []
    for scale in (1.0, 0.0, 1e12, np.inf):
        scaled = curvature.astype(np.float32)
        scaled[2] *= min(scale, 3e38)
        far = centre.astype(np.float32)
        far[2] += 1e9 if scale == np.inf else 0
        data = hf.data.partition.in_order(hf.Examples(scaled, far), clients=1)
        run = hf.simulate(hf.algorithms.fedavg(), problems.QUADRATIC, data, own, rounds=1)
        found.append(np.asarray(run.params))
        assert run.history["left_out"].tolist() == [0]
    plain, blank, huge, infinite = found
    assert 0.1 < np.linalg.norm(plain - blank) <= 0.7 / 6 * 1.0001
    assert np.linalg.norm(huge - blank) == pytest.approx(0.7 / 6, rel=1e-3)
    np.testing.assert_array_equal(infinite, blank)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"shuffle": False},
        {"last_batch": "drop"},
        {"epochs": None, "steps": 7},
        {"epochs": None, "steps": 7, "last_batch": "drop"},
        {"batch_size": None},
    ],
)
def test_no_example_comes_oftener_than_is_counted(changed):
    planner = BatchPlanner(clients((7, 12, 3, 9)), local(**changed), seed=5)
    reached = np.zeros(4, int)
    for t in range(6):
        batches = planner.slots(t, np.arange(4)).batches
        for client in range(4):
            rows, counts = np.unique(batches[client][batches[client] >= 0], return_counts=True)
            assert set(rows) <= set(planner.clients.rows(client))
            assert counts.max() <= planner.passes[client]
            reached[client] = max(reached[client], counts.max())
    np.testing.assert_array_equal(reached, planner.passes)


@pytest.mark.parametrize(
    ("z", "rounds", "epochs", "delta"), [(4.0, 3, 2, 1e-3), (9.0, 20, 5, 1e-5)]
)
@pytest.mark.parametrize("kind", ["rdp", "pld"])
def test_the_account_is_one_gaussian_mechanism_a_pass(z, rounds, epochs, delta, kind):
    maker = dp.rdp.RdpAccountant if kind == "rdp" else dp.pld.PLDAccountant
    accountant = maker().compose(dp.GaussianDpEvent(z), rounds * epochs)
    found = privacy.epsilon(privacy.Scheme("example", 9), z, rounds * epochs, delta, kind)
    assert found == pytest.approx(accountant.get_epsilon(delta), abs=1e-6)


def test_epsilon_is_that_of_the_client_that_went_over_its_data_most(tmp_path):
    """Of 5 steps a client of 4 examples makes 5 passes, one of 12 makes two (and one of 16 as well)."""
    own = local(example(epsilon=9.0, noise_multiplier=3.0), epochs=None, steps=5)
    settings = (hf.algorithms.scaffold(), MODEL, clients(), own)
    cohort = hf.cohorts.fixed(2)
    whole = hf.simulate(*settings, rounds=30, cohort=cohort, seed=2)
    took_part = whole.ledger.participation(4).sum(axis=0)
    most = int((took_part * np.array([3, 2, 5, 2])).max())
    assert most == 5 * took_part[2]
    account = whole.simulation.setup.account
    assert account.epsilon(most) <= 9.0 < account.epsilon(most + 5)
    assert whole.state.round < 30
    assert f"after {most} passes over a client's data" in whole.stopped
    assert whole.history["epsilon"][-1] == account.epsilon(most) == whole.privacy.epsilon
    assert f"in at most {most} passes" in whole.privacy.sentence
    assert "for each of its examples" in whole.privacy.sentence
    for rounds in (2, 30):
        resumed = hf.simulate(*settings, rounds=rounds, cohort=cohort, seed=2, checkpoint=tmp_path)
    assert resumed.history["epsilon"].tolist() == whole.history["epsilon"].tolist()
    assert problems.same_bits(resumed.params, whole.params)


def test_a_budget_finds_noise_for_the_passes_of_all_rounds():
    budget = example(noise_multiplier=None, epsilon=5.0)
    run = hf.simulate(hf.algorithms.fedavg(), SMALL, clients(), local(budget), rounds=4)
    assert 4.99 < run.history["epsilon"][-1] <= 5.0
    assert run.state.round == 4
    z = run.simulation.setup.account.noise_multiplier
    accountant = dp.pld.PLDAccountant().compose(dp.GaussianDpEvent(z), 8)
    assert 4.99 < accountant.get_epsilon(1e-3) <= 5.0
    own = dataclasses.replace(budget, rounds=2)
    early = hf.simulate(hf.algorithms.fedavg(), SMALL, clients(), local(own), rounds=4)
    assert early.state.round == 2
    with pytest.raises(hf.HoldfastError, match="not for how many rounds"):
        hf.rounds(hf.algorithms.fedavg(), SMALL, clients(), local(budget))


class Last(hf.Rule):
    """A client remembers its last way."""

    def init(self, params):
        return hf.State(client=jax.tree.map(jnp.zeros_like, params))

    def settle(self, delta, heard, at):
        return delta


def test_noise_is_of_its_round_client_and_step():
    """Three clients, two steps, two rounds: as many noises, none like another."""
    model = dataclasses.replace(STILL, init=lambda key, examples: {"w": jnp.zeros(20_000)})
    data = problems.tiny_clients(clients=3, sizes=(4, 4, 4))

    def ways(steps, rounds):
        own = hf.Local(1.0, steps=steps, batch_size=2, private=example())
        run = hf.simulate(hf.Algorithm(Last()), model, data, own, rounds=rounds)
        return [np.asarray(run.client_states[i].rule["w"]) for i in range(3)]

    first, both, next_round = ways(1, 1), ways(2, 1), ways(1, 2)
    second = [b - a for a, b in zip(first, both, strict=True)]
    apart = np.corrcoef([*first, *second, *next_round])
    assert np.abs(apart - np.eye(9)).max() < 0.05


def test_clients_side_by_side_have_the_same_noise():
    settings = (hf.algorithms.scaffold(), MODEL, clients((7, 12, 3, 9)), local(example()))
    one, other = (hf.simulate(*settings, rounds=2, engine=hf.Engine(width=w)) for w in (1, 3))
    assert problems.largest_difference(one.params, other.params) < 1e-5


def test_server_and_client_states_agree_and_wires_take_what_was_noised():
    data, _ = problems.random_quadratics(1, clients=6)
    own = hf.Local(0.1, steps=3, private=example(delta=0.1))
    wire = hf.wires.Compressed(hf.wires.Natural())
    with jax.enable_x64(True):
        for rule in (hf.rules.ControlVariate(damping=0.3), hf.rules.Dynamic(alpha=0.5)):
            algorithm = hf.Algorithm(rule, wire)
            run = hf.simulate(
                algorithm, problems.QUADRATIC, data, own, rounds=6, cohort=hf.cohorts.fixed(3)
            )
            rows = np.stack([run.client_states[i].rule for i in range(6)])
            assert np.abs(rows).max() > 0.3
            state = np.asarray(run.state.server.rule)
            np.testing.assert_allclose(state, rows.mean(axis=0), atol=1e-9)


def refused(match, algorithm=None, private=None, of=None, **settings):
    given = {"clients": clients(), "model": SMALL, "local": local(private or example(), **of or {})}
    with pytest.raises(hf.HoldfastError, match=match):
        hf.simulate(algorithm or hf.algorithms.fedavg(), rounds=1, **given | settings)


class Peeks(hf.Rule):
    """Sends a gradient over all data beside its delta."""

    def reply(self, delta, at):
        return delta, at.grad(at.x)

    def hear(self, delta, upload, at):
        return upload


def _pairs(params, batch):
    away = batch.x @ params["w"]
    return jax.nn.relu(1 + away - away.mean()) + 0.0 * batch.y.astype(away.dtype)


PAIRS = hf.Model(
    init=lambda key, examples: {"w": jnp.zeros(examples.x.shape[1])}, loss=_pairs, name="pairs"
)


def test_what_voids_the_guarantee_is_refused():
    central = privacy.Gaussian(clip=1.0, delta=1e-3, noise_multiplier=1.0)
    refused("over all of a client's examples", hf.algorithms.scaffold(option="I"))
    refused("over all of a client's examples", hf.Algorithm(Peeks()))
    refused("before their first round", hf.algorithms.flix(0.5))
    refused("adapt` takes further steps", hf.algorithms.fomaml(0.1))
    refused("adapt` takes further steps", dataclasses.replace(hf.algorithms.fedavg(), adapt=True))
    refused("table rows that a client's examples use", select=True)
    refused("account of its own", first_round=hf.algorithms.fedavg())
    refused("each with an account", central.beside(hf.algorithms.fedavg(weighting="uniform")))
    refused("depends on who else is in its batch", model=PAIRS)
    refused("it looks at clients' examples", evaluate=hf.diagnose.dissimilarity())
    refused("delta=0.1, and a client has 16 examples", private=example(delta=0.1))
    refused("one round, of 2 passes", private=example(epsilon=0.01))
    own = dataclasses.replace(hf.algorithms.fedavg(), adapt=local(example()))
    refused("no account counts steps that a client takes for itself", own, local=local())
    server = hf.Server(clients()[0], local(example()))
    refused("protects examples of clients", hf.algorithms.server_as_client(), server=server)
    joined = hf.join(
        [
            hf.Population(clients(), SMALL, local=local(own))
            for own in (example(), example(clip=1.0))
        ]
    )
    with pytest.raises(hf.HoldfastError, match="give all of them the same"):
        hf.simulate(hf.algorithms.fedavg(), **joined, rounds=1)
    with pytest.raises(hf.HoldfastError, match=r"give hf\.privacy"):
        hf.Local(0.1, private=0.5)
    with pytest.raises(hf.HoldfastError, match="neither epsilon nor noise_multiplier"):
        example(noise_multiplier=None)
    settings = (SMALL, clients())
    plain = hf.simulate(hf.algorithms.fedavg(), *settings, local(), rounds=1)
    refused("spent epsilon None", start=plain.state)
    less = hf.simulate(
        hf.algorithms.fedavg(), *settings, local(example(noise_multiplier=1.0)), rounds=1
    )
    refused("which is not what this noise spends", start=less.state)


class Peeping:
    """An evaluator that does not say that it looks at examples."""

    every, keeps_last_models = 1, False

    def check(self, model, params, clients):
        pass

    def __call__(self, view):
        return {"size": float(len(view.data_of(np.arange(2))[1].x))}


def test_an_evaluator_cannot_look_at_examples_unsaid():
    refused("clients' examples are protected", evaluate=Peeping())
    run = hf.simulate(
        hf.algorithms.fedavg(), MODEL, clients(), local(example()), rounds=1,
        evaluate=[hf.evaluate.on(clients()[0]), hf.diagnose.drift()],
    )  # fmt: skip
    assert run.history["drift_diversity"][0] > 0


def test_populations_share_an_account():
    parts = [
        hf.Population(clients(), MODEL, local=local(example(), epochs=epochs)) for epochs in (1, 3)
    ]
    run = hf.simulate(hf.algorithms.scaffold(), **hf.join(parts), rounds=2)
    assert run.privacy.rounds == 6
    assert run.privacy.epsilon == privacy.epsilon(privacy.Scheme("example", 8), 2.0, 6, 1e-3, "pld")


def test_conformance():
    """Also that it is the same uncompiled, through bytes, resumed, and with nothing compiled anew."""
    report = check(hf.algorithms.scaffold(), local=local(example()))
    assert len(report.passed) == len(CHECKS)
