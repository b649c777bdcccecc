"""The studies run, in small; their full results are in `papers/*/README.md`."""

import dataclasses

import numpy as np
from jax import tree

from papers.fedpvr import drift, first_layer
from papers.fedpvr import runs as fedpvr
from papers.flix import logistic
from papers.fsl.study import compare_on_classes
from papers.mixed import common, dissimilarity, embeddings, imbalance, text
from papers.study import Asked, Verdict


def test_server_learning_is_faster_on_one_class_per_client():
    curves = compare_on_classes(classes=(1,), seeds=1, rounds=20)
    best = {c.method: float(c.accuracy.max()) for c in curves}
    assert best["FSL"] > best["FL"] + 0.1


def test_unlike_clients_drift_apart_in_the_last_layer(tmp_path):
    digits = next(setting for setting in drift.SETTINGS if setting.name == "digits")
    found = {}
    for run in ("like", "fedavg"):
        cell = drift.cell(digits, run, seed=0)
        values = {**cell.args[0], "rounds": 5}
        found[cell.name] = drift.elsewhere(values, asked=Asked(), folder=tmp_path / run)
    (by_layer,) = drift.by_layer(digits, found, "fedavg", "drift_diversity")
    assert by_layer[-1] > by_layer[0]
    (like,) = drift.by_layer(digits, found, "like", "cka")
    (unlike,) = drift.by_layer(digits, found, "fedavg", "cka")
    assert like[-1] > unlike[-1]
    assert "| classifier |" in drift.table(found)


def test_mixing_solves_label_imbalance():
    found = imbalance.compare(seeds=1, rounds=20)
    final = {method: float(auc[:, -1].mean()) for method, auc in found.auc.items()}
    for method in common.MIXED:
        assert final[method] > final[common.FEDERATED] + 0.2


def test_only_the_corrected_transfer_has_no_bias(x64):
    unequal = dissimilarity.problem(distance=4.0, unequal=True)
    gaps = {m: dissimilarity.final_gap(m, unequal, rounds=120) for m in dissimilarity.METHODS}
    exact = gaps.pop("SCAFFOLD + 1-way")
    assert exact < 1e-9
    assert min(gaps.values()) > 1e-4


def test_select_saves_bytes_and_loses_nothing():
    found = embeddings.compare(rounds=12, users=25)
    for full, small in (
        (embeddings.FULL, embeddings.PARALLEL_SELECT),
        (embeddings.ONE_WAY_FULL, embeddings.ONE_WAY_SELECT),
    ):
        assert abs(found.recall[full][-1] - found.recall[small][-1]) < 0.02
        assert sum(found.kilobytes[small]) < 0.5 * sum(found.kilobytes[full])


def test_the_text_study_runs_on_generated_sources():
    around = text.world(None, authors=8)
    arguments = text.arguments(common.ONE_WAY, around) | {"model": text.model()}
    run = common.simulate(common.silent, common.ONE_WAY, rounds=1, **arguments)
    assert all(np.isfinite(leaf).all() for leaf in tree.leaves(run.params))
    assert run.ledger.models_transmitted == 1.5


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


def test_rules_are_judged_by_the_best_first_layer(tmp_path):
    (values, split) = first_layer.cell("digits MLP 0.1", 0).args
    values = {**values, "rounds": 1, "clients": 3}
    one = first_layer.measure(values, split, asked=Asked(), folder=tmp_path)
    assert (len(one["diversity"]), one["clients"], len(one["ends"])) == (3, 3, 4)
    # In its first round every one of them is FedAvg.
    assert len(set(one["ends"])) == 1
    kept = [
        {"diversity": [0.1, 0.1, 0.9], "clients": 10, "ends": [0.5, 0.6, 0.9, 0.4]},
        {"diversity": [0.9, 0.9, 0.9], "clients": 10, "ends": [0.5, 0.7, 0.8, 0.4]},
    ]
    found = first_layer.behind(kept)
    assert found["the last layer"] == 0.0
    assert np.isclose(found["FedAvg"], (0.5 + 0.4) / 2)
    assert np.isclose(found["averaging keeps less than half"], (0.0 + 0.3) / 2)


def test_orders_of_methods_are_compared_pair_by_pair():
    """The same, the other way round, or a tie where draws do not tell them apart."""
    paper = {"fedavg": 69.3, "fedprox": 69.5, "scaffold": 74.1, "fedpvr": 78.2}
    ours = {
        "fedavg": [40.0, 41.0, 42.0],
        "fedprox": [50.0, 50.0, 50.0],
        "scaffold": [44.0, 45.0, 46.5],
        "fedpvr": [44.0, 47.0, 45.0],
    }
    found = fedpvr.pairs(paper, ours, apart=1.0)
    assert found == {
        ("scaffold", "fedavg"): "same",
        ("scaffold", "fedprox"): "opposite",
        ("fedpvr", "fedavg"): "same",
        ("fedpvr", "fedprox"): "opposite",
        ("fedpvr", "scaffold"): "tie",
    }
    assert fedpvr.verdict(found) is Verdict.DISAGREES
    without = {pair: how for pair, how in found.items() if "fedprox" not in pair}
    assert fedpvr.verdict(without) is Verdict.ORDER
    assert fedpvr.verdict({("scaffold", "fedavg"): "tie"}) is Verdict.DISAGREES
    assert fedpvr.verdict({}) is Verdict.NOT_RUN
    # Who never got there is behind who did, and two who did not are a tie.
    never = fedpvr.pairs(
        {"fedpvr": -27.0, "fedavg": -55.0}, {"fedpvr": [-9.0], "fedavg": [-np.inf]}, apart=3.0
    )
    assert never == {("fedpvr", "fedavg"): "same"}
    neither = {"fedpvr": [-np.inf, -np.inf], "fedavg": [-np.inf, -np.inf]}
    assert set(fedpvr.pairs({"fedpvr": -27.0, "fedavg": -55.0}, neither, 3.0).values()) == {"tie"}


def test_a_run_that_diverges_is_told_as_one(tmp_path):
    """At this rate not one client returns finite numbers after a round or two."""
    values = {**fedpvr.settings("scaffold", 0.1, 0, quick=True), "rate": 1e8}
    found = fedpvr.run(values, asked=Asked(quick=True), folder=tmp_path)
    assert len(found["accuracy"]) == values["rounds"]
    assert found["accuracy"][-1] is None
    assert "sets" not in found
    assert np.isclose(fedpvr.last(found["accuracy"]), 0.1)
