"""Convolution as a matrix product over patches."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from holdfast.models.pooling import output_size, shifted


@dataclasses.dataclass(frozen=True)
class Patches:
    """How to convolve a few images, and the gradients; images come padded."""

    window: tuple[int, int]
    strides: tuple[int, int]
    precision: Any

    def bytes_each(self, x: jax.Array, kernel: jax.Array) -> int:
        """Of one image's patches."""
        places = math.prod(output_size(x, self.window, self.strides))
        return places * kernel[..., 0].size * x.dtype.itemsize

    def matrix(self, kernel: jax.Array) -> jax.Array:
        """One row per entry of a patch."""
        return kernel.reshape(-1, kernel.shape[3])

    def of_kernel(self, total: jax.Array, kernel: jax.Array) -> jax.Array:
        """The gradient of the kernel, of the sum of those of the matrix."""
        return total.T.reshape(kernel.shape)

    def convolved(self, x: jax.Array, matrix: jax.Array) -> jax.Array:
        """The convolution."""
        y = jnp.matmul(self._rows(x), matrix, precision=self.precision)
        return y.reshape(x.shape[0], *output_size(x, self.window, self.strides), -1)

    def of_matrix(self, x: jax.Array, slope: jax.Array) -> jax.Array:
        """The gradient of the matrix; transposed, with the small factor on the left: faster by a third."""
        by_place = slope.reshape(-1, slope.shape[3])
        return jnp.matmul(by_place.T, self._rows(x), precision=self.precision)

    def of_images(self, slope: jax.Array, matrix: jax.Array, x: jax.Array) -> jax.Array:
        """The gradient of the images: every entry is added to the pixel it came from."""
        rows = jnp.matmul(slope.reshape(-1, slope.shape[3]), matrix.T, precision=self.precision)
        examples, height, _, channels = x.shape
        down, across = output_size(x, self.window, self.strides)
        patches = rows.reshape(examples, down, across, -1)
        strips = jnp.zeros((examples, height, across, self.window[1] * channels), x.dtype)
        strips = _add_back(strips, patches, 1, self.window[0], self.strides[0])
        return _add_back(jnp.zeros_like(x), strips, 2, self.window[1], self.strides[1])

    def _rows(self, x: jax.Array) -> jax.Array:
        """One per place of the output: across first, so that down whole rows of a patch are copied."""
        down, across = output_size(x, self.window, self.strides)
        x = jnp.concatenate(shifted(x, 2, self.window[1], across, self.strides[1]), axis=3)
        x = jnp.concatenate(shifted(x, 1, self.window[0], down, self.strides[0]), axis=3)
        return x.reshape(-1, x.shape[3])


def _add_back(
    total: jax.Array, blocks: jax.Array, axis: int, places: int, stride: int
) -> jax.Array:
    apart = [(0, 0, stride - 1 if a == axis else 0) for a in range(4)]
    nothing = jnp.zeros((), total.dtype)
    for place, block in enumerate(jnp.split(blocks, places, axis=3)):
        block = lax.pad(block, nothing, apart)
        before = lax.slice_in_dim(total, place, place + block.shape[axis], axis=axis)
        total = lax.dynamic_update_slice_in_dim(total, before + block, place, axis)
    return total
