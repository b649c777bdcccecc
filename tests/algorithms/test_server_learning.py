"""Methods in which the server learns too: identities, fixed points, refusals."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import holdfast as hf
from holdfast.rules import (
    AdaptiveClip,
    ControlVariate,
    Dynamic,
    OneWayTransfer,
    ParallelTraining,
    TwoWayTransfer,
)
from tests.problems import (
    QUADRATIC,
    largest_difference,
    random_quadratics,
    same_bits,
    tiny_clients,
)

MODEL = hf.models.mlp([4], classes=3)
OWN = tiny_clients(seed=5, sizes=(11,), clients=1)[0]
LOCAL = hf.Local(0.1, epochs=2, batch_size=4)
SERVER = hf.Server(OWN, hf.Local(0.1, steps=3, batch_size=4))


def run(algorithm, local=LOCAL, server=SERVER, **settings):
    settings = {"rounds": 4, "cohort": hf.cohorts.fixed(3), "seed": 3} | settings
    return hf.simulate(algorithm, MODEL, tiny_clients(), local, server=server, **settings)


@pytest.mark.parametrize(
    ("plus", "plain"),
    [
        (hf.algorithms.fedavg_plus(0.0), hf.algorithms.fedavg()),
        (hf.algorithms.fedavg_plus(0.0, 0.7), hf.algorithms.fedavg(server_learning_rate=0.7)),
        (hf.algorithms.scaffold_plus(0.0), hf.algorithms.scaffold()),
        (hf.algorithms.scaffold_plus(0.0, 0.7), hf.algorithms.scaffold(server_learning_rate=0.7)),
        (hf.algorithms.feddyn_plus(0.1, 0.0), hf.algorithms.feddyn(0.1)),
        (hf.algorithms.feddc_plus(0.1, 0.0), hf.algorithms.feddc(0.1)),
    ],
    ids=lambda a: a.name,
)
def test_gamma_zero_is_the_method_without_the_plus(plus, plain):
    ours, theirs = run(plus), run(plain, server=None)
    assert largest_difference(ours.params, theirs.params) < 1e-7
    assert ours.ledger == theirs.ledger  # what the server does at home costs no byte


def test_gamma_zero_is_exact_for_fedavg_and_feddyn():
    for plus, plain in (
        (hf.algorithms.fedavg_plus(0.0), hf.algorithms.fedavg()),
        (hf.algorithms.feddyn_plus(0.1, 0.0), hf.algorithms.feddyn(0.1)),
    ):
        assert same_bits(run(plus).params, run(plain, server=None).params)


def test_gamma_follows_its_schedule():
    off_after_two = hf.algorithms.fedavg_plus(lambda t: 0.5 if t < 2 else 0.0)
    early = run(off_after_two, rounds=2)
    assert same_bits(early.params, run(hf.algorithms.fedavg_plus(0.5), rounds=2).params)
    assert not same_bits(run(off_after_two).params, run(hf.algorithms.fedavg_plus(0.5)).params)


@pytest.mark.parametrize("mixed", [hf.algorithms.parallel_training, hf.algorithms.one_way_transfer])
def test_without_the_central_loss_it_is_fedavg(mixed):
    ours = run(mixed(central=0.0))
    processed = hf.Algorithm(weighting="processed")
    assert largest_difference(ours.params, run(processed, server=None).params) < 1e-7


def test_with_one_step_parallel_training_equals_one_way_transfer():
    server = hf.Server(OWN, hf.Local(0.2, steps=1))
    local = hf.Local(0.2, steps=1)
    for weights in ((1.0, 1.0), (0.7, 0.3)):
        parallel = run(hf.algorithms.parallel_training(*weights), local, server)
        one_way = run(hf.algorithms.one_way_transfer(*weights), local, server)
        assert largest_difference(parallel.params, one_way.params) < 1e-6


@pytest.mark.parametrize(
    "bounds",
    [
        {"clip": 0.05},
        {"weight_decay": 0.3},
        {"clip": lambda t: 0.03 * (t + 1), "weight_decay": lambda t: 0.5 / (t + 1)},
    ],
    ids=["clip", "decay", "schedules of both"],
)
def test_the_servers_clip_and_decay_bind_the_gradient_it_sends(bounds):
    local = hf.Local(0.2, steps=1)
    server = hf.Server(OWN, hf.Local(0.2, steps=1, **bounds))
    one_way = run(hf.algorithms.one_way_transfer(0.7, 0.3), local, server)
    parallel = run(hf.algorithms.parallel_training(0.7, 0.3), local, server)
    assert largest_difference(one_way.params, parallel.params) < 1e-6
    without = run(
        hf.algorithms.one_way_transfer(0.7, 0.3), local, hf.Server(OWN, hf.Local(0.2, steps=1))
    )
    assert largest_difference(one_way.params, without.params) > 1e-3


def test_weighting_by_examples_processed():
    """With a fixed number of steps, a client smaller than a batch still processes what it has."""
    clients = tiny_clients()
    local = hf.Local(0.1, steps=2, batch_size=6, shuffle=False)
    processed = {0: 7, 1: 12, 2: 10, 3: 9}  # sizes 7, 12, 5, 9 in two batches of at most 6
    start = hf.simulate(hf.Algorithm(), MODEL, clients, local, 0).params
    watched = hf.Algorithm(hf.rules.LastModel(), weighting="processed")
    after = hf.simulate(watched, MODEL, clients, local, 1)
    weights = np.array([processed[i] for i in range(4)]) / sum(processed.values())
    expected = jax.tree.map(
        lambda *p: sum(w * q for w, q in zip(weights, p, strict=True)),
        *(after.client_states[i].rule for i in range(4)),
    )
    assert largest_difference(after.params, expected) < 1e-6
    assert largest_difference(after.params, start) > 1e-3


CURVATURE, CENTRE = np.array([2.0, 0.7, 1.5, 3.0]), np.array([4.0, -3.0, 1.0, 0.5])


def central_loss(w):
    return 0.5 * jnp.sum(jnp.asarray(CURVATURE, w.dtype) * (w - jnp.asarray(CENTRE, w.dtype)) ** 2)


def joint_problem(seed):
    clients, _ = random_quadratics(seed)
    a, b = clients.examples
    optimum = ((a * b).mean(0) + CURVATURE * CENTRE) / (a.mean(0) + CURVATURE)
    return clients, optimum


def distance(rule, seed=0, cohort=None, rounds=250, step=0.05):
    clients, optimum = joint_problem(seed)
    local = hf.Local(step, steps=5)
    result = hf.simulate(
        hf.Algorithm(rule),
        QUADRATIC,
        clients,
        local,
        rounds,
        cohort=cohort,
        server=hf.Server(central_loss, local),
    )
    return float(np.abs(np.asarray(result.params) - optimum).max())


@pytest.mark.parametrize("cohort", [None, hf.cohorts.fixed(3)], ids=["all", "30%"])
@pytest.mark.parametrize(
    "rules",
    [
        (ControlVariate(), OneWayTransfer()),
        (ControlVariate(), TwoWayTransfer()),
        (Dynamic(2.0), OneWayTransfer()),
    ],
    ids=["scaffold 1-way", "scaffold 2-way", "feddyn 1-way"],
)
def test_with_a_correction_transfer_reaches_the_joint_optimum(rules, cohort, x64):
    for seed in range(3):
        assert distance(hf.Chain(rules), seed, cohort) < 1e-8


def test_alone_parallel_training_and_transfer_keep_a_bias(x64):
    """Proportional to the local work: each ends closer with smaller steps, none at the optimum."""
    ends = {}
    for rule in (ParallelTraining(), OneWayTransfer(), TwoWayTransfer()):
        # A round takes off a seventh of the way that is left at the least: what stays is the bias.
        far, near = distance(rule, rounds=60), distance(rule, rounds=200, step=0.01)
        assert far > 0.05
        assert 1e-3 < near < far / 3
        ends[type(rule)] = far
    assert ends[ParallelTraining] > 2 * ends[OneWayTransfer]


def test_the_servers_row_of_scaffold_plus_is_a_control_variate():
    """c stays the mean of the clients' rows plus what the server's turn added."""
    result = run(hf.algorithms.scaffold_plus(0.5), cohort=hf.cohorts.everyone(), rounds=1)
    c, c_0 = result.state.server.rule
    rows = [result.client_states[i].rule for i in range(4)]
    mean = jax.tree.map(lambda *r: sum(r) / 4, *rows)
    expected = jax.tree.map(lambda m, r: m + 0.5 * r, mean, c_0)  # c_0 began at zero
    assert largest_difference(c, expected) < 1e-6


def test_the_server_as_one_more_client():
    """Equals FedAvg over a population that has the server's data as a fifth client."""
    clients = tiny_clients()
    everybody = hf.Clients.from_datasets([*clients, OWN])
    local = hf.Local(0.1, epochs=2, batch_size=4, shuffle=False)
    together = hf.simulate(hf.algorithms.fedavg(), MODEL, everybody, local, 3, seed=3)
    ours = run(
        hf.algorithms.server_as_client(),
        local,
        hf.Server(OWN, local),
        cohort=hf.cohorts.everyone(),
        rounds=3,
    )
    assert largest_difference(ours.params, together.params) < 1e-5


