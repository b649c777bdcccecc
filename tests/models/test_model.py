"""What every model can be asked: a loss with or without a key, logits, predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast import models

rng = np.random.default_rng(0)
FLAT = hf.Examples(rng.normal(size=(4, 6)).astype(np.float32), np.array([0, 1, 1, 0]))
IMAGES = hf.Examples(rng.normal(size=(2, 16, 16, 1)).astype(np.float32), np.array([0, 1]))
TEXT = hf.Examples(np.array([[0, 1, 2], [2, 1, 0]]), np.array([[1, 2, 0], [1, 0, 2]]))
KEY = jax.random.key(1)

CASES = {
    "softmax": (models.softmax_regression(2), FLAT, (4, 2)),
    "mlp": (models.mlp([3], 2, l2=0.1), FLAT, (4, 2)),
    "binary": (models.binary_mlp([3]), FLAT, (4,)),
    "regression": (models.mlp_regression([3]), FLAT, (4,)),
    "logistic": (models.logistic_regression(0.1), FLAT, (4,)),
    "least squares": (models.least_squares(), FLAT, (4,)),
    "cnn": (models.cnn(2, (2,), (3,), kernel=3, dropout=(0.5, 0.5)), IMAGES, (2, 2)),
    "augmented": (models.augmented(models.resnet8(2)), IMAGES, (2, 2)),
    "gru": (models.gru(3, 2, 4), TEXT, (2, 3, 3)),
    "lstm": (models.lstm(3, 2, 4, 1), TEXT._replace(y=np.array([0, 1])), (2, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_signature_and_a_way_to_logits(name):
    model, examples, shape = CASES[name]
    params = jax.jit(model.init)(KEY, examples)
    batch = jax.tree.map(jnp.asarray, examples)
    assert jax.eval_shape(model.loss, params, batch, KEY).shape == shape[:1]
    # Without a key it is evaluated: the metric.
    losses = jax.jit(model.loss)(params, batch)
    np.testing.assert_allclose(losses, jax.jit(model.measure)(params, batch)["loss"], rtol=1e-5)
    logits = jax.jit(model.logits)(params, examples)
    predicted = jax.jit(model.predict)(params, examples)
    assert logits.shape == predicted.shape == shape
    if len(shape) > 1:
        np.testing.assert_allclose(predicted, jax.nn.softmax(logits), rtol=1e-5)
        expected = -np.log(np.take_along_axis(np.asarray(predicted), examples.y[..., None], -1))[
            ..., 0
        ]
        expected = expected.mean(axis=tuple(range(1, expected.ndim)))
        penalty = 0.05 * sum(np.vdot(p, p) for p in jax.tree.leaves(params)) if name == "mlp" else 0
        np.testing.assert_allclose(losses, expected + penalty, rtol=1e-4)
        found = jax.jit(model.predictor.metrics)(predicted, batch)["loss"]
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_networks_of_others_have_logits_too():
    def apply(w, x):
        return x @ w

    def squared(found, y):
        return (found - y.astype(found.dtype)) ** 2

    line = models.from_apply(lambda key, x: jnp.ones(x.shape[1]), apply, loss=squared)
    params = line.init(KEY, FLAT)
    np.testing.assert_allclose(line.logits(params, FLAT), FLAT.x.sum(1), rtol=1e-5)
    # Nobody said that these predictions may be averaged.
    with pytest.raises(hf.HoldfastError, match="does not say what it predicts"):
        line.predict(params, FLAT)


def test_a_loss_that_cannot_do_without_a_key_says_so():
    noisy = hf.Model(
        lambda key, examples: jnp.zeros(()),
        lambda w, batch, key: w + jax.random.normal(key, batch.y.shape),
    )
    assert noisy.loss(0.0, FLAT, KEY).shape == (4,)
    with pytest.raises(hf.HoldfastError, match="draws random numbers; give a key"):
        noisy.loss(0.0, FLAT)
    np.testing.assert_array_equal(
        noisy.measure(0.0, FLAT)["loss"], noisy.loss(0.0, FLAT, jax.random.key(0))
    )
    with pytest.raises(hf.HoldfastError, match="does not say what it puts out"):
        noisy.logits(0.0, FLAT)


def test_equal_functions_make_equal_models():
    def init(key, examples):
        return jnp.zeros(())

    def loss(w, batch):
        return w * batch.x

    assert hf.Model(init, loss) == hf.Model(init, loss)
    assert hash(hf.Model(init, loss)) == hash(hf.Model(init, loss))
