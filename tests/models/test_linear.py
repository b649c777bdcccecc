"""Logistic regression and least squares against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import holdfast as hf
from holdfast.models import least_squares, logistic_regression, softmax_regression
from holdfast.record.identity import describe


def data(labels):
    rng = np.random.default_rng(0)
    return hf.Examples(rng.normal(size=(30, 2, 3)), rng.permutation(np.resize(labels, 30)))


def begun(model, examples):
    """Random parameters of the model, and its design matrix times them."""
    zero, unravel = ravel_pytree(model.init(jax.random.key(0), examples))
    flat = np.random.default_rng(1).normal(size=zero.size)
    return flat, unravel(jnp.asarray(flat)), model.linear.design(examples) @ flat


@pytest.mark.parametrize(
    ("l2", "intercept", "kind"),
    [(0.0, False, bool), (0.3, True, np.int32), (0.3, False, np.float32)],
)
def test_logistic_loss_and_accuracy(l2, intercept, kind, x64):
    examples = data(np.array([0, 1], kind))
    model = logistic_regression(l2, intercept)
    flat, params, u = begun(model, examples)
    sign = np.where(examples.y == 1, 1, -1)
    found = jax.jit(model.measure)(params, jax.tree.map(jnp.asarray, examples))
    expected = np.log1p(np.exp(-sign * u)) + l2 / 2 * flat @ flat
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-12)
    np.testing.assert_array_equal(found["accuracy"], sign * u > 0)


@pytest.mark.parametrize(("l2", "intercept"), [(0.0, False), (0.3, True)])
def test_squared_loss(l2, intercept, x64):
    examples = data(np.array([0.5, -2.0, 3.0]))
    model = least_squares(l2, intercept)
    flat, params, u = begun(model, examples)
    found = jax.jit(model.measure)(params, jax.tree.map(jnp.asarray, examples))
    expected = (u - examples.y) ** 2 / 2 + l2 / 2 * flat @ flat
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-12)
    assert list(found) == ["loss"]


def test_softmax_regression_is_linear_in_one_block_per_class(x64):
    examples = data(np.array([0, 1, 2]))
    model = softmax_regression(3)
    zero, unravel = ravel_pytree(model.init(jax.random.key(0), examples))
    flat = np.random.default_rng(1).normal(size=zero.size)
    u = model.linear.design(examples) @ flat.reshape(-1, 3)
    expected = np.log(np.exp(u).sum(1)) - u[np.arange(30), examples.y]
    batch = jax.tree.map(jnp.asarray, examples)
    losses = jax.jit(model.losses)(unravel(jnp.asarray(flat)), batch, jax.random.key(0))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


def test_parameters_begin_at_zero_in_the_type_of_the_data(x64):
    for given, kept in (("f2", "f2"), ("f8", "f8"), ("u1", "f4")):
        examples = hf.Examples(np.ones((4, 2, 3), given), np.array([0, 1, 1, 0]))
        for model in (logistic_regression(0.1), least_squares(0.1)):
            params = model.init(jax.random.key(0), examples)
            assert {n: p.shape for n, p in params.items()} == {"weights": (6,), "intercept": ()}
            assert all(p.dtype == kept and not p.any() for p in params.values())
            batch = jax.tree.map(jnp.asarray, examples)
            assert jax.eval_shape(model.loss, params, batch).dtype == kept
    without = logistic_regression(intercept=False).init(jax.random.key(0), examples)
    assert set(without) == {"weights"}


def test_equal_settings_give_the_same_model():
    for make in (logistic_regression, least_squares):
        assert make(1, True) is make(l2=np.float64(1.0))
        assert make(1, True) == make(intercept=1, l2=1.0)
        assert hash(make(1, True)) == hash(make(intercept=1, l2=1.0))
        assert make(0.1) != make(0.2)
    assert softmax_regression(3) is softmax_regression(classes=3)


def test_knowing_that_a_model_is_linear_does_not_make_it_another():
    plain, told = hf.models.mlp([], 3), softmax_regression(3)
    assert plain.linear is None
    assert (plain, hash(plain), describe(plain)) == (told, hash(told), describe(told))
    assert repr(logistic_regression(0.5)) == "Model(logistic_regression(l2=0.5, intercept=True))"


def test_gradient_descent_solves_least_squares(x64):
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(40, 3)), np.array([1.0, -2.0, 0.5])
    clients = hf.data.partition.in_order(hf.Examples(x, x @ w + 4), 1)
    model = least_squares()
    step = 1 / hf.diagnose.curvature(model, clients).smoothness[0]
    found = hf.simulate(hf.algorithms.fedavg(), model, clients, hf.Local(step, steps=300), rounds=1)
    np.testing.assert_allclose(found.params["weights"], w, atol=1e-8)
    np.testing.assert_allclose(found.params["intercept"], 4, atol=1e-8)


@pytest.mark.parametrize("make", [logistic_regression, least_squares])
def test_impossible_settings_and_labels_are_refused(make):
    for l2 in (-0.1, np.nan, np.inf):
        with pytest.raises(hf.HoldfastError, match=rf"{make.__name__}: l2={l2}; give a number"):
            make(l2)
    with pytest.raises(hf.HoldfastError, match=r"int64 of shape \(2, 1\); give one number"):
        make().check(hf.Examples(np.zeros((2, 1)), np.array([[0], [1]])))
    for y in ([0, 2], [0.5, 1.0], [-1, 1]):
        examples = hf.Examples(np.zeros((2, 1)), np.array(y))
        if make is least_squares:
            make().check(examples)
        else:
            with pytest.raises(hf.HoldfastError, match="give 0 or 1"):
                make().check(examples)
