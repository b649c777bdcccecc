"""The studies run, in small; their full results are in `papers/*/README.md`."""

import dataclasses
import json

import numpy as np

from papers.fedpvr import drift, first_layer
from papers.fedpvr import runs as fedpvr
from papers.flix import claims, figure4, logistic
from papers.flix.curves import DCGD, DIANA, GD, Curve
from papers.flix.logistic import Sweep
from papers.study import Asked, Verdict


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


def test_smaller_alpha_needs_fewer_rounds_and_diana_does_not_stall(tmp_path):
    """Figures 2, 3 and 9 of FLIX in small, on generated data."""
    task = logistic.Task(
        l2=0.1,
        tolerance=1e-6,
        accuracy=1e-6,
        relative=False,
        clients=8,
        sweeps=(
            Sweep(GD, (0.1, 1.0), 60),
            Sweep(DIANA, (0.9,), 200, (2,)),
            Sweep(DCGD, (0.9,), 100, (2,)),
        ),
        most=200,
    )
    arguments = ("ijcnn1", dataclasses.asdict(task))
    found = logistic.curves(*arguments, asked=Asked(quick=True), folder=tmp_path)
    curves = [Curve.read(kept) for kept in found["curves"]]
    small, large, diana, dcgd = curves
    assert 0 < small.needed < large.needed
    assert diana.end < 1e-9 < 1e-6 < dcgd.end
    assert all(curve.gap[0] <= curve.promise.first_gap for curve in curves)
    assert dcgd.end < dcgd.promise.limit
    # All of it was kept in the folder, so that nothing is run again.
    (tmp_path / "curves.json").write_text(json.dumps([None] * len(curves)))
    again = logistic.curves(*arguments, asked=Asked(quick=True), folder=tmp_path)
    assert again["curves"] == [None] * len(curves)


def test_what_the_paper_says_in_words_is_judged_claim_by_claim():
    holds, mixed = {"a": True}, {"a": True, "b": False}
    assert claims.verdict({}) is Verdict.NOT_RUN
    assert claims.verdict(holds) is Verdict.AGREES
    assert claims.verdict(holds, elsewhere=True) is Verdict.ORDER
    assert claims.verdict(mixed) is Verdict.DISAGREES
    assert claims.broken(mixed) == "Does not hold: b. Holds: a."
    assert claims.broken(holds) == ""


def test_a_mixture_of_networks_is_better_where_it_wins_on_every_draw():
    errors = np.array([[2.0, 1.0, 3.0], [2.0, 1.5, 3.0]])
    assert np.allclose(figure4.gains(errors), [0.5, 0.75])
    assert figure4.verdict(figure4.gains(errors)) is Verdict.AGREES
    assert figure4.verdict(np.array([0.9, 0.95])) is Verdict.ORDER
    assert figure4.verdict(np.array([0.5, 1.1])) is Verdict.DISAGREES


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
