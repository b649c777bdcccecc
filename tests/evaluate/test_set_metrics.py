"""Metrics of whole sets, measured of models in rounds."""

import jax
import numpy as np
import pytest
import sklearn.metrics as sk

import holdfast as hf
from tests.problems import tiny_clients

BINARY = hf.models.logistic_regression()
LOCAL = hf.Local(0.3, steps=3, batch_size=4)
CLIENTS = tiny_clients(seed=1, classes=2)
TEST = tiny_clients(seed=9, classes=2, sizes=(40,), clients=1)[0]


def run(evaluate, model=BINARY, clients=CLIENTS, algorithm=None, **settings):
    algorithm = algorithm or hf.algorithms.fedavg()
    return hf.simulate(algorithm, model, clients, LOCAL, rounds=2, evaluate=evaluate, **settings)


@hf.metrics.declare(greater_is_better=False)
def cost(labels, predictions):
    return 5.0 * float(np.mean((labels == 1) & (predictions < 0.5)))


def test_of_the_servers_model():
    found = run(hf.evaluate.on(TEST, metrics=["auc", "brier", "accuracy", cost]))
    p = np.asarray(BINARY.predict(found.params, TEST), np.float64)
    last = found.history[-1]
    assert last["auc"] == pytest.approx(sk.roc_auc_score(TEST.y, p), abs=1e-6)
    assert last["brier"] == pytest.approx(sk.brier_score_loss(TEST.y, p), abs=1e-6)
    assert last["cost"] == cost(TEST.y, p)
    plain = run(hf.evaluate.on(TEST))
    assert last["accuracy"] == plain.history[-1]["accuracy"]  # the model's own
    assert dict(found.history.directions) == {"cost": False}
    assert found.history.rounds_to(5.0, "cost") == 1


def test_of_a_set_in_several_batches(monkeypatch):
    whole = run(hf.evaluate.on(TEST, metrics=["auc"]))
    monkeypatch.setattr(hf.evaluate.batches, "_LARGEST_BATCH", 16)
    parts = run(hf.evaluate.on(TEST, metrics=["auc"]))
    assert parts.history["auc"].tolist() == whole.history["auc"].tolist()


def test_of_averages():
    measured = [
        hf.evaluate.client_average(TEST, metrics=["auc"]),
        hf.evaluate.active_average(TEST, metrics=["auc"]),
    ]
    last = run(measured).history[-1]
    # Everybody took part, so that the two averages are one.
    assert 0 < last["average_auc"] == last["active_auc"]


def test_a_client_with_one_class_is_in_no_mean():
    data = [CLIENTS[i] for i in range(4)]
    data[2] = data[2]._replace(y=np.ones_like(data[2].y))
    tests = hf.Clients.from_datasets(data)
    with pytest.warns(
        hf.HoldfastWarning, match=r"auc: 1 of 4 clients \(2\) have test examples of one"
    ):
        found = run(hf.evaluate.personal(tests, metrics=["auc", "brier"]))
    own = hf.evaluate.personal(tests, metrics=["auc", "brier"]).each(found.view)
    assert own[2]["auc"] is None
    assert own[2]["brier"] > 0
    last, known = found.history[-1], [own[i]["auc"] for i in (0, 1, 3)]
    assert last["personal_auc"] == pytest.approx(np.mean(known))
    assert last["personal_auc_worst_tenth"] == min(known)
    assert last["personal_brier"] == pytest.approx(np.mean([own[i]["brier"] for i in range(4)]))
    nobody = hf.Clients.from_datasets([d._replace(y=np.ones_like(d.y)) for d in data])
    with pytest.raises(hf.HoldfastError, match="no client has test examples of two"):
        run(hf.evaluate.personal(nobody, metrics=["auc"]))


def test_of_joined_populations():
    parts = [
        hf.Population(CLIENTS, hf.models.softmax_regression(2), name="a"),
        hf.Population(tiny_clients(seed=3, classes=2), hf.models.softmax_regression(2), name="b"),
    ]
    both = hf.join(parts)
    each = hf.evaluate.populations(both.clients, [TEST, TEST], metrics=["auc"])
    own = hf.evaluate.personal(both.tests([CLIENTS, CLIENTS]), metrics=["auc"])
    found = hf.simulate(hf.algorithms.fedavg(), **both, local=LOCAL, rounds=1, evaluate=[each, own])
    last = found.history[-1]
    p = np.asarray(parts[0].model.predict(found.params, TEST))[:, 1]
    assert last["a_auc"] == pytest.approx(sk.roc_auc_score(TEST.y, p), abs=1e-6)
    assert last["auc"] == last["a_auc"] == last["b_auc"]  # the same test set and model
    assert 0 < last["personal_auc"] <= 1


REGRESSION = hf.models.least_squares()
MULTI_LABEL = hf.Examples(TEST.x, np.stack([TEST.y, 1 - TEST.y], axis=1))


@pytest.mark.parametrize(
    ("model", "test", "metric", "says"),
    [
        (
            BINARY,
            TEST,
            "r2",
            "`r2` takes the numbers of a regression; logistic_regression.* 2 classes",
        ),
        (BINARY, TEST, "top_2_accuracy", "has 2 classes, so that every label is among 2"),
        (BINARY, TEST._replace(y=np.ones_like(TEST.y)), "auc", "all 40 examples have the label 1"),
        (REGRESSION, TEST, "auc", "takes the probabilities of a classifier.*has a number"),
        (hf.models.mlp([4], 3), TEST, "f1_binary", "with two classes; .* has 3 classes"),
        (hf.models.multi_label(2, k=1), MULTI_LABEL, "auc", r"labels of shape \(2,\)"),
        (
            hf.Model(BINARY.init, BINARY.loss, name="bare"),
            TEST,
            "auc",
            "bare does not say what it predicts",
        ),
        (BINARY, TEST, lambda labels, predictions: 0.0, "give a name such as 'auc'"),
    ],
)
def test_what_makes_no_sense_is_refused(model, test, metric, says):
    params = jax.eval_shape(model.init, jax.random.key(0), test)
    with pytest.raises(hf.HoldfastError, match=says):
        hf.evaluate.on(test, metrics=[metric]).check(model, params, 4)


def test_own_functions_are_tried_before_the_first_round():
    @hf.metrics.declare(greater_is_better=True)
    def broken(labels, predictions):
        raise ValueError("no such thing")

    @hf.metrics.declare(greater_is_better=True)
    def textual(labels, predictions):
        return "much"

    for metric, says in (
        (broken, "failed on 40 examples: ValueError: no such"),
        (textual, "a str"),
    ):
        with pytest.raises(hf.HoldfastError, match=f"metric `{metric.__name__}` .*{says}"):
            run(hf.evaluate.on(TEST, metrics=[metric]))


def test_two_directions_of_one_name():
    one = hf.metrics.Metric("profit", True, "profit", of=cost)
    other = hf.metrics.Metric("profit", False, "profit", of=cost)
    both = [hf.evaluate.on(TEST, metrics=[one]), hf.evaluate.on(TEST, name="b", metrics=[other])]
    with pytest.raises(hf.HoldfastError, match="`profit`: greater is better by one"):
        run(both)


def test_a_model_that_diverged_has_no_number():
    nan = {"weights": np.full(5, np.nan, np.float32), "intercept": np.float32(0)}
    measured = hf.evaluate.measure(
        REGRESSION, nan, TEST, hf.evaluate.on(TEST, metrics=["r2"]).metrics
    )
    assert np.isnan(measured["r2"])
