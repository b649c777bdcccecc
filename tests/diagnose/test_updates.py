"""Norms, shares and directions of updates against NumPy."""

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.trees import layers
from tests.problems import same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
LOCAL = hf.Local(0.1, epochs=2, batch_size=4)
EVERY = hf.diagnose.updates()


def flat(tree, numbers):
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.asarray(leaves[k], np.float64).ravel() for k in numbers])


@pytest.mark.parametrize(
    "algorithm",
    [
        hf.algorithms.fedavg(),
        hf.Algorithm(wire=hf.wires.Diana(hf.wires.Quantise(levels=4)), name="diana"),
    ],
    ids=lambda a: a.name,
)
def test_against_numpy(algorithm):
    states = []
    run = hf.simulate(
        algorithm,
        MODEL,
        tiny_clients(),
        LOCAL,
        3,
        evaluate=EVERY,
        on_round=states.append,
        cohort=hf.cohorts.fixed(3),
    )
    begun = run.simulation.params
    for t, (state, details) in enumerate(zip(states, run.history.details, strict=True)):
        ids = sorted(state.ledger.entries[-1].clients)
        assert details["update_clients"] == ids
        before, record = states[t - 1].params if t else begun, run.history[t]
        everything = tuple(range(len(jax.tree.leaves(before))))
        trained = [state.client_states[i].latest for i in ids]
        total = sum(np.sum((flat(y, everything) - flat(before, everything)) ** 2) for y in trained)
        for name, numbers in {
            "": everything,
            **{f"/{n}": k for n, k in layers(before).items()},
        }.items():
            m = np.array([flat(y, numbers) - flat(before, numbers) for y in trained])
            norms, mean = np.linalg.norm(m, axis=1), m.mean(0)
            cosines = m @ mean / (norms * np.linalg.norm(mean))
            np.testing.assert_allclose(details[f"update_norms{name}"], norms, rtol=1e-9)
            np.testing.assert_allclose(details[f"update_cosines{name}"], cosines, rtol=1e-9)
            assert record[f"update_norm{name}"] == pytest.approx(norms.mean(), rel=1e-9)
            assert record[f"update_cosine{name}"] == pytest.approx(cosines.mean(), rel=1e-9)
            size = np.linalg.norm(flat(state.params, numbers))
            assert record[f"weight_norm{name}"] == pytest.approx(size, rel=1e-9)
            if name:
                share = np.sum(norms**2) / total
                assert record[f"update_share{name}"] == pytest.approx(share, rel=1e-9)


def test_changes_no_bit_and_goes_on_exactly(tmp_path):
    given = hf.Experiment(hf.algorithms.scaffold(), MODEL, tiny_clients(), LOCAL, evaluate=EVERY)
    plain = hf.simulate(hf.algorithms.scaffold(), MODEL, tiny_clients(), LOCAL, 4)
    whole = hf.simulate(given, 4)
    for rounds in (1, 3, 4):
        resumed = hf.simulate(given, rounds, checkpoint=tmp_path)
    assert same_bits(plain.params, whole.params)
    assert same_bits(plain.params, resumed.params)
    assert plain.ledger.total == whole.ledger.total
    assert resumed.history.details == whole.history.details


def test_beside_drift_diversity_both_watch():
    both = [hf.diagnose.drift(), EVERY]
    run = hf.simulate(hf.algorithms.fedavg(), MODEL, tiny_clients(), LOCAL, 2, evaluate=both)
    # The quotient is of the squares of the same updates, which norms and the mean's length have too.
    norms = np.array(run.history.details[1]["update_norms"])
    cosines = np.array(run.history.details[1]["update_cosines"])
    length = (norms * cosines).sum()  # of the sum of all updates
    expected = (norms**2).sum() / length**2
    assert run.history["drift_diversity"][1] == pytest.approx(expected, rel=1e-5)


def test_where_nothing_travels_nothing_is_measured():
    run = hf.simulate(hf.algorithms.local_only(), MODEL, tiny_clients(), LOCAL, 1, evaluate=EVERY)
    assert not run.history.details
