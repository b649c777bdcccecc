"""The matrix product of dense layers, for steps so small that starting an operation is what they cost."""

import functools
from typing import Any

import flax.linen as nn
import jax
from jax import lax
from jax.custom_derivatives import SymbolicZero

_TINY = 5e4  # multiplications
_ROWS = (((1,), (0,)), ((), ()))  # the usual product of two matrices
_COLUMNS = (((0,), (0,)), ((), ()))  # of the first one's transpose with the second


def product(
    x: jax.Array, kernel: jax.Array, dimensions: Any, precision: Any = None, **rest: Any
) -> jax.Array:
    """`lax.dot_general`, differentiated in another way where that is faster.

    Example:
        >>> import jax.numpy as jnp
        >>> from holdfast.models.product import product
        >>> product(jnp.ones((2, 3)), jnp.ones((3, 4)), (((1,), (0,)), ((), ()))).shape
        (2, 4)
    """
    plain = precision is None and not any(value is not None for value in rest.values())
    tiny = x.ndim == 2 and x.size * kernel.shape[-1] <= _TINY
    if plain and tiny and dimensions == _ROWS and jax.default_backend() == "cpu":
        return _tiny_product(x, kernel)
    return lax.dot_general(x, kernel, dimensions, precision, **rest)


@jax.custom_jvp
def _tiny_product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.dot_general(x, kernel, _ROWS)


@functools.partial(_tiny_product.defjvp, symbolic_zeros=True)
def _tiny_product_slope(
    given: tuple[jax.Array, jax.Array], slopes: tuple[Any, Any]
) -> tuple[jax.Array, Any]:
    (x, kernel), (of_x, of_kernel) = given, slopes
    moved: Any = 0
    if not isinstance(of_x, SymbolicZero):
        moved = lax.dot_general(of_x, kernel, _ROWS)
    if not isinstance(of_kernel, SymbolicZero):
        # Backwards this is x' g with x' laid out in rows, for which XLA has a kernel; of a transpose
        # that it may fold into the product it makes a call per client that costs more than the product.
        turned = lax.optimization_barrier(x.T)
        moved = moved + lax.dot_general(turned, of_kernel, _COLUMNS)
    return _tiny_product(x, kernel), moved


Dense = functools.partial(nn.Dense, dot_general=product)
