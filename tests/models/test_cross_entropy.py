"""Cross-entropy by comparison against optax's by looking up."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from holdfast.models.model import cross_entropy


@pytest.mark.parametrize("shape", [(6, 5), (3, 4, 5)])
def test_value_gradient_and_curvature_are_those_of_optax(x64, shape):
    rng = np.random.default_rng(0)
    logits = jnp.asarray(10 * rng.normal(size=shape))
    labels = jnp.asarray(rng.integers(0, 5, shape[:-1]))
    slopes = jnp.asarray(rng.normal(size=shape[:-1]))

    def all_of(function):
        def total(logits):
            return jnp.sum(slopes * function(logits, labels))

        curved = jax.jvp(jax.grad(total), (logits,), (jnp.cos(logits),))[1]
        return function(logits, labels), jax.grad(total)(logits), curved

    found = jax.jit(lambda: all_of(cross_entropy))()
    expected = jax.jit(lambda: all_of(optax.softmax_cross_entropy_with_integer_labels))()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_logits_far_apart_do_not_overflow():
    logits = jnp.asarray([[1e4, -1e4, 0.0]])
    for label, loss in ((0, 0.0), (1, 2e4)):
        value, slope = jax.value_and_grad(lambda z, y=label: cross_entropy(z, jnp.array([y]))[0])(
            logits
        )
        assert value == loss
        assert np.isfinite(slope).all()
