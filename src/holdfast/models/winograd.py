r"""Convolution with fewer multiplications: Winograd's minimal filtering.

Two neighbouring outputs of a filter with three weights need four products instead of six,

$$ y = A^\top [(G k) \odot (B^\top d)] $$

with $d$ the four inputs they depend on, and in two dimensions 16 instead of 36. Over channels each of them
is a matrix product. All entries of $A$, $B$ and $G$ are 0, 1, -1 or a half, so rounding is no worse than
that of the plain sum, which is longer. Larger tiles save more and round worse; they are not used.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from holdfast.models.pooling import pad, shifted


@dataclasses.dataclass(frozen=True)
class Filtering:
    """The matrices for one length of filter: two outputs of one input more than it has weights."""

    into: np.ndarray  # B: (inputs, products)
    weigh: np.ndarray  # G: (products, weights)
    out: np.ndarray  # A: (products, 2)


_OF_TWO = Filtering(
    into=np.array([[1, 0, 0], [-1, 1, -1], [0, 0, 1]]),
    weigh=np.array([[1, 0], [1, 1], [0, 1]]),
    out=np.array([[1, 0], [1, 1], [0, 1]]),
)
_OF_THREE = Filtering(
    into=np.array([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]]),
    weigh=np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    out=np.array([[1, 0], [1, 1], [1, -1], [0, -1]]),
)


def _one_after_another(first: Filtering, second: Filtering) -> Filtering:
    """A longer filter: the first takes its first weights, the second the others."""
    weights, products = first.weigh.shape[1], first.weigh.shape[0]
    into = np.zeros((weights + len(second.into), products + len(second.weigh)))
    into[: len(first.into), :products] = first.into
    into[weights:, products:] = second.into
    weigh = np.zeros((into.shape[1], weights + second.weigh.shape[1]))
    weigh[:products, :weights] = first.weigh
    weigh[products:, weights:] = second.weigh
    return Filtering(into, weigh, np.concatenate([first.out, second.out]))


FILTERINGS = {3: _OF_THREE, 5: _one_after_another(_OF_THREE, _OF_TWO)}


@dataclasses.dataclass(frozen=True)
class Winograd:
    """How to convolve a few images by a square kernel, and the gradients; images come padded."""

    side: int
    precision: Any

    @property
    def _by(self) -> Filtering:
        return FILTERINGS[self.side]

    def bytes_each(self, x: jax.Array, kernel: jax.Array) -> int:
        """Of what goes into one image's products, or comes out if that is more."""
        down, across = self._tiles(x)
        products = len(self._by.out) ** 2
        return down * across * products * max(kernel.shape[2:]) * x.dtype.itemsize

    def matrix(self, kernel: jax.Array) -> jax.Array:
        """A matrix of channels for each product."""
        return _both_ways(kernel, self._by.weigh).reshape(-1, *kernel.shape[2:])

    def of_kernel(self, total: jax.Array, kernel: jax.Array) -> jax.Array:
        """The gradient of the kernel, of the sum of those of the matrices."""
        products = len(self._by.weigh)
        by_place = total.reshape(products, products, *kernel.shape[2:])
        return _both_ways(by_place, self._by.weigh.T)

    def convolved(self, x: jax.Array, matrix: jax.Array) -> jax.Array:
        """The convolution."""
        y = self._products(self._inputs(x), matrix, 2, 1)
        y = _put(y, self._by.out.T, (x.shape[0], *self._tiles(x)))
        return y[:, : x.shape[1] - self.side + 1, : x.shape[2] - self.side + 1]

    def of_matrix(self, x: jax.Array, slope: jax.Array) -> jax.Array:
        """The gradient of the matrices."""
        return self._products(self._inputs(x), self._slopes(slope), 1, 1)

    def of_images(self, slope: jax.Array, matrix: jax.Array, x: jax.Array) -> jax.Array:
        """The gradient of the images."""
        tiles = self._products(self._slopes(slope), matrix, 2, 2)
        found = _put(tiles, self._by.into, (x.shape[0], *self._tiles(x)))
        return found[:, : x.shape[1], : x.shape[2]]

    def _tiles(self, x: jax.Array) -> tuple[int, int]:
        """Down and across; the last may reach beyond the image."""
        down, across = ((side - self.side + 2) // 2 for side in x.shape[1:3])
        return down, across

    def _inputs(self, x: jax.Array) -> jax.Array:
        odd = [(0, (side - self.side + 1) % 2) for side in x.shape[1:3]]
        return _cut(pad(x, odd, 0), self._by.into)

    def _slopes(self, slope: jax.Array) -> jax.Array:
        odd = [(0, side % 2) for side in slope.shape[1:3]]
        return _cut(pad(slope, odd, 0), self._by.out.T)

    def _products(self, a: jax.Array, b: jax.Array, over: int, and_over: int) -> jax.Array:
        dimensions = (((over,), (and_over,)), ((0,), (0,)))
        return lax.dot_general(a, b, dimensions, precision=self.precision)


def _both_ways(places: jax.Array, matrix: np.ndarray) -> jax.Array:
    """The matrix times the first two axes."""
    # As one product: sums that are written out take seconds to compile, and longer for many channels.
    both = jnp.asarray(np.kron(matrix, matrix), places.dtype)
    flat = places.reshape(matrix.shape[1] ** 2, -1)
    found = lax.dot(both, flat, precision=lax.Precision.HIGHEST)
    return found.reshape(len(matrix), len(matrix), *places.shape[2:])


def _cut(x: jax.Array, matrix: np.ndarray) -> jax.Array:
    """Every second place down and across, times the matrix both ways: (products, tiles, channels)."""
    size, channels = len(matrix), x.shape[3]
    down, across = ((side - size) // 2 + 1 for side in x.shape[1:3])
    # Looked up in a table, the first pass is one loop; the second is faster written out.
    rows = shifted(x, 1, size, down, 2)
    table = jnp.asarray(matrix, x.dtype).reshape(*matrix.shape, 1, 1, 1, 1)
    strips = functools.reduce(
        jnp.add, [factor * row[None] for factor, row in zip(table, rows, strict=True)]
    )
    columns = shifted(strips, 3, size, across, 2)
    tiles = jnp.stack([_combined(columns, factors) for factors in matrix.T], 1)
    return tiles.reshape(matrix.shape[1] ** 2, -1, channels)


def _put(tiles: jax.Array, matrix: np.ndarray, count: tuple[int, int, int]) -> jax.Array:
    """The transpose of `_cut`: times the matrix both ways, and added where it came from."""
    products = matrix.shape[1]
    tiles = tiles.reshape(products, products, *count, tiles.shape[2])
    strips = _put_along([tiles[:, i] for i in range(products)], matrix, 3)
    return _put_along(list(strips), matrix, 1)


def _put_along(parts: list[jax.Array], matrix: np.ndarray, axis: int) -> jax.Array:
    # Tiles begin two apart: each reaches so many of those after it.
    reach = len(matrix) // 2
    nothing = jnp.zeros((), parts[0].dtype)

    def moved(x: jax.Array, by: int) -> jax.Array:
        around = [(by, reach - 1 - by, 0) if a == axis else (0, 0, 0) for a in range(x.ndim)]
        return lax.pad(x, nothing, around)

    both = [
        functools.reduce(
            jnp.add, [moved(_combined(parts, matrix[2 * i + odd]), i) for i in range(reach)]
        )
        for odd in range(2)
    ]
    found = jnp.stack(both, axis + 1)
    return found.reshape(*found.shape[:axis], -1, *found.shape[axis + 2 :])


def _combined(parts: Sequence[jax.Array], factors: np.ndarray) -> jax.Array:
    """The sum of the parts times the factors, 1 and -1 without a product."""
    total: jax.Array | None = None
    for part, factor in zip(parts, factors.tolist(), strict=True):
        if factor == 0:
            continue
        term = part if abs(factor) == 1 else part * abs(factor)
        if total is None:
            total = term if factor > 0 else -term
        else:
            total = total + term if factor > 0 else total - term
    assert total is not None
    return total
