"""Means beside what else a run may have: equal to the plain way, or refused."""

import dataclasses

import jax
import numpy as np
import pytest

import holdfast as hf
from tests.engine import test_select, test_unlike_populations
from tests.problems import QUADRATIC, largest_difference, random_quadratics, tiny_clients

A = hf.aggregates


def having(algorithm, mean):
    return dataclasses.replace(algorithm, aggregate=mean)


@pytest.mark.parametrize(
    "method",
    [hf.algorithms.fedavg(), hf.algorithms.fedprox(0.3), hf.algorithms.feddyn(0.3)],
    ids=lambda a: a.name,
)
def test_select_equals_the_full_table(method):
    bounded = having(method, A.NormBounded(factor=0.8))
    small, full = (test_select.run(bounded, select) for select in (True, False))
    assert sum(full.history["bounded"][1:]) > 0
    assert small.history["bounded"].tolist() == full.history["bounded"].tolist()
    assert largest_difference(small.params, full.params) < 1e-6
    for i in range(4):
        assert largest_difference(small.client_states[i], full.client_states[i]) < 1e-6


@pytest.mark.parametrize(
    ("method", "mean"),
    [
        # Rows that are not sent move with the client's own, and count in the norm.
        (hf.algorithms.scaffold(), A.NormBounded()),
        (hf.algorithms.fedavg(), A.CenteredClipping()),
        (hf.algorithms.fedavg(), A.Krum()),
        (hf.algorithms.fedavg(), A.CoordinateMedian()),
    ],
    ids=lambda a: getattr(a, "name", type(a).__name__),
)
def test_select_refuses_what_would_be_another_bound(method, mean):
    with pytest.raises(hf.HoldfastError, match="select: "):
        test_select.run(having(method, mean), True)


def test_populations_keep_states_in_step(x64):
    both = test_unlike_populations.joined()
    runs = [
        hf.simulate(having(hf.algorithms.scaffold(), mean), **both, rounds=4, seed=1)
        for mean in (None, A.NormBounded(factor=0.7))
    ]
    for run in runs:
        rows = [run.client_states[i].rule for i in range(5)]
        weights = [1 / 3] * 3 + [2 / 2] * 2  # a client's part of its population's weight

        def mean(*leaves, weights=weights):
            return np.tensordot(weights, np.stack(leaves), 1) / 3

        assert largest_difference(jax.tree.map(mean, *rows), run.state.server.rule) < 1e-12
    assert sum(runs[1].history["bounded"][1:]) > 0
    with pytest.raises(hf.HoldfastError, match="populations count by weights of their own"):
        hf.simulate(having(hf.algorithms.fedavg(), A.Krum()), **both, rounds=1)


@pytest.mark.parametrize(
    "mean", [A.NormBounded(factor=1e9, first=1e9), A.Krum(share=0.0)], ids=["bounded", "krum"]
)
def test_weights_momentum_decay_and_masks_are_as_ever(mean):
    """A mean that does nothing is the plain one, with all that a run can have."""
    clients = tiny_clients()
    local = hf.Local(
        0.1,
        epochs=1,
        batch_size=4,
        momentum=0.5,
        momentum_on=lambda path: path.startswith("hidden"),
        weight_decay=1e-3,
    )
    method = hf.algorithms.fedpvr(
        mask=lambda path: path.startswith("classifier"), weighting="examples"
    )
    runs = [
        hf.simulate(having(method, m), hf.models.mlp([4], classes=3), clients, local, 3, seed=2)
        for m in (None, mean)
    ]
    assert largest_difference(runs[0].params, runs[1].params) < 1e-6
    for i in range(4):
        assert largest_difference(runs[0].client_states[i], runs[1].client_states[i]) < 1e-5


def test_a_downlink_does_not_touch_the_bound(x64):
    clients, _ = random_quadratics(2)
    local = hf.Local(learning_rate=0.05, steps=3)
    wire = hf.wires.Downlink(hf.Wire(), hf.wires.TopK(k=2))
    method = hf.Algorithm(hf.rules.Dynamic(1.0), wire, aggregate=A.NormBounded(factor=0.7))
    run = hf.simulate(method, QUADRATIC, clients, local, 8, cohort=hf.cohorts.fixed(4))
    rows = np.stack([run.client_states[i].rule for i in range(10)])
    assert sum(run.history["bounded"][1:]) > 0
    np.testing.assert_allclose(run.state.server.rule, rows.mean(0), atol=1e-12)
