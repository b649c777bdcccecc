"""Names, ends of the scale, the model before training and the setting: what stands around the numbers."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.report import curves
from holdfast.report.appearance import Appearance, names_of, range_of
from holdfast.report.content import content
from tests.report import made_up


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    return made_up.with_ends(tmp_path_factory.mktemp("runs") / "ends")


@pytest.fixture(scope="module")
def values(ends):
    return content(ends)


def test_ends_of_the_scale_win_nothing(ends, values):
    assert [m["reference"] for m in values["methods"]] == [True, False, False, True]
    assert {h["title"]: h["method"] for h in values["highlights"]} == {
        "Fewest rounds to the target": 2,
        "Least traffic to the target": 2,
        "Highest final accuracy": 2,
        "Best accuracy of the worst tenth": 2,
    }
    assert values["baseline"] == "FedAvg"
    assert values["summary"].startswith("2 methods ran 20 rounds")
    assert "Centralised" not in values["summary"]
    assert ends.baseline().label == "fedavg"


def test_a_reference_alone_is_spoken_of(tmp_path):
    folder = made_up.begin(tmp_path / "alone", ["local_only"])
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0), made_up.client_results(0))
    made = content(made_up.results.load([tmp_path / "alone"]))
    assert made["summary"].startswith("Local only ran 20 rounds")


def test_curves_begin_with_the_model_before_training(ends, values):
    curve = curves.curve(curves.measured(ends.methods[1]), "accuracy")
    assert (curve.rounds[0], curve.mean[0]) == (0, pytest.approx(0.1))
    assert (curve.megabytes[0], curve.seconds[0], curve.megabytes[1]) == (0, 0, 1.5)
    # The history has rounds alone: what it took is counted from the first.
    assert len(ends.methods[1].histories[0]) == 20
    assert values["table"]["rows"][1][0]["text"] == "3 ± 0"


def test_equal_seeds_have_no_deviation(ends):
    curve = curves.curve(curves.measured(ends.methods[2]), "accuracy")
    assert (curve.deviation == 0).all()
    assert ends.methods[2].last("accuracy").deviation == 0


def test_methods_and_metrics_have_names(ends):
    own = Appearance(names={"fedavg": "Ours", "accuracy": "share of right answers"})
    made = content(ends, own)
    assert [m["name"] for m in made["methods"]] == [
        "Local only",
        "Ours",
        "FedDyn, alpha 0.1",
        "Centralised",
    ]
    assert made["names"]["accuracy"] == "share of right answers"
    assert "FedDyn, alpha 0.1 reached share of right answers 0.7" in made["summary"]


def test_names_and_ranges_of_the_command_line(ends):
    assert names_of(["feddyn alpha=0.1=FedDyn (ours)", "accuracy=hits"], ends) == {
        "feddyn alpha=0.1": "FedDyn (ours)",
        "accuracy": "hits",
    }
    with pytest.raises(HoldfastError, match=r"--names fedavgs=x: no method and no metric"):
        names_of(["fedavgs=x"], ends)
    with pytest.raises(HoldfastError, match=r"--range 1: no two numbers"):
        range_of("1")
    with pytest.raises(HoldfastError, match=r"range 1 to 0.9 is empty"):
        Appearance(range=range_of("1:0.9"))
    with pytest.raises(HoldfastError, match=r"width 300; give inches"):
        Appearance(width=300)


def test_the_round_that_is_kept_is_said(tmp_path):
    folder = made_up.begin(tmp_path / "stopped", ["feddyn alpha=0.1"], target=None)
    chosen = {
        "metric": "validation_accuracy",
        "best_round": 7,
        "value": 0.3,
        "stopped": "no better",
    }
    chosen |= {"kept_round": 7, "last_round": 20}
    clients = made_up.client_results(0)
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0), clients, chosen=chosen)
    made = content(made_up.results.load([tmp_path / "stopped"]))
    assert made["methods"][0]["kept"] == [7]
    assert made["methods"][0]["final"] == pytest.approx(0.28)
    said = "FedDyn, alpha 0.1: round 7 kept, by validation_accuracy; 1 of 1 runs ended early."
    assert said in made["notes"]


def test_the_setting_is_in_words(values):
    facts = {fact["about"]: fact["text"] for fact in values["settings"][0]["facts"]}
    assert facts["Data"].startswith("digits. scikit-learn's 1,797 handwritten digits")
    assert facts["Clients"].startswith("12, with ")
    assert facts["Length"] == "20 rounds, 1 seed"
