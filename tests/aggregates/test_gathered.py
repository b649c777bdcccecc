"""Means that need all replies: as NumPy has them, whoever is absent and however slots lie."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.aggregates import sorted as by_coordinate
from holdfast.core.gathered import gathered
from holdfast.core.mean import Held, Judged
from tests.problems import QUADRATIC, random_quadratics

LOCAL = hf.Local(learning_rate=0.05, steps=5)
A = hf.aggregates


def having(algorithm, mean):
    return dataclasses.replace(algorithm, aggregate=mean)


def cohort(seed=0, slots=7, absent=(2, 5)):
    """Replies of several leaves, their weights, and who is there; numbers of no meaning where nobody is."""
    rng = np.random.default_rng(seed)
    replies = {"a": rng.normal(size=(slots, 3)), "b": rng.normal(size=(slots, 2, 2))}
    there = ~np.isin(np.arange(slots), absent)
    for leaf in replies.values():
        leaf[~there] = 0
    return replies, rng.uniform(0.5, 2, slots), there


def wide(replies, there):
    return np.concatenate([a[there].reshape(there.sum(), -1) for a in replies.values()], axis=1)


def combined(mean, replies, weights, there):
    order = jnp.arange(len(there))
    found = jax.jit(mean.combine)(replies, jnp.asarray(weights), jnp.asarray(there), order)
    return np.concatenate([np.ravel(a) for a in found.values()])


@pytest.mark.parametrize("absent", [(2, 5), (2,), (0, 1, 2, 3, 4)], ids=["odd", "even", "two"])
def test_medians_of_equal_weights_are_numpys(absent, x64):
    replies, _, there = cohort(1, absent=absent)
    found = combined(A.CoordinateMedian(), replies, np.ones(7), there)
    np.testing.assert_allclose(found, np.median(wide(replies, there), axis=0), rtol=1e-14)


def test_a_weight_of_three_is_three_clients(x64):
    replies, _, there = cohort(2)
    weights = np.array([1, 3, 1, 1, 2, 1, 1.0])
    repeated = np.repeat(wide(replies, there), weights[there].astype(int), axis=0)
    found = combined(A.CoordinateMedian(), replies, weights, there)
    np.testing.assert_allclose(found, np.median(repeated, axis=0), rtol=1e-14)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45])
def test_trimmed_means(share, x64):
    replies, weights, there = cohort(3)
    values, w = wide(replies, there), weights[there]
    cut = int(share * len(values))
    order = np.argsort(values, axis=0)[cut : len(values) - cut]
    kept, heavy = np.take_along_axis(values, order, 0), w[order]
    found = combined(A.TrimmedMean(share), replies, weights, there)
    np.testing.assert_allclose(found, (kept * heavy).sum(0) / heavy.sum(0), rtol=1e-13)


def test_a_share_that_is_whole_but_for_rounding_is_whole(x64):
    """0.29 of 100 is 28.999999999999996 in floats."""
    values = np.arange(100.0)[:, None]
    values[-29:] = 1e9
    there = np.ones(100, bool)
    given = values, jnp.ones(100), jnp.asarray(there), jnp.arange(100)
    found = jax.jit(A.TrimmedMean(0.29).combine)(*given)
    assert float(found[0]) == np.arange(29.0, 71.0).mean()


def test_the_geometric_median_has_the_least_sum_of_distances(x64):
    replies, weights, there = cohort(4)
    values, w = wide(replies, there), weights[there]

    def cost(z):
        return float((w * np.linalg.norm(values - z, axis=1)).sum())

    found = combined(A.GeometricMedian(steps=200), replies, weights, there)
    around = [found + d for d in 1e-3 * np.random.default_rng(0).normal(size=(50, found.size))]
    assert all(cost(found) < cost(z) for z in around)
    assert cost(found) < cost((values * w[:, None]).sum(0) / w.sum())


@pytest.mark.parametrize(
    "mean",
    [A.CoordinateMedian(), A.TrimmedMean(0.2), A.GeometricMedian()],
    ids=lambda m: type(m).__name__,
)
def test_a_huge_reply_moves_nothing_far(mean):
    replies, _, there = cohort(5)
    replies = {k: a.astype(np.float32) for k, a in replies.items()}
    lied = {k: a.copy() for k, a in replies.items()}
    for leaf in lied.values():
        leaf[3] = 1e30
    found = combined(mean, lied, np.ones(7, np.float32), there)
    assert np.abs(found).max() < np.abs(wide(replies, there)).max()


def test_blocks_are_the_whole(monkeypatch):
    rng = np.random.default_rng(6)
    replies = jnp.asarray(rng.normal(size=(5, 37)).astype(np.float32))
    weights, there = jnp.ones(5), jnp.asarray([True] * 4 + [False])
    for mean in (A.CoordinateMedian(), A.TrimmedMean(0.3), A.GeometricMedian(steps=2)):
        order = jnp.array([3, 0, 2, 1, 4])
        whole = mean.combine(replies, weights, there, order)
        in_order = mean.combine(replies[order], weights, there, jnp.arange(5))
        np.testing.assert_array_equal(whole, in_order)
        with monkeypatch.context() as small:
            small.setattr(by_coordinate, "_BLOCK", 8)
            blocks = mean.combine(replies, weights, there, order)
            np.testing.assert_array_equal(whole, blocks)


@pytest.mark.parametrize(
    "mean",
    [A.Krum(0.2), A.CoordinateMedian(), A.TrimmedMean(0.2), A.GeometricMedian()],
    ids=lambda m: type(m).__name__,
)
def test_no_second_cohort_of_replies_is_in_memory(mean):
    """Of 100 clients times a million parameters, beside the replies themselves: by the compiled program."""
    clients, size = 100, 1_000_000
    shape = jax.ShapeDtypeStruct
    replies, weight = shape((clients, size), jnp.float32), shape((clients,), jnp.float32)
    judged = Judged(shape((clients,), bool), held=Held(replies, (), weight, ()))
    program = jax.jit(lambda j, c: gathered(mean, j, c)[:2])
    numbers = shape((clients,), jnp.int32)
    memory = program.lower(judged, numbers).compile().memory_analysis()
    assert memory.argument_size_in_bytes >= 4 * clients * size
    # A tenth of them: blocks, and a few models.
    assert memory.temp_size_in_bytes < 4 * clients * size / 10


def krum(values, lies, keep):
    distances = ((values[:, None] - values[None]) ** 2).sum(-1)
    near = max(len(values) - lies - 2, 1)
    scores = [np.sort(np.delete(row, i))[:near].sum() for i, row in enumerate(distances)]
    return sorted(np.argsort(scores, kind="stable")[:keep].tolist())


@pytest.mark.parametrize(("share", "keep"), [(0.2, None), (0.2, 1), (0.4, 2), (0.0, None)])
def test_krum_chooses_as_published(share, keep, x64):
    replies, _, there = cohort(7, slots=12)
    lies = int(share * there.sum())
    expected = krum(wide(replies, there), lies, keep or there.sum() - lies)
    chosen = jax.jit(A.Krum(share, keep).choose)(replies, jnp.asarray(there), jnp.arange(12))
    assert np.flatnonzero(chosen).tolist() == np.flatnonzero(there)[expected].tolist()


def test_krum_of_equal_replies_takes_the_first_numbers():
    replies, there = jnp.ones((5, 3)), jnp.asarray([False, True, True, True, True])
    chosen = A.Krum(share=0.3).choose(replies, there, jnp.arange(5))
    assert chosen.tolist() == [False, True, True, True, False]
    alone = A.Krum().choose(replies, jnp.arange(5) == 2, jnp.arange(5))
    assert np.flatnonzero(alone).tolist() == [2]


def test_empty_slots_and_their_order_change_no_bit():
    rng = np.random.default_rng(8)
    received, each = rng.normal(size=(6, 5)).astype(np.float32), rng.uniform(1, 2, 6)
    weight = each.astype(np.float32)

    def result(mean, order, padding):
        def laid(a):
            return jnp.concatenate(
                [jnp.asarray(a)[np.array(order)], jnp.zeros((padding, *a.shape[1:]), a.dtype)]
            )

        held = Held(laid(received), laid(received), laid(weight), laid(weight))
        accepted = jnp.arange(6 + padding) < 6
        clients = jnp.concatenate([jnp.array(order) * 3, jnp.full(padding, -1)])
        return jax.jit(lambda j, c: gathered(mean, j, c)[:2])(Judged(accepted, held=held), clients)

    for mean in (A.Krum(0.3), A.CoordinateMedian(), A.TrimmedMean(0.2), A.GeometricMedian()):
        plain = result(mean, [0, 1, 2, 3, 4, 5], 0)
        other = result(mean, [4, 2, 5, 0, 3, 1], 5)
        for a, b in zip(plain, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_who_is_not_chosen_keeps_its_state(name, x64):
    """So the server's state is the mean of the rows at all times."""
    methods = {"scaffold": hf.algorithms.scaffold(), "feddyn": hf.algorithms.feddyn(alpha=2.0)}
    clients, _ = random_quadratics(5)
    method = having(methods[name], A.Krum(share=0.3))
    states = hf.rounds(method, QUADRATIC, clients, LOCAL, cohort=hf.cohorts.fixed(7), seed=2)
    before = np.zeros((10, 4))
    for _ in range(6):
        state = next(states)
        rows = np.stack([state.client_states[i].rule for i in range(10)])
        entry = state.ledger.entries[-1]
        assert len(entry.left_out) == 2
        assert state.history.details[-1]["unselected_clients"] == list(entry.left_out)
        np.testing.assert_array_equal(rows[list(entry.left_out)], before[list(entry.left_out)])
        np.testing.assert_allclose(state.server.rule, rows.mean(0), atol=1e-12)
        before = rows


@pytest.mark.parametrize(
    "mean",
    [A.CoordinateMedian(), A.TrimmedMean(), A.GeometricMedian()],
    ids=lambda m: type(m).__name__,
)
def test_means_that_leave_the_rows_are_refused_with_client_states(mean):
    for method in (hf.algorithms.scaffold(), hf.algorithms.feddyn(alpha=1.0)):
        with pytest.raises(hf.HoldfastError, match="beside the optimum"):
            having(method, mean)


def test_what_adds_up_over_clients_is_refused_beside_a_median():
    clients, _ = random_quadratics(5)
    method = having(hf.algorithms.fedavg(), A.CoordinateMedian())
    with pytest.raises(hf.HoldfastError, match="adds up"):
        hf.simulate(method, QUADRATIC, clients, LOCAL, 1, evaluate=hf.diagnose.drift())


@pytest.mark.parametrize("mean", [A.Krum(0.3), A.TrimmedMean(0.4)], ids=lambda m: type(m).__name__)
def test_conformance(mean):
    hf.testing.check(having(hf.algorithms.fedavg(), mean))


def test_krum_conforms_with_client_states():
    hf.testing.check(having(hf.algorithms.feddyn(alpha=0.5), A.Krum(share=0.3)))
