"""The studies run, in small; their full results are in `papers/*/README.md`."""

import dataclasses
import json

import numpy as np
from jax import tree

from papers.fedpvr import drift, first_layer
from papers.flix import claims, figure4, logistic
from papers.flix.curves import DCGD, DIANA, GD, Curve
from papers.flix.logistic import Sweep
from papers.mixed import common, dissimilarity, embeddings, imbalance, text
from papers.study import Asked, Verdict


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
