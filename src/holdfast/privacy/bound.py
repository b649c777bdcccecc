"""A bound that holds: what comes out is never longer, whatever a client sent and however sums are rounded."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.trees import Number, Tree


def _square(p: jax.Array) -> jax.Array:
    """The sum of squares, added up in blocks of about as many numbers as there are blocks.

    Added one after another, as many equal numbers come out too small by their number times the rounding
    of one: a client could choose them so. In blocks it is twice the square root of their number.
    """
    flat = p.reshape(-1)
    block = max(1, math.isqrt(flat.size))
    whole = flat.size // block * block
    blocks = jnp.sum(jnp.square(flat[:whole].reshape(-1, block)), axis=1)
    # A floor that changes no sum of note: without it the compiler adds everything up at once. Not
    # `maximum`, which need not keep nan on CPUs.
    tiny = jnp.finfo(p.dtype).tiny
    blocks = jnp.where(blocks < tiny, jnp.full_like(blocks, tiny), blocks)
    return jnp.sum(blocks) + jnp.sum(jnp.square(flat[whole:]))


def bounded(u: Tree, bound: Number) -> tuple[Tree, jax.Array]:
    """The tree scaled down to at most this joint norm, and whether it was short enough as it came.

    By rounding it may come out shorter than the bound, by no more than 1e-4 of it for ten million numbers,
    but not longer. What is not finite, or too long for a norm to be finite, becomes zeros.
    """
    leaves: list[Any] = [jnp.asarray(p) for p in tree.leaves(u)]
    wide = any(p.dtype == jnp.float64 for p in leaves)
    exact: Any = jnp.dtype(jnp.float64 if wide else jnp.float32)
    coarse = max(float(jnp.finfo(p.dtype).eps) for p in leaves)
    size = sum(p.size for p in leaves)
    rounding = (math.sqrt(size) + len(leaves) + 8) * float(jnp.finfo(exact).eps) + 2 * coarse
    squares = [_square(p.astype(exact)) for p in leaves]
    length = jnp.sqrt(sum(squares[1:], squares[0]))
    most = jnp.asarray(bound, exact) * (1 - rounding)
    short = length <= most
    factor = jnp.where(short, jnp.ones_like(length), most / length)
    usable = jnp.isfinite(length)

    def scaled(p: jax.Array) -> jax.Array:
        return jnp.where(usable, (factor * p.astype(exact)).astype(p.dtype), jnp.zeros_like(p))

    return tree.unflatten(tree.structure(u), [scaled(p) for p in leaves]), short
