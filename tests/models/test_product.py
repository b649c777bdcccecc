"""The product of tiny layers is the product, and so are its derivatives in every mode."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from holdfast.models import product
from holdfast.models.product import Dense

ROWS = (((1,), (0,)), ((), ()))


def ours(x, w):
    return jnp.sum(jnp.sin(product.product(x, w, ROWS)))


def plain(x, w):
    return jnp.sum(jnp.sin(lax.dot_general(x, w, ROWS)))


@pytest.fixture
def given(x64):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(6, 4))), jnp.asarray(rng.normal(size=(4, 3)))


def test_it_is_taken_where_products_are_tiny_and_only_there(given):
    def derivative(f):
        return str(jax.make_jaxpr(jax.grad(f, argnums=1))(*given))

    assert "optimization_barrier" in derivative(ours)
    large = jnp.zeros((6, 4)), jnp.zeros((4, 10**4))
    assert "optimization_barrier" not in str(jax.make_jaxpr(jax.grad(ours, argnums=1))(*large))


def test_it_is_not_taken_on_accelerators(given, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "optimization_barrier" not in str(jax.make_jaxpr(jax.grad(ours, argnums=1))(*given))


@pytest.mark.parametrize(
    "derived",
    [
        lambda f: f,
        lambda f: jax.grad(f, argnums=(0, 1)),
        lambda f: jax.jacfwd(f, argnums=(0, 1)),
        lambda f: jax.hessian(f, argnums=1),
        lambda f: jax.grad(lambda x, w: jnp.sum(jax.grad(f, argnums=1)(x, w) ** 2)),
        lambda f: (
            lambda x, w: jax.vmap(jax.grad(f, argnums=1))(jnp.stack([x, x + 1]), jnp.stack([w, w]))
        ),
    ],
    ids=["value", "reverse", "forward", "both", "reverse twice", "together"],
)
def test_equals_the_plain_product(given, derived):
    x, w = given
    found, wanted = (jax.tree.leaves(derived(f)(x, w)) for f in (ours, plain))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_layer_begins_and_answers_as_flax_would():
    x = jax.random.normal(jax.random.key(1), (6, 4))
    params = nn.Dense(3).init(jax.random.key(0), x)
    mine = Dense(3).init(jax.random.key(0), x)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(Dense(3).apply(params, x), nn.Dense(3).apply(params, x))
