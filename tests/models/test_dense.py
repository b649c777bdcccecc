"""The classifier with one logit, and the area under its curve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import tree
from sklearn.metrics import roc_auc_score

import holdfast as hf
from holdfast.models import BinaryMLP, auc, binary_mlp


def test_loss_and_accuracy_follow_the_logit(x64):
    x = np.random.default_rng(0).normal(size=(30, 2, 3))
    y = x[:, 0, 0] > 0
    model, module = binary_mlp([4]), BinaryMLP((4,))
    params = model.init(jax.random.key(0), hf.Examples(x, y))
    first, last = (tree.map(np.asarray, params[name]) for name in ("hidden_0", "classifier"))
    hidden = np.maximum(x.reshape(30, 6) @ first["kernel"] + first["bias"], 0)
    logit = (hidden @ last["kernel"] + last["bias"])[:, 0]
    np.testing.assert_allclose(jax.jit(module.apply)({"params": params}, x), logit, rtol=1e-10)
    sign = np.where(y, 1, -1)
    for labels in (bool, np.int32, np.float32):
        batch = hf.Examples(jnp.asarray(x), jnp.asarray(y.astype(labels)))
        found = jax.jit(model.measure)(params, batch)
        np.testing.assert_allclose(found["loss"], np.log1p(np.exp(-sign * logit)), rtol=1e-10)
        np.testing.assert_array_equal(found["accuracy"], sign * logit > 0)


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
