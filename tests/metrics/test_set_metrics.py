"""Metrics of a whole set are scikit-learn's."""

import subprocess
import sys

import numpy as np
import pytest
import sklearn.metrics as sk
from sklearn.calibration import calibration_curve

import holdfast as hf
from holdfast.metrics import sets


def made_up(classes, n=200, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    scores = rng.normal(size=(n, classes)) + 1.5 * (labels[:, None] == np.arange(classes))
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    # As a model in 32 bits puts them out.
    return labels, probabilities.astype(np.float32).astype(np.float64)


def value(name, labels, predictions):
    return hf.metrics.named(name).of(labels, predictions)


def binned_error(right, confidence):
    often, sure = calibration_curve(right, confidence, n_bins=10)
    sizes, _ = np.histogram(confidence, bins=np.linspace(0, 1, 11))
    return float(np.sum(sizes[sizes > 0] / len(right) * abs(often - sure)))


BINARY = {
    "auc": lambda y, p: sk.roc_auc_score(y, p),
    "average_precision": lambda y, p: sk.average_precision_score(y, p),
    "f1_macro": lambda y, p: sk.f1_score(y, p > 0.5, average="macro"),
    "f1_binary": lambda y, p: sk.f1_score(y, p > 0.5),
    "precision": lambda y, p: sk.precision_score(y, p > 0.5),
    "recall": lambda y, p: sk.recall_score(y, p > 0.5),
    "sensitivity": lambda y, p: sk.recall_score(y, p > 0.5),
    "specificity": lambda y, p: sk.recall_score(y, p > 0.5, pos_label=0),
    "balanced_accuracy": lambda y, p: sk.balanced_accuracy_score(y, p > 0.5),
    "accuracy": lambda y, p: sk.accuracy_score(y, p > 0.5),
    "brier": lambda y, p: sk.brier_score_loss(y, p),
    "expected_calibration_error": lambda y, p: binned_error(
        (p > 0.5) == (y == 1), np.maximum(p, 1 - p)
    ),
}


@pytest.mark.parametrize("name", BINARY)
def test_of_two_classes(name):
    labels, probabilities = made_up(2)
    p = probabilities[:, 1]
    expected = BINARY[name](labels, p)
    assert value(name, labels, p) == pytest.approx(expected, abs=1e-6)
    # A model with a column for either class says the same.
    assert value(name, labels, probabilities) == pytest.approx(expected, abs=1e-6)


SEVERAL = {
    "auc": lambda y, p: sk.roc_auc_score(y, p / p.sum(1, keepdims=True), multi_class="ovr"),
    "average_precision": lambda y, p: sk.average_precision_score(y, p),
    "f1_macro": lambda y, p: sk.f1_score(y, p.argmax(1), average="macro"),
    "balanced_accuracy": lambda y, p: sk.balanced_accuracy_score(y, p.argmax(1)),
    "accuracy": lambda y, p: sk.accuracy_score(y, p.argmax(1)),
    "brier": lambda y, p: sk.brier_score_loss(y, p / p.sum(1, keepdims=True)),
    "top_2_accuracy": lambda y, p: sk.top_k_accuracy_score(y, p, k=2),
    "expected_calibration_error": lambda y, p: binned_error(p.argmax(1) == y, p.max(1)),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_of_several_classes(name):
    labels, probabilities = made_up(4)
    expected = SEVERAL[name](labels, probabilities)
    assert value(name, labels, probabilities) == pytest.approx(expected, abs=1e-6)


REGRESSION = {
    "r2": sk.r2_score,
    "absolute_error": sk.mean_absolute_error,
    "mae": sk.mean_absolute_error,
    "squared_error": sk.mean_squared_error,
    "mse": sk.mean_squared_error,
    "rmse": sk.root_mean_squared_error,
}


@pytest.mark.parametrize("name", REGRESSION)
def test_of_a_regression(name):
    rng = np.random.default_rng(1)
    labels = rng.normal(size=50)
    numbers = labels + rng.normal(size=50)
    assert value(name, labels, numbers) == pytest.approx(
        REGRESSION[name](labels, numbers), abs=1e-6
    )


def test_every_one_is_compared_above():
    tested = {*BINARY, *SEVERAL, *REGRESSION} - {"top_2_accuracy"}
    from holdfast.metrics.by_name import OF_SETS

    assert set(OF_SETS) - tested == {"auroc", "ece"}  # other names of two of them
    assert hf.metrics.named("auroc").of is sets.auc
    assert hf.metrics.named("ece").of is sets.expected_calibration_error


def test_a_set_may_have_no_such_value():
    one_class, p = np.ones(5, int), np.linspace(0.1, 0.9, 5)
    assert value("auc", one_class, p) is None
    assert value("average_precision", one_class, p) is None
    assert value("f1_binary", np.zeros(5, int), np.full(5, 0.1)) is None
    assert value("specificity", one_class, p) is None
    assert value("r2", np.array([1.0]), np.array([2.0])) is None
    # Others have one all the same.
    assert value("brier", one_class, p) == pytest.approx(np.mean((1 - p) ** 2))
    assert value("balanced_accuracy", one_class, p) == pytest.approx(0.4)


def test_classes_that_are_not_there_are_in_no_mean():
    labels, probabilities = made_up(4)
    some = labels != 3
    there = [sk.roc_auc_score(labels[some] == c, probabilities[some, c]) for c in range(3)]
    assert value("auc", labels[some], probabilities[some]) == pytest.approx(
        np.mean(there), abs=1e-12
    )


def test_names_that_nobody_computes():
    with pytest.raises(hf.HoldfastError, match="did you mean `f1_macro`"):
        hf.metrics.named("f1_makro")
    with pytest.raises(hf.HoldfastError, match="is not computed of predictions"):
        hf.metrics.named("top_0_accuracy")


def test_own_functions_say_which_way_they_are_better():
    def regret(labels, predictions):
        return 0.0

    with pytest.raises(hf.HoldfastError, match=r"regret.*nobody said whether greater is better"):
        hf.metrics.as_metric(regret)
    assert hf.metrics.as_metric(regret, greater_is_better=False).greater_is_better is False
    declared = hf.metrics.declare(greater_is_better=True)(regret)
    assert hf.metrics.as_metric(declared).greater_is_better is True

    def weighted_error(labels, predictions):
        return 0.0

    assert hf.metrics.as_metric(weighted_error).greater_is_better is False  # by its name
    with pytest.raises(hf.HoldfastError, match="give a list, such as metrics="):
        hf.evaluate.on(None, metrics="auc")
    with pytest.raises(hf.HoldfastError, match="`auc` is there twice"):
        hf.evaluate.on(None, metrics=["auc", "auc"])
    with pytest.raises(hf.HoldfastError, match="metrics: 3 is a int"):
        hf.evaluate.on(None, metrics=[3])


def test_nothing_is_imported_before_it_is_computed():
    code = "import sys, holdfast.metrics; assert 'sklearn.metrics' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