def test_server_steps_are_those_of_a_plain_loop():
    """FedAvg+ with clients that hardly move is SGD on the server's data."""
    local = hf.Local(1e-12, steps=1)
    own = hf.Local(0.2, steps=4, batch_size=4, shuffle=False, clip=0.5)
    ours = run(hf.algorithms.fedavg_plus(1.0), local, hf.Server(OWN, own), rounds=1)
    params = run(hf.algorithms.fedavg(), server=None, rounds=0).params
    for rows in (np.arange(0, 4), np.arange(4, 8), np.arange(8, 11), np.arange(0, 4)):
        batch = jax.tree.map(lambda a, rows=rows: jnp.asarray(a[rows]), OWN)

        def mean(p, batch=batch):
            return jnp.mean(MODEL.losses(p, batch, jax.random.key(0)))

        gradient = jax.grad(mean)(params)
        factor = jnp.minimum(1.0, 0.5 / (hf.trees.norm(gradient) + 1e-6))
        params = jax.tree.map(lambda p, g, f=factor: p - 0.2 * f * g, params, gradient)
    assert largest_difference(ours.params, params) < 1e-6


def test_any_optimiser_on_either_side():
    adam = functools.partial(optax.adam, b1=0.8)
    local = hf.Local(0.01, steps=3, optimizer=adam, shuffle=False)
    server = hf.Server(OWN, hf.Local(0.01, steps=2, optimizer=optax.rmsprop))
    result = run(hf.algorithms.parallel_training(), local, server)
    assert all(np.isfinite(p).all() for p in jax.tree.leaves(result.params))
    single = hf.Clients.from_datasets([OWN])
    ours = hf.simulate(hf.algorithms.fedavg(), MODEL, single, local, 1)
    params = hf.simulate(hf.algorithms.fedavg(), MODEL, single, local, 0).params
    batch = jax.tree.map(jnp.asarray, OWN)
    with jax.numpy_dtype_promotion("standard"):
        optimizer = adam(0.01)
        state = optimizer.init(params)
        for _ in range(3):
            gradient = jax.grad(lambda p: jnp.mean(MODEL.losses(p, batch, jax.random.key(0))))(
                params
            )
            updates, state = optimizer.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
    assert largest_difference(ours.params, params) < 1e-6


