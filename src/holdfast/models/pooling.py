"""The maximum over windows of images, with a gradient that compares instead of scattering."""

import functools
from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

Padding: TypeAlias = str | Sequence[tuple[int, int]]


def max_pool(
    x: jax.Array, window: int = 2, stride: int | None = None, padding: Padding = "VALID"
) -> jax.Array:
    """The maximum over square windows of images (examples, height, width, channels).

    Where several pixels are the largest they share the gradient.

    Args:
        x: images.
        window: side of the windows.
        stride: from one window to the next; windows lie side by side unless given.
        padding: `"SAME"`, `"VALID"`, or (before, after) down and across.

    Example:
        >>> import jax.numpy as jnp
        >>> from holdfast.models import max_pool
        >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0].tolist()
        [[5.0, 7.0], [13.0, 15.0]]
    """
    stride = window if stride is None else stride
    x = pad(x, pads_of(x, (window, window), (stride, stride), padding), -jnp.inf)
    if stride != window:
        down, across = output_size(x, (window, window), (stride, stride))
        x = functools.reduce(jnp.maximum, shifted(x, 2, window, across, stride))
        return functools.reduce(jnp.maximum, shifted(x, 1, window, down, stride))
    down, across = x.shape[1] // window, x.shape[2] // window
    return _side_by_side(x[:, : down * window, : across * window], window)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _side_by_side(x: jax.Array, window: int) -> jax.Array:
    return functools.reduce(jnp.maximum, corners(x, window))


@_side_by_side.defjvp
def _side_by_side_slope(
    window: int, given: tuple[jax.Array], slopes: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # JAX's own gradient of the maximum of an axis goes over the image twice as often.
    (x,), (slope,) = given, slopes
    largest = _side_by_side(x, window)
    shared_by = sum((corner == largest).astype(x.dtype) for corner in corners(x, window))
    examples, down, across, channels = largest.shape
    windows = (examples, down, window, across, window, channels)
    is_largest = x.reshape(windows) == largest[:, :, None, :, None]
    passed = jnp.where(is_largest, slope.reshape(windows), 0)
    return largest, passed.sum(axis=(2, 4)) / shared_by


def largest_of_four(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The maximum over windows of 2 x 2, and which pixels have it: a bit each, in a byte.

    A last row or column without another is left out.
    """
    four = corners(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2], 2)
    largest = functools.reduce(jnp.maximum, four)
    places = [(corner == largest).astype(jnp.uint8) << i for i, corner in enumerate(four)]
    return largest, functools.reduce(jnp.bitwise_or, places)


def shared_among_four(slope: jax.Array, places: jax.Array, size: Sequence[int]) -> jax.Array:
    """The gradient of `largest_of_four`, for images of this height and width."""
    among = lax.population_count(places).astype(slope.dtype)
    bits = jnp.arange(4, dtype=jnp.uint8).reshape(1, 1, 2, 1, 2, 1)
    here = (places[:, :, None, :, None] >> bits) & 1
    # Divided last: XLA does not repeat a division in everything that reads its result.
    found = jnp.where(here != 0, slope[:, :, None, :, None], 0) / among[:, :, None, :, None]
    examples, down, across, channels = slope.shape
    found = found.reshape(examples, 2 * down, 2 * across, channels)
    left_out = ((0, size[0] - 2 * down), (0, size[1] - 2 * across))
    return pad(found, left_out, 0)


def corners(x: jax.Array, window: int) -> list[jax.Array]:
    """For each place in windows that lie side by side, its pixels."""
    places = [(i, j) for i in range(window) for j in range(window)]
    return [lax.slice(x, (0, i, j, 0), x.shape, (1, window, window, 1)) for i, j in places]


def pads_of(
    x: jax.Array, window: Sequence[int], strides: tuple[int, int], padding: Padding
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows before and after, columns before and after."""
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(x.shape[1:3], window, strides, padding)
    down, across = padding
    return (down[0], down[1]), (across[0], across[1])


def pad(x: jax.Array, pads: Sequence[tuple[int, int]], value: float) -> jax.Array:
    """Images with so much of `value` around them; less than none cuts off."""
    if not any(before or after for before, after in pads):
        return x
    around = [(0, 0, 0), *((before, after, 0) for before, after in pads), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(value, x.dtype), around)


def output_size(x: jax.Array, window: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Places of a window down and across."""
    down, across = (
        (side - of_window) // stride + 1
        for side, of_window, stride in zip(x.shape[1:3], window, strides, strict=True)
    )
    return down, across


def shifted(x: jax.Array, axis: int, places: int, size: int, stride: int) -> list[jax.Array]:
    """For each place in a window along one axis, the pixels it meets as the window moves."""

    def meets(place: int) -> jax.Array:
        return lax.slice_in_dim(x, place, place + (size - 1) * stride + 1, stride, axis)

    return [meets(place) for place in range(places)]
