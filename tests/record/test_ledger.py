"""Every byte, from shapes and types of what travels."""

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.core import hyper
from holdfast.engine.simulation import Simulation
from holdfast.record.ledger import Entry
from tests.problems import tiny_clients

MODEL = hf.models.mlp([4], classes=3)
LOCAL = hf.Local(0.1, batch_size=4)


def run(algorithm, rounds=2, **settings):
    return hf.simulate(algorithm, MODEL, tiny_clients(), LOCAL, rounds, **settings)


def share_of_classifier(params):
    sizes = {name: sum(p.size for p in layer.values()) for name, layer in params.items()}
    return sizes["classifier"] / sum(sizes.values())


def test_the_papers_unit():
    plain = run(hf.algorithms.fedavg())
    share = share_of_classifier(plain.params)

    def classifier(path):
        return path.startswith("classifier")

    expected = {
        1.0: [
            hf.algorithms.fedavg(),
            hf.algorithms.fedprox(0.1),
            hf.algorithms.feddyn(0.1),
            hf.algorithms.fedadam(),
            hf.algorithms.fedsplit(0.5),
            hf.algorithms.fedsplit(0.5, "all"),
        ],
        1.5: [hf.algorithms.scaffold(), hf.algorithms.feddc(0.1)],
        2.0: [hf.algorithms.scaffold(upload="published"), hf.algorithms.scaffold(option="I")],
        1 + share: [hf.algorithms.fedpvr(classifier, upload="published")],
        1 + share / 2: [hf.algorithms.fedpvr(classifier)],
        0.0: [hf.algorithms.centralised(), hf.algorithms.local_only()],
    }
    for per_round, algorithms in expected.items():
        for algorithm in algorithms:
            assert worth(algorithm) == pytest.approx(per_round), algorithm
    assert run(hf.algorithms.feddc(0.1), rounds=3).ledger.models_transmitted == pytest.approx(4.5)


def worth(algorithm):
    """One round relative to FedAvg's; what travels is known without compiling it."""
    simulation = Simulation(hf.Experiment(algorithm, MODEL, tiny_clients(), LOCAL))
    ids = np.arange(len(simulation.setup.clients))
    state, now = simulation.begin(), hyper.at_round(simulation.setup.algorithm, 0)
    bits = simulation.traffic.of_round(now, state, ids)
    return state.ledger.relative(Entry(1, tuple(ids.tolist()), *bits))


def test_bytes_by_round_client_and_in_total():
    cohort = hf.cohorts.schedule([[0, 1], [3], [0, 2, 3]])
    result = run(hf.algorithms.scaffold(), rounds=3, cohort=cohort)
    model = sum(p.nbytes for p in jax.tree.leaves(result.params))
    assert result.ledger.model_bytes == model
    assert [e.clients for e in result.ledger.entries] == [(0, 1), (3,), (0, 2, 3)]
    assert result.history["bytes_down"].tolist() == [4 * model, 2 * model, 6 * model]
    assert result.history["bytes_up"].tolist() == [2 * model, model, 3 * model]
    down, up = result.ledger.by_client(4)
    assert (down.tolist(), up.tolist()) == (
        [4 * model, 2 * model, 2 * model, 4 * model],
        [2 * model, model, model, 2 * model],
    )
    assert result.ledger.total == down.sum() + up.sum() == 18 * model
    assert f"{12 * model:,} bytes down" in repr(result.ledger)


def test_types_count_as_they_are(x64):
    clients = tiny_clients(dtype=np.float64)
    wide = hf.simulate(hf.algorithms.fedavg(), MODEL, clients, LOCAL, rounds=1)
    narrow = run(hf.algorithms.fedavg(), rounds=1)
    assert wide.ledger.total == 2 * narrow.ledger.total


def test_history_finds_rounds_and_bytes_to_a_target():
    history = hf.History(
        tuple(
            {"round": t + 1, "accuracy": a, "bytes_down": 10, "bytes_up": 5}
            for t, a in enumerate([0.1, 0.5, 0.4, 0.9])
        )
    )
    assert (history.rounds_to(0.5), history.bytes_to(0.5)) == (2, 30)
    assert (history.rounds_to(0.95), history.bytes_to(0.95)) == (None, None)
    with pytest.raises(hf.HoldfastError, match="nothing called `acuracy`; did you mean `accuracy`"):
        history["acuracy"]
    assert "accuracy" in repr(history).splitlines()[0]
    assert history[-1]["accuracy"] == 0.9
