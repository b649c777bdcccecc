"""Penalties of the parameters: loss, gradient and constants against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import holdfast as hf
from holdfast.models import mlp, mlp_regression, regularised, softmax_regression

rng = np.random.default_rng(0)
EXAMPLES = hf.Examples(rng.normal(size=(30, 4)), np.arange(30) % 3)


@pytest.mark.parametrize("make", [softmax_regression, lambda *a, **k: mlp([5], *a, **k)])
def test_loss_metric_and_gradient_contain_the_penalty(make, x64):
    plain, penalised = make(3), make(3, l2=0.3)
    params = plain.init(jax.random.key(0), EXAMPLES)
    flat, unravel = ravel_pytree(params)
    expected = plain.loss(params, EXAMPLES) + 0.15 * flat @ flat
    np.testing.assert_allclose(penalised.loss(params, EXAMPLES), expected, rtol=1e-12)
    found = penalised.measure(params, EXAMPLES)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-12)
    np.testing.assert_array_equal(found["accuracy"], plain.measure(params, EXAMPLES)["accuracy"])

    def slope(model):
        return jax.grad(lambda w: jnp.mean(model.loss(unravel(w), EXAMPLES)))(flat)

    np.testing.assert_allclose(slope(penalised), slope(plain) + 0.3 * flat, rtol=1e-10)


def test_softmax_has_the_constants_of_its_hessian(x64):
    model = softmax_regression(3, l2=0.2)
    clients = hf.data.partition.iid(EXAMPLES, clients=2)
    bent = hf.diagnose.curvature(model, clients)
    assert bent.exact
    np.testing.assert_array_equal(bent.convexity, 0.2)
    for i in range(2):
        own = jax.tree.map(jnp.asarray, clients[i])
        design = np.hstack([np.ones((len(own.x), 1)), own.x])
        bound = np.linalg.eigvalsh(design.T @ design)[-1] / len(own.x) / 2 + 0.2
        np.testing.assert_allclose(bent.smoothness[i], bound, rtol=1e-12)
        flat, unravel = ravel_pytree(model.init(jax.random.key(i), own))
        at = lambda w, own=own, unravel=unravel: jnp.mean(model.loss(unravel(w), own))  # noqa: E731
        ends = np.linalg.eigvalsh(jax.hessian(at)(flat))
        # Adding the same to all classes' logits changes nothing: there only the penalty bends.
        assert ends[0] == pytest.approx(0.2, rel=1e-9)
        assert ends[-1] <= bound


def test_a_penalty_trains_as_weight_decay_does(x64):
    clients = hf.data.partition.iid(EXAMPLES, clients=3)
    plain, penalised = softmax_regression(3), softmax_regression(3, l2=0.1)
    given = (hf.algorithms.fedavg(), penalised, clients)
    by_loss = hf.simulate(*given, hf.Local(0.2, steps=4, batch_size=5), rounds=2)
    decayed = hf.Local(0.2, steps=4, batch_size=5, weight_decay=0.1)
    by_decay = hf.simulate(hf.algorithms.fedavg(), plain, clients, decayed, rounds=2)
    np.testing.assert_allclose(
        ravel_pytree(by_loss.params)[0], ravel_pytree(by_decay.params)[0], rtol=1e-10
    )


def test_zero_is_the_model_itself_and_equal_settings_are_one_model():
    assert mlp([4], 3, l2=0) is mlp([4], 3)
    assert mlp([4], 3, l2=0.1) is mlp((4,), 3, l2=0.1)
    assert mlp_regression([4], l2=0.1) != mlp_regression([4], l2=0.2)


@pytest.mark.parametrize("l2", [-1.0, float("nan"), float("inf")])
def test_what_is_no_penalty_is_refused(l2):
    for make in (lambda: softmax_regression(3, l2), lambda: regularised(mlp([4], 3), l2)):
        with pytest.raises(hf.HoldfastError, match=r"l2=.*; give a number of at least 0"):
            make()


def test_rows_of_tables_that_are_not_sent_would_be_penalised_too():
    assert regularised(hf.models.dual_encoder(9), 0.1).tables == ()
