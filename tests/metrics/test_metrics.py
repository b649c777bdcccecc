"""A metric says which way it is better, and figures over seeds are printed one way."""

import pytest

import holdfast as hf
from holdfast.metrics import figures
from holdfast.metrics.spread import best
from holdfast.record.identity import describe

Spread = hf.metrics.Spread
HIGH = (
    "accuracy",
    "train_average_accuracy",
    "personal_accuracy_worst_tenth",
    "validation_balanced_accuracy",
    "top_5_accuracy",
    "top5_accuracy",
    "accuracy_top_5",
    "recall_at_10",
    "test_ndcg@10_worst_tenth",
    "Macro-F1",
    "f1_score",
    "val/AUC",
    "mean_average_precision",
    "r2",
    "log_likelihood",
)
LOW = (
    "loss",
    "train_hinge_loss",
    "error",
    "validation_personal_error_worst_tenth",
    "error_rate",
    "mean_absolute_error",
    "squared_error",
    "MSE",
    "personal_mae",
    "rmse",
    "perplexity",
    "brier_score",
    "expected_calibration_error",
    "negative_log_likelihood",
)


@pytest.mark.parametrize("column", HIGH)
def test_greater_is_better(column):
    assert hf.metrics.greater_is_better(column)


@pytest.mark.parametrize("column", LOW)
def test_less_is_better(column):
    assert not hf.metrics.greater_is_better(column)


@pytest.mark.parametrize("column", ["oddity", "bytes_up", "loss_of_weight", "glossy", "terror", ""])
def test_a_name_nobody_knows_is_refused_in_one_line(column):
    assert hf.metrics.find(column) is None
    with pytest.raises(hf.HoldfastError, match=r"hf\.Model\(greater_is_better=") as caught:
        hf.metrics.greater_is_better(column)
    assert "\n" not in str(caught.value)
    assert f"`{column}`" in str(caught.value)


def test_what_is_declared_comes_first():
    declared = {"oddity": False, "accuracy": False, "Return (%)": True, "rate": True}
    ask = hf.metrics.greater_is_better
    assert not ask("validation_personal_oddity_worst_tenth", declared)
    assert not ask("train_accuracy", declared)
    assert ask("average_Return (%)", declared)
    assert not ask("error_rate", declared)  # the longer name is meant
    assert ask("train_rate", (("rate", True),))
    assert hf.metrics.find("train_oddity", declared).name == "oddity"


def test_names_of_the_room_are_plain_and_different():
    names = [metric.name for metric in hf.metrics.STANDARD]
    assert len(set(names)) == len(names)
    for metric in hf.metrics.STANDARD:
        assert hf.metrics.find(f"train_{metric.name}") == metric
        assert metric.title


def model(**changes):
    return hf.Model(init=str, loss=len, **changes)


def test_a_model_declares_directions_and_still_has_a_hash():
    one = model(greater_is_better={"waste": False, "profit": True})
    assert one.greater_is_better == (("profit", True), ("waste", False))
    assert one == model(greater_is_better={"profit": True, "waste": False})
    assert hash(one) == hash(model(greater_is_better=one.greater_is_better))
    assert one != model()
    assert model() == model(greater_is_better={})
    assert describe(one) == describe(model())  # a checkpoint of one is a checkpoint of the other


@pytest.mark.parametrize("wrong", [True, "loss", ["loss"], {"loss": "low"}, {1: True}])
def test_what_is_no_direction_is_refused(wrong):
    with pytest.raises(hf.HoldfastError, match="give True or False by the name of the metric"):
        model(greater_is_better=wrong)


def test_the_area_under_the_curve_is_in_both_rooms():
    assert hf.metrics.auc is hf.models.auc


def test_the_best_of_several():
    spreads = [Spread((2.0, 2.0)), Spread((1.0, None)), Spread((3.0,)), Spread((float("inf"),))]
    assert best(spreads, greater_is_better=True) == 2
    assert best(spreads, greater_is_better=False) == 0
    assert best(spreads[1:2], greater_is_better=True) is None


def test_figures_are_printed_one_way():
    seeds = Spread((12, 13))
    assert figures.in_figures(seeds, digits=0) == "12 ± 1"
    assert figures.in_figures(seeds, digits=0, between="±") == "12±1"
    assert figures.in_figures(Spread((float("inf"), 1.0))) == "inf"
    assert figures.in_figures(Spread((None, None)), "> 100") == "> 100"
    assert figures.saving(Spread((5,)), Spread((0,))) == "-"
    assert figures.in_columns([["a", "loss"], ["10", "1"]]) == " a  loss\n10     1"