def test_a_loss_of_the_parameters_alone_and_one_with_a_key():
    def shrink(params, key):
        noise = jax.random.uniform(key, (), minval=0.9, maxval=1.1)
        return 0.5 * noise * sum(jnp.sum(p**2) for p in jax.tree.leaves(params))

    server = hf.Server(shrink, hf.Local(0.5, steps=5))
    small = run(hf.algorithms.parallel_training(), server=server)
    large = run(hf.algorithms.parallel_training(central=0.0), server=server)
    assert hf.trees.norm(small.params) < 0.5 * hf.trees.norm(large.params)
    assert same_bits(small.params, run(hf.algorithms.parallel_training(), server=server).params)


def test_pretraining_is_training_on_the_servers_data_alone():
    start = hf.pretrain(MODEL, hf.Server(OWN, hf.Local(0.3, epochs=3, batch_size=4)), rounds=20)
    result = run(hf.algorithms.fedavg(), server=None, rounds=0, params=start)
    assert same_bits(result.params, start)
    before = run(hf.algorithms.fedavg(), server=None, rounds=0).params

    def loss(params):
        batch = jax.tree.map(jnp.asarray, OWN)
        return float(jnp.mean(MODEL.losses(params, batch, jax.random.key(0))))

    assert loss(start) < 0.5 * loss(before)


def test_shared_data_is_everybodys():
    shared = hf.data.share(tiny_clients(), OWN)
    assert shared.sizes.tolist() == [n + 11 for n in tiny_clients().sizes]
    for i in range(4):
        assert np.array_equal(shared[i].x[-11:], OWN.x)
        assert np.array_equal(shared[i].x[:-11], tiny_clients()[i].x)


def test_by_classes_deals_classes_evenly():
    train, _ = hf.data.digits()
    for classes, clients in itertools.product((1, 2, 5, 10), (10, 25)):
        split = hf.data.partition.by_classes(train, clients, classes, seed=1)
        held = [set(split[i].y.tolist()) for i in range(clients)]
        assert all(len(h) == classes for h in held)
        assert sorted(split.order.tolist()) == list(range(len(train.y)))
    with pytest.raises(hf.HoldfastError, match=r"classes=11 of 10; give 1\.\.10"):
        hf.data.partition.by_classes(train, 10, 11)
    with pytest.raises(hf.HoldfastError, match="cannot hold all 10 classes"):
        hf.data.partition.by_classes(train, 4, 2)


