"""The classifier with one logit, and the area under its curve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import holdfast as hf
from holdfast.models import BinaryMLP, auc, binary_mlp


def images(dtype=np.float32, labels=np.int32):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2, 3)).astype(dtype)
    return hf.Examples(x, (x[:, 0, 0] > 0).astype(labels))


@pytest.mark.parametrize("labels", [np.int32, np.float32, bool])
def test_loss_and_accuracy_follow_the_logit(x64, labels):
    examples = images(np.float64, labels)
    model = binary_mlp([4])
    params = model.init(jax.random.key(0), examples)
    assert hf.trees.paths(params) == [
        "classifier/bias",
        "classifier/kernel",
        "hidden_0/bias",
        "hidden_0/kernel",
    ]
    first, last = params["hidden_0"], params["classifier"]
    hidden = np.maximum(examples.x.reshape(30, 6) @ first["kernel"] + first["bias"][None], 0)
    logit = np.asarray(hidden @ last["kernel"] + last["bias"][None])[:, 0]
    np.testing.assert_allclose(BinaryMLP((4,)).apply({"params": params}, examples.x), logit)
    batch = jax.tree.map(jnp.asarray, examples)
    found = model.measure(params, batch)
    sign = np.where(examples.y, 1, -1)
    np.testing.assert_allclose(found["loss"], np.log1p(np.exp(-sign * logit)), rtol=1e-10)
    np.testing.assert_array_equal(found["accuracy"], sign * logit > 0)
    np.testing.assert_array_equal(model.loss(params, batch), found["loss"])


def test_it_trains_in_a_federation_of_single_labels():
    examples = images()
    run = hf.simulate(
        hf.algorithms.fedavg(),
        binary_mlp([8]),
        hf.data.partition.by(examples, examples.y),
        hf.Local(learning_rate=0.5, epochs=1),
        rounds=30,
        evaluate=hf.evaluate.on(examples, every=30),
    )
    assert run.history["accuracy"][-1] > 0.9
    scores = BinaryMLP((8,)).apply({"params": run.params}, examples.x)
    assert auc(scores, examples.y) > 0.95


def test_equal_settings_give_the_same_model():
    assert binary_mlp([4]) is binary_mlp(hidden=(4,))


def test_impossible_settings_and_labels_are_refused():
    with pytest.raises(hf.HoldfastError, match=r"hidden=\[0\]"):
        binary_mlp([0])
    for y in ([0, 2], [0.5, 1.0], [-1, 1]):
        with pytest.raises(hf.HoldfastError, match="give 0 or 1"):
            binary_mlp([4]).check(hf.Examples(np.zeros((2, 1)), np.array(y)))


@pytest.mark.parametrize("levels", [3, 1000])
def test_auc_agrees_with_scikit_learn(levels):
    rng = np.random.default_rng(levels)
    scores, labels = rng.integers(0, levels, 200) / levels, rng.integers(0, 2, 200)
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


@pytest.mark.parametrize(
    ("scores", "labels", "says"),
    [
        ([0.1, 0.2], [1, 1], "2 positive and 0 negative"),
        ([0.1, np.nan], [0, 1], "1 scores are NaN"),
        ([[0.1], [0.2]], [0, 1], "one number and one label"),
    ],
)
def test_auc_refuses_what_has_none(scores, labels, says):
    with pytest.raises(hf.HoldfastError, match=says):
        auc(scores, labels)
