"""The verdict on made-up predictions: what is told apart, what is not, and who is harmed."""

import dataclasses

import numpy as np
import pytest

from holdfast.record.history import History
from holdfast.runs.compare import notes
from holdfast.runs.differences import Judged, difference, judged_by, score
from holdfast.runs.predictions import Predictions
from holdfast.runs.results import MethodResult, Results
from holdfast.runs.verdict import verdict

NAMES = ("cleveland", "hungary", "switzerland", "va")
SIZES = (60, 60, 9, 40)


@dataclasses.dataclass(frozen=True)
class Files:
    """A seed folder that holds what it is given."""

    seed: int
    given: Predictions
    split: int | None = None

    def predictions(self):
        return self.given

    def mask(self):
        return None


def predicted(shares, seed, sizes=SIZES, names=NAMES, split=0):
    """Rows that are right with these probabilities; harder rows are harder for every method."""
    client = np.repeat(np.arange(len(sizes)), sizes)
    hard = np.random.default_rng([9, split]).random(len(client))
    noise = np.random.default_rng([1, seed, split]).normal(0, 0.02, len(client))
    right = (hard + noise < np.asarray(shares)[client]).astype(np.float32)
    label = np.zeros(len(client), np.int32)
    return Predictions(
        client, np.arange(len(client)), label, None, {"accuracy": right, "loss": 1 - right}, {}
    )


def method(label, shares, role="federated", seeds=(0, 1, 2), splits=(None,), history=None, **how):
    keys = [(split, seed) for split in splits for seed in seeds]
    files = tuple(Files(s, predicted(shares, s, split=k or 0, **how), k) for k, s in keys)
    records = history or [{"round": 1, "accuracy": 0.5, "loss": 1.0}]
    clients = {"client": list(range(len(SIZES))), "name": list(NAMES)}
    return MethodResult(
        label,
        tuple(History(tuple(records)) for _ in keys),
        (clients,) if not how else (),
        complete=True,
        role=role,
        files=files,
    )


def study(*methods, metric="accuracy"):
    return Results(methods, metric, None, ())


ALONE = method("local_only", [0.6, 0.6, 0.6, 0.6], "alone")


def test_a_clear_gain_is_told_with_its_interval_and_pooled_data_beside_it():
    found = verdict(
        study(
            method("feddyn", [0.8, 0.8, 0.8, 0.8]),
            ALONE,
            method("centralised", [0.801, 0.8, 0.8, 0.8], "pooled"),
        )
    )
    gain = found.gain.gain
    assert 0 < gain.low < gain.estimate < gain.high
    assert found.chosen.value - found.alone.value == pytest.approx(gain.estimate)
    assert found.sentence.startswith("Training together is worth it here: federated (FedDyn) 0.")
    assert (
        f"{gain.estimate:+.3f} (95 % interval {gain.low:+.3f} to {gain.high:+.3f})"
        in found.sentence
    )
    assert "over 4 sites; pooled 0." in found.sentence
    assert found.sentence.endswith("cannot be told apart.")
    assert "Few test rows: 9 at switzerland." in found.sentences
    assert not any("flatters" in sentence for sentence in found.sentences)


def test_no_difference_is_not_told_apart_and_a_loss_is_called_one():
    same = verdict(study(method("fedavg", [0.61, 0.6, 0.6, 0.6]), ALONE))
    assert same.gain.gain.includes_zero
    assert same.sentence.startswith("Whether training together is worth it cannot be told")
    worse = verdict(study(method("fedavg", [0.4, 0.4, 0.4, 0.4]), ALONE))
    assert worse.gain.gain.high < 0
    assert worse.sentence.startswith("Training together is not worth it here: ")


def test_sites_that_are_harmed_are_named():
    found = verdict(study(method("fedavg", [0.9, 0.9, 0.6, 0.3]), ALONE))
    assert [site.name for site in found.sites if site.harmed] == ["va"]
    assert "It harms va (-0." in found.text
    assert "and helps cleveland (+0." in found.text
    assert [site.rows for site in found.sites] == list(SIZES)


def test_who_did_not_train_alone_is_told_what_to_add():
    found = verdict(study(method("fedavg", [0.8, 0.8, 0.8, 0.8])))
    assert "add local_only to the file to see what sites have alone" in found.sentence
    assert found.gain is None
    assert verdict(study(ALONE)) is None


def test_who_trained_nothing_is_not_compared_with_being_alone():
    made = method("fedavg", [0.9, 0.85, 0.8, 0.8])
    (about,) = made.clients
    unseen = dataclasses.replace(made, clients=({**about, "examples": [60, 60, 9, 0]},))
    alone = method("local_only", [0.7, 0.6, 0.6, 0.1], "alone")
    alone = dataclasses.replace(alone, clients=unseen.clients)
    results = study(unseen, alone)
    assert any(
        note.startswith("local_only: who trained nothing") for note in notes(results, unseen)
    )
    assert not any("trained nothing" in note for note in notes(study(made, ALONE), made))
    found = verdict(results)
    assert (found.alone, found.gain, found.untrained) == (None, None, ("va",))
    assert "va trained nothing, so there is no alone to compare with" in found.sentence
    assert all(site.gain is None for site in found.sites)


