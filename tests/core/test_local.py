"""Local training against plain loops: batches, steps, clip, decay, momentum, schedules."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import holdfast as hf
from holdfast.engine.batches import BatchPlanner
from tests.problems import QUADRATIC, largest_difference, same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)


def one_client(size=10):
    clients = tiny_clients(sizes=(size,), clients=1)
    return clients, jax.tree.map(jnp.asarray, clients[0])


def ours(local, rounds=1, clients=None, **settings):
    clients = clients or one_client()[0]
    return hf.simulate(hf.algorithms.fedavg(), MODEL, clients, local, rounds, **settings)


def plain_sgd(batches, optimizer, rounds=1):
    """Reference: optax over the given batches, its state reset each round."""
    _, data = one_client()
    params = ours(hf.Local(0.1), rounds=0).params
    with jax.numpy_dtype_promotion("standard"):
        for t in range(rounds):
            state = optimizer(t).init(params)
            for rows in batches:
                batch = jax.tree.map(lambda a, rows=rows: a[rows], data)

                def mean(p, batch=batch):
                    return jnp.mean(MODEL.losses(p, batch, jax.random.key(0)))

                updates, state = optimizer(t).update(jax.grad(mean)(params), state, params)
                params = optax.apply_updates(params, updates)
    return params


KEPT = [np.arange(0, 4), np.arange(4, 8), np.arange(8, 10)]


def test_the_last_partial_batch_is_kept_with_its_own_mean():
    local = hf.Local(0.2, epochs=2, batch_size=4, shuffle=False)
    expected = plain_sgd(KEPT * 2, lambda t: optax.sgd(0.2))
    assert largest_difference(ours(local).params, expected) < 1e-6


def test_the_last_partial_batch_can_be_dropped():
    local = hf.Local(0.2, epochs=2, batch_size=4, shuffle=False, last_batch="drop")
    expected = plain_sgd(KEPT[:2] * 2, lambda t: optax.sgd(0.2))
    assert largest_difference(ours(local).params, expected) < 1e-6


def test_an_exact_number_of_steps_stops_within_a_pass():
    local = hf.Local(0.2, steps=5, batch_size=4, shuffle=False)
    expected = plain_sgd(KEPT + KEPT[:2], lambda t: optax.sgd(0.2))
    assert largest_difference(ours(local).params, expected) < 1e-6


def test_clip_decay_and_momentum_in_that_order_and_reset_each_round():
    local = hf.Local(
        0.2, batch_size=4, shuffle=False, clip=0.3, weight_decay=0.05, momentum=0.9, epochs=2
    )
    expected = plain_sgd(
        KEPT * 2,
        lambda t: optax.chain(
            optax.clip_by_global_norm(0.3),
            optax.add_decayed_weights(0.05),
            optax.sgd(0.2, momentum=0.9),
        ),
        rounds=2,
    )
    assert largest_difference(ours(local, rounds=2).params, expected) < 1e-5


def test_momentum_on_some_leaves_only():
    def is_hidden(path):
        return path.startswith("hidden")

    local = hf.Local(0.2, batch_size=4, shuffle=False, momentum=0.9, momentum_on=is_hidden)
    expected = plain_sgd(
        KEPT,
        lambda t: optax.multi_transform(
            {"heavy": optax.sgd(0.2, momentum=0.9), "plain": optax.sgd(0.2)},
            {"hidden_0": "heavy", "classifier": "plain"},
        ),
    )
    assert largest_difference(ours(local).params, expected) < 1e-6
    by_leaf = hf.Local(
        0.2, batch_size=4, shuffle=False, momentum=0.9, momentum_on=[False, False, True, True]
    )
    assert same_bits(ours(by_leaf).params, ours(local).params)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (hf.schedules.constant(0.3), [0.3, 0.3, 0.3]),
        (hf.schedules.exponential(0.3, 0.5), [0.3, 0.15, 0.075]),
        (hf.schedules.multi_step(0.3, rounds=[1, 2], factor=0.1), [0.3, 0.03, 0.003]),
        (hf.schedules.cosine(0.4, rounds=4, end=0.04), [0.4, None, 0.22]),
        (optax.linear_schedule(0.3, 0.1, 2), [0.3, 0.2, 0.1]),
    ],
)
def test_schedules_over_rounds(schedule, values):
    for t, value in enumerate(values):
        if value is not None:
            assert hf.Local(schedule).at(t, jnp.zeros(1)).learning_rate == pytest.approx(value)
    steps = [hf.Local(schedule).at(t, jnp.zeros(1)).learning_rate for t in range(3)]
    local = hf.Local(schedule, batch_size=4, shuffle=False)
    expected = plain_sgd(KEPT, lambda t: optax.sgd(steps[t]), rounds=3)
    assert largest_difference(ours(local, rounds=3).params, expected) < 1e-6


def test_clients_of_unequal_size_take_their_own_number_of_steps():
    planner = BatchPlanner(tiny_clients(), hf.Local(0.1, epochs=3, batch_size=4), seed=0)
    assert planner.steps.tolist() == [6, 9, 6, 9]
    work = planner.slots(0, np.array([0, 2, -1]))
    assert work.steps.tolist() == [6, 6, 0]
    for slot, client in enumerate([0, 2]):
        rows = work.batches[slot][: work.steps[slot]]
        seen, counts = np.unique(rows[rows >= 0], return_counts=True)
        assert sorted(seen) == sorted(planner.clients.rows(client))
        assert set(counts) == {3}
    assert (work.batches[2] == -1).all()


def test_dropping_short_batches_leaves_small_clients_theirs():
    clients = tiny_clients()
    planner = BatchPlanner(clients, hf.Local(0.1, batch_size=6, last_batch="drop"), seed=0)
    assert clients.sizes.tolist() == [7, 12, 5, 9]
    assert planner.steps.tolist() == [1, 2, 1, 1]


def test_order_is_a_function_of_seed_round_and_client():
    planner = BatchPlanner(tiny_clients(), hf.Local(0.1, batch_size=4), seed=0)
    a, b = planner.slots(1, np.array([0, 3])), planner.slots(1, np.array([3, -1]))
    assert np.array_equal(a.batches[1], b.batches[0])
    assert not np.array_equal(planner.slots(2, np.array([3])).batches[0], b.batches[0])
    other = BatchPlanner(tiny_clients(), hf.Local(0.1, batch_size=4), seed=1)
    assert not np.array_equal(other.slots(1, np.array([3])).batches[0], b.batches[0])


def test_each_pass_has_a_fresh_order():
    planner = BatchPlanner(one_client()[0], hf.Local(0.1, epochs=2, batch_size=5), seed=0)
    batches = planner.slots(0, np.array([0])).batches[0]
    assert not np.array_equal(batches[:2], batches[2:])


def test_the_whole_of_a_client_is_one_batch_by_default():
    run = hf.simulate(
        hf.algorithms.fedavg(),
        QUADRATIC,
        hf.Clients.from_rows(
            hf.Examples(np.ones((3, 1)), np.array([[1.0], [2.0], [6.0]])), [range(3)]
        ),
        hf.Local(learning_rate=0.5),
        rounds=1,
    )
    assert float(run.params[0]) == pytest.approx(1.5)


@pytest.mark.parametrize("last_batch", ["keep", "drop"])
@pytest.mark.parametrize("much", [{"epochs": 3}, {"steps": 1}, {"steps": 5}])
def test_processed_is_what_batches_hold(last_batch, much):
    clients = tiny_clients(sizes=(7, 12, 5, 9, 3, 16), clients=6)
    planner = BatchPlanner(clients, hf.Local(0.1, batch_size=4, last_batch=last_batch, **much), 0)
    held = (planner.slots(0, np.arange(6)).batches >= 0).sum(axis=(1, 2))
    assert planner.processed.tolist() == held.tolist()


def test_a_pull_alone_does_not_move_a_parameter_under_adam():
    """Rounding of pull y - pull x, divided by its own size, would be whole steps."""
    x = np.array([[1.0, 0.0]], np.float32)  # the second has no gradient
    clients = hf.Clients.from_datasets([hf.Examples(x, np.zeros_like(x))])
    begin = jnp.array([0.7, 0.1], jnp.float32)
    run = hf.simulate(
        hf.algorithms.fedprox(0.3),
        QUADRATIC,
        clients,
        hf.Local(0.05, steps=5, optimizer=optax.adam),
        rounds=1,
        params=begin,
    )
    assert float(run.params[1]) == float(begin[1])
    assert abs(float(run.params[0]) - 0.7) > 0.1


def test_numbers_of_numpy_are_numbers():
    given = hf.Local(np.float32(0.1), steps=np.int64(5), batch_size=np.int32(2))
    plain = hf.Local(0.1, steps=5, batch_size=2)
    assert (type(given.steps), type(given.batch_size)) == (int, int)
    assert jax.tree.structure(given) == jax.tree.structure(plain)
    assert hf.Local(0.1, epochs=np.uint8(3)).epochs == 3


@pytest.mark.parametrize("zero", [0, 0.0, np.float32(0)])
def test_no_momentum_is_said_in_two_ways(zero):
    """0 and None are one program, and methods that need plain steps take both."""
    clients = tiny_clients()
    model = hf.models.softmax_regression(classes=3)
    none, also = (hf.Local(0.1, batch_size=4, momentum=m) for m in (None, zero))
    params = model.init(jax.random.key(0), clients.examples)
    assert jax.tree.structure(none.at(0, params)) == jax.tree.structure(also.at(0, params))
    server = clients[0]
    for algorithm in (hf.algorithms.scaffold(), hf.algorithms.two_way_transfer()):
        runs = [
            hf.simulate(algorithm, model, clients, m, 2, server=hf.Server(server, m))
            for m in (none, also)
        ]
        assert same_bits(runs[0].params, runs[1].params)
    assert hf.Local(0.1, momentum=zero, optimizer=optax.adam).optimizer is optax.adam