def test_adaptive_clipping_tracks_the_quantile():
    """With updates of fixed norms the bound settles where a quarter of them are not clipped."""
    clients = hf.Clients.from_rows(
        hf.Examples(np.zeros((8, 1), np.float32), np.arange(1, 9, dtype=np.float32)[:, None]),
        [[i] for i in range(8)],
    )
    constant_pull = hf.Model(
        init=lambda key, examples: jnp.zeros(1),
        loss=lambda w, batch: -batch.y[:, 0] * w[0],  # the gradient is -y, wherever w is
    )
    algorithm = hf.Algorithm(AdaptiveClip(initial=50.0, quantile=0.25, rate=0.2))
    result = hf.simulate(algorithm, constant_pull, clients, hf.Local(1.0, steps=1), 200)
    bound = float(result.state.server.rule)
    assert 1.9 < bound < 3.1  # norms are 1..8
    one_round = hf.simulate(
        hf.Algorithm(AdaptiveClip(2.5)), constant_pull, clients, hf.Local(1.0, steps=1), 1
    )
    assert float(one_round.params[0]) == pytest.approx((1 + 2 + 6 * 2.5) / 8)
    assert float(one_round.state.server.rule) == pytest.approx(2.5 * np.exp(-0.2 * (0.25 - 0.5)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: run(hf.algorithms.fedavg_plus(0.5), server=None),
            r"ServerLearning needs data or a loss at the server, but the run has none; give simulate",
        ),
        (
            lambda: run(
                hf.algorithms.scaffold_plus(0.5),
                server=hf.Server(OWN, hf.Local(0.1, steps=3, momentum=0.9)),
            ),
            "ServerTurn needs plain SGD steps, .* at the server, but the server's Local has momentum",
        ),
        (
            lambda: run(
                hf.algorithms.one_way_transfer(),
                server=hf.Server(OWN, hf.Local(0.1, optimizer=optax.adam)),
            ),
            "OneWayTransfer needs plain SGD steps, .* at the server, but the server's Local has",
        ),
        (
            lambda: run(hf.algorithms.two_way_transfer(), hf.Local(0.1, optimizer=optax.adam)),
            "needs plain SGD steps, .* but Local has an optimizer; remove it",
        ),
        (
            lambda: run(
                hf.algorithms.server_as_client(),
                server=hf.Server(
                    lambda p: jnp.sum(p["classifier"]["bias"] ** 2), hf.Local(0.1, steps=1)
                ),
            ),
            "ServerAsClient needs examples at the server, .* its loss is of the parameters alone; give",
        ),
        (lambda: hf.Server(OWN, local=0.1), "Server: local is a float; give hf.Local"),
        (lambda: hf.Server(OWN, hf.Local(0.1), los=None), "unknown argument `los`; did you mean"),
        (
            lambda: hf.Server(central_loss, hf.Local(0.1), loss=central_loss),
            "Server: two losses are given",
        ),
        (
            lambda: run(
                hf.algorithms.parallel_training(),
                server=hf.Server(lambda p: p["classifier"]["bias"], hf.Local(0.1, steps=1)),
            ),
            r"Server: the loss has shape \(3,\); return one number",
        ),
        (
            lambda: run(
                hf.algorithms.fedavg_plus(0.5),
                server=hf.Server(OWN._replace(y=OWN.y + 9), hf.Local(0.1)),
            ),
            "labels: found",
        ),
        (
            lambda: hf.Masked(hf.rules.ServerLearning(0.1), [True]),
            "Masked: ServerLearning needs the whole model",
        ),
        (
            lambda: hf.Chain((hf.rules.ServerLearning(0.1), hf.rules.Dynamic(0.1))),
            "ServerLearning stands at place 0 of 2 but needs the last place",
        ),
        (
            lambda: hf.Local(0.1, momentum=0.9, optimizer=optax.adam),
            "momentum and optimizer are both",
        ),
    ],
)
def test_what_cannot_work_is_refused(call, message):
    with pytest.raises(hf.HoldfastError, match=message):
        call()


def test_clients_latest_models_can_be_watched_beside_a_rule_that_must_stand_last():
    result = run(hf.algorithms.fedavg_plus(0.5), evaluate=hf.evaluate.client_average(OWN))
    assert np.isfinite(result.history["average_loss"]).all()