def test_a_choice_on_the_test_rows_is_said_and_allowed_for():
    several = [method(f"m{i}", [0.7 + i / 100] * 4) for i in range(5)]
    found = verdict(study(*several, ALONE))
    assert found.chosen.label == "m4"
    assert "m4 is the best of 5 methods on these same test rows, which flatters it" in found.text
    assert found.allowing.low < found.gain.gain.low
    assert found.allowing.high > found.gain.gain.high
    # An answer that only the choice makes sure is none.
    slight = [method(f"m{i}", [0.6 + (i == 99) / 65] * 4) for i in range(100)]
    found = verdict(study(*slight, ALONE))
    assert found.gain.told_apart
    assert found.allowing.includes_zero
    assert found.sentence.startswith("Whether training together is worth it cannot be told")


def test_a_choice_on_validation_rows_is_taken():
    def with_validation(label, shares, value):
        return method(
            label, shares, history=[{"round": 1, "accuracy": 0.5, "validation_accuracy": value}]
        )

    found = verdict(
        study(with_validation("a", [0.7] * 4, 0.9), with_validation("b", [0.8] * 4, 0.8))
    )
    assert found.chosen.label == "a"
    assert found.by_validation
    assert "a was chosen among 2 methods on validation rows." in found.sentences


def test_the_best_personal_method_stands_beside_the_best_federated_one():
    found = verdict(
        study(method("fedavg", [0.7] * 4), method("flix", [0.85] * 4, "personal"), ALONE)
    )
    assert found.federated.label == "fedavg"
    assert found.personal.label == found.chosen.label == "flix"
    assert found.own.told_apart
    assert ": personal (FLIX) 0." in found.sentence


def test_a_loss_is_better_low_and_its_difference_has_its_sign():
    found = verdict(study(method("feddyn", [0.8] * 4), ALONE, metric="loss"))
    assert found.gain.gain.estimate > 0
    assert ", -0.2" in found.sentence
    assert "cannot be told apart" not in found.sentence


def test_personal_metrics_count_clients_alike():
    uneven = method("fedavg", [1.0, 1.0, 0.0, 0.0])
    by_rows = score(uneven, judged_by(study(uneven))).value
    by_clients = score(uneven, judged_by(study(uneven, metric="personal_accuracy"))).value
    assert by_rows == pytest.approx(120 / 169, abs=0.02)
    assert by_clients == pytest.approx(0.5, abs=0.02)


def test_methods_asked_about_other_rows_are_not_compared():
    one = method("a", [0.8] * 4)
    other = method("b", [0.8] * 3, sizes=(60, 60, 9))
    assert difference(one, other, Judged("accuracy", False, True)) is None


def test_over_splits_of_their_own_rows_the_interval_is_over_splits():
    by = Judged("accuracy", False, True)
    one = method("a", [0.8] * 4, splits=(0, 1, 2))
    other = method("b", [0.7] * 4, splits=(0, 1, 2))
    several = difference(one, other, by, tested_per_trained=0.25)
    assert (several.splits, several.seeds, several.rows) == (3, 3, sum(SIZES))
    each = [
        difference(
            dataclasses.replace(one, files=one.files[3 * k : 3 * k + 3]),
            dataclasses.replace(other, files=other.files[3 * k : 3 * k + 3]),
            by,
        ).gain.estimate
        for k in range(3)
    ]
    assert several.gain.estimate == pytest.approx(np.mean(each))
    half = 4.302653 * np.sqrt((1 / 3 + 0.25) * np.var(each, ddof=1))
    assert several.gain.high - several.gain.estimate == pytest.approx(half, rel=1e-5)
    shared = difference(one, other, by)
    assert shared.gain.estimate == several.gain.estimate
    assert shared.gain.high != several.gain.high


def test_a_metric_of_whole_sets_is_judged_by_the_bootstrap():
    """AUC of two methods, one of which sees more: against scikit-learn, and with an interval around it."""
    from sklearn.metrics import roc_auc_score

    def ranked(label, strength, role="federated"):
        rng = np.random.default_rng(4)
        client = np.repeat(np.arange(4), SIZES)
        truth = rng.integers(0, 2, len(client))
        hidden = rng.normal(size=len(client))
        score_of = 1 / (1 + np.exp(-(strength * (2 * truth - 1) + hidden)))
        rows = np.arange(len(client))
        given = Predictions(
            client, rows, truth, score_of.astype(np.float32), {"loss": np.ones(len(client))}, {}
        )
        records = History(({"round": 1, "auc": 0.5, "loss": 1.0},))
        made = MethodResult(label, (records,), (), True, role=role, files=(Files(0, given),))
        return made, roc_auc_score(truth, score_of)

    (one, high), (other, low) = ranked("fedavg", 1.2), ranked("local_only", 0.3, "alone")
    both = study(one, other, metric="auc")
    assert judged_by(both).metric == "auc"
    found = verdict(both)
    assert found.chosen.value == pytest.approx(high, abs=1e-6)
    assert found.gain.gain.estimate == pytest.approx(high - low, abs=1e-6)
    assert 0 < found.gain.gain.low < high - low < found.gain.gain.high < 0.5
    assert "AUC, alone" in found.sentence
    alike = verdict(study(one, other, metric="personal_auc"))
    each = [own.estimate for own in alike.chosen.by_client.values()]
    assert alike.chosen.value == pytest.approx(np.mean(each))
    assert verdict(both).gain == found.gain


def test_a_metric_of_ones_own_gives_way_to_one_of_rows():
    one = method("fedavg", [0.8] * 4, history=[{"round": 1, "accuracy": 0.5, "regret": 1.0}])
    found = verdict(study(one, ALONE, metric="regret"))
    assert found.by.metric == "accuracy"
    assert "By accuracy: regret cannot be told from predictions alone." in found.sentences
