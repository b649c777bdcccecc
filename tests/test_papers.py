"""The studies run, in small; their full results are in `papers/*/README.md`."""

import dataclasses

import numpy as np

from papers.fedpvr import drift, first_layer
from papers.flix import logistic
from papers.fsl.study import compare_on_classes


def test_server_learning_is_faster_on_one_class_per_client():
    curves = compare_on_classes(classes=(1,), seeds=1, rounds=20)
    best = {c.method: float(c.accuracy.max()) for c in curves}
    assert best["FSL"] > best["FL"] + 0.1


def test_unlike_clients_drift_apart_in_the_last_layer(tmp_path, monkeypatch):
    problem = drift.digits(rounds=5, seeds=1)
    two = [m for m in drift.methods() if m[0].startswith("FedAvg")]
    monkeypatch.setattr(drift, "methods", lambda: iter(two))
    rows = drift.study(problem)
    by_layer = [
        drift.mean(rows, "drift_diversity", method="FedAvg", layer=n) for n in problem.layers
    ]
    assert by_layer[-1] > by_layer[0]
    like = drift.mean(rows, "cka", method="FedAvg, like clients", layer="classifier")
    assert like > drift.mean(rows, "cka", method="FedAvg", layer="classifier")
    written = drift.write(problem, rows, tmp_path)
    assert "| classifier |" in written.read_text()


def test_smaller_alpha_needs_fewer_rounds_and_diana_does_not_stall(x64, tmp_path):
    """Figures 2, 3 and 9 of FLIX in small, on generated data."""
    study = dataclasses.replace(
        logistic.smaller(logistic.REGULARISED),
        alphas=(0.1, 1.0),
        compressed_alphas=(0.9,),
        rounds={logistic.GD: 60, logistic.DIANA: 200, logistic.DCGD: 100},
        accuracy=1e-6,
        beside_dcgd=(logistic.DIANA,),
        max_examples=200,
    )
    found = logistic.compare(study, ("ijcnn1",), tmp_path, lambda *_: None)
    assert found.generated == ["ijcnn1"]
    needed = {c.setting.alpha: c.needed for c in found.curves if c.setting.method == logistic.GD}
    assert 0 < needed[0.1] < needed[1.0]
    ends = {c.setting.method: c.end for c in found.curves if c.setting.alpha == 0.9}
    assert ends[logistic.DIANA] < 1e-9 < 1e-6 < ends[logistic.DCGD]
    assert all(curve.gap[0] <= curve.promise.first_gap for curve in found.curves)


def test_rules_are_judged_by_the_best_first_layer():
    train, test = first_layer.examples("digits", None)
    given = dataclasses.replace(first_layer.settings()["digits MLP 0.1"], rounds=1, clients=3)
    diversity, clients, ends = first_layer.measure(given, train, test, 0)
    assert (len(diversity), clients, len(ends)) == (3, 3, 4)
    # In its first round every one of them is FedAvg.
    assert len(set(ends)) == 1
    rows = [
        ([0.1, 0.1, 0.9], 10, [0.5, 0.6, 0.9, 0.4]),
        ([0.9, 0.9, 0.9], 10, [0.5, 0.7, 0.8, 0.4]),
    ]
    found = first_layer.behind(rows)
    assert found["the last layer"] == 0.0
    assert np.isclose(found["no layer (FedAvg)"], (0.5 + 0.4) / 2)
    assert np.isclose(found["averaging keeps less than half"], (0.0 + 0.3) / 2)
