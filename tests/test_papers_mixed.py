"""What the studies of mixed federated learning rest on, in small; in full it is in papers/mixed/README.md."""

import numpy as np
from jax import tree

import holdfast as hf
from papers.mixed import dissimilarity, imbalance, movielens, runs, text
from papers.study import Asked, Verdict

QUICK = Asked(quick=True)


def test_mixing_solves_label_imbalance(tmp_path):
    changes = {
        "rounds": 20,
        "cohort": 10,
        "rate": 0.3,
        "steps": 5,
        "every": 20,
        "central_batch": 50,
    }
    final = {}
    for method in (runs.FEDERATED, *runs.MIXED):
        settings = imbalance.settings_of(method, 0, **changes)
        final[method] = imbalance.run(settings, asked=QUICK, folder=tmp_path)["auc"][-1]
    assert min(final[m] for m in runs.MIXED) > final[runs.FEDERATED] + 0.2


def test_only_the_corrected_transfer_has_no_bias(x64):
    unequal = dissimilarity.problem(distance=4.0, unequal=True)
    gaps = {m: dissimilarity.final_gap(m, unequal, rounds=120) for m in dissimilarity.METHODS}
    exact = gaps.pop(dissimilarity.SCAFFOLD)
    assert exact < 1e-9
    assert min(gaps.values()) > 1e-4


def test_select_saves_bytes_and_loses_nothing():
    for method in (runs.PARALLEL, runs.ONE_WAY):
        settings = movielens.settings_of(method, 0, quick=True)
        clients, _, test = movielens.world(settings, QUICK)
        own = movielens.arguments(settings)
        found = {
            select: hf.simulate(
                rounds=6,
                clients=clients,
                cohort=hf.cohorts.fixed(5),
                evaluate=hf.evaluate.on(test, every=6),
                **own | {"select": select},
            )
            for select in (True, False)
        }
        recall = {select: one.history["recall_at_10"][-1] for select, one in found.items()}
        assert abs(recall[True] - recall[False]) < 0.02
        assert found[True].ledger.total < 0.8 * found[False].ledger.total


def test_text_is_generated_where_it_is_not_asked_for():
    settings = text.settings_of(runs.ONE_WAY, 0)
    around = text.world(settings, QUICK)
    model = hf.models.gru(text.CHARACTERS + 1, 4, 8)
    run = hf.simulate(rounds=1, model=model, **text.arguments(settings, around))
    assert all(np.isfinite(leaf).all() for leaf in tree.leaves(run.params))
    assert run.ledger.models_transmitted == 1.5


def test_the_sampled_dissimilarity_is_that_of_the_whole_data_where_batches_are_all_of_it():
    given = dissimilarity.problem(distance=2.0, unequal=True)
    sampled = runs.Sampled(given.clients, 10, 1, given.own, 1)
    whole = hf.diagnose.dissimilarity(0.5, 0.5)
    local = hf.Local(0.05, steps=1)
    run = hf.simulate(
        runs.mixed(runs.PARALLEL),
        dissimilarity.QUADRATIC,
        given.clients,
        local,
        2,
        server=hf.Server(given.own, local),
        evaluate=[sampled, whole],
    )
    assert np.allclose(run.history["G2"], run.history["G2_mixed"], rtol=1e-4)
    assert np.allclose(run.history["B2"], run.history["B2_mixed"], rtol=1e-4)


def test_a_column_of_table_4_agrees_within_a_factor_of_two():
    def verdict(g2, b2):
        found = [{"G2": [g2] * 20, "B2": [b2] * 20}]
        return runs.dissimilarity_row(found, "task", (49.0, 1.26)).verdict

    assert verdict(60.0, 1.5) is Verdict.AGREES
    assert verdict(200.0, 1.5) is Verdict.ORDER
    assert verdict(60.0, 700.0) is Verdict.DISAGREES
    assert verdict(0.5, 1.2) is Verdict.DISAGREES
