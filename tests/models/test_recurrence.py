"""The fused loops over time against plain scans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.models import gru, lstm
from holdfast.models.recurrence import GRU_BY, LSTM_BY

FUNCTIONS = [(LSTM_BY, 4), (GRU_BY, 3)]


def arguments(gates, dtype, positions=5, examples=3, width=4):
    rng = np.random.default_rng(0)
    shapes = [(positions, examples, gates * width), (gates * width,), (width, gates * width)]
    shapes += [(width,)] if gates == 3 else []
    return [jnp.asarray(rng.normal(size=shape).astype(dtype)) for shape in shapes]


def value_and_slopes(function, given):
    states, back = jax.vjp(function, *given)
    return states, *back(jnp.cos(jnp.arange(states.size, dtype=states.dtype)).reshape(states.shape))


def assert_equal_to_rounding(functions, given, tolerance):
    def both(*given):
        return [value_and_slopes(functions[name], given) for name in ("fused", "scan")]

    for found, expected in zip(*jax.jit(both)(*given), strict=True):
        assert found.dtype == given[0].dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    many = [jnp.stack([a, 0.5 * a]) for a in given]
    for found, expected in zip(*jax.jit(jax.vmap(both))(*many), strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("functions", "gates"), FUNCTIONS)
def test_states_and_gradients_are_those_of_a_scan_in_float32(functions, gates):
    assert_equal_to_rounding(functions, arguments(gates, np.float32), 2e-5)


@pytest.mark.parametrize(("functions", "gates"), FUNCTIONS)
def test_states_and_gradients_are_those_of_a_scan_in_float64(x64, functions, gates):
    assert_equal_to_rounding(functions, arguments(gates, np.float64), 1e-12)


@pytest.mark.parametrize(("functions", "gates"), FUNCTIONS)
def test_one_position_is_enough(x64, functions, gates):
    assert_equal_to_rounding(functions, arguments(gates, np.float64, positions=1), 1e-12)


@pytest.mark.parametrize(("functions", "gates"), FUNCTIONS)
def test_products_with_the_hessian_are_those_of_a_scan(x64, functions, gates):
    given = arguments(gates, np.float64)

    def curved(name):
        def slope(recurrent):
            return jax.grad(
                lambda u: jnp.mean(functions[name](given[0], given[1], u, *given[3:]) ** 4)
            )(recurrent)

        return jax.jit(lambda u: jax.jvp(slope, (u,), (u,))[1])(given[2])

    np.testing.assert_allclose(curved("fused"), curved("scan"), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(("functions", "gates"), FUNCTIONS)
def test_only_the_scan_has_a_derivative_in_forward_mode(functions, gates):
    given = tuple(arguments(gates, np.float32))
    jax.jvp(functions["scan"], given, given)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(functions["fused"], given, given)


@pytest.mark.parametrize("model", [lstm, gru])
def test_models_take_a_kernel_by_name(model):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(0, 5, (3, 6)))
    batch = hf.Examples(x, x[:, 0] if model is lstm else x)
    losses = {}
    for kernel in ("auto", "fused", "scan"):
        made = model(5, embedding=3, width=4, kernel=kernel)
        params = made.init(jax.random.key(0), batch)
        losses[kernel] = jax.jit(made.measure)(params, batch)["loss"]
    assert jax.default_backend() == "cpu"
    np.testing.assert_array_equal(losses["auto"], losses["fused"])
    np.testing.assert_allclose(losses["fused"], losses["scan"], rtol=1e-5)
    with pytest.raises(hf.HoldfastError, match="kernel='quick' is not known"):
        model(5, kernel="quick")
