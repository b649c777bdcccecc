"""Convolution and max pooling that are fast on a CPU also inside a compiled loop."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
from jax import lax

from holdfast.errors import HoldfastError

Convolution: TypeAlias = Literal["auto", "patches", "xla"]
Padding: TypeAlias = str | Sequence[tuple[int, int]]

LAYOUT = lax.conv_dimension_numbers((1,) * 4, (1,) * 4, ("NHWC", "HWIO", "NHWC"))


def convolution_by(setting: Convolution) -> Callable[..., jax.Array]:
    """The function that convolves, by the name it has as an argument of models."""
    functions: dict[str, Callable[..., jax.Array]] = {
        "auto": convolve,
        "patches": convolve_patches,
        "xla": lax.conv_general_dilated,
    }
    if setting not in functions:
        known = ", ".join(repr(name) for name in get_args(Convolution))
        raise HoldfastError(f"convolution={setting!r} is not known; give one of {known}.")
    return functions[setting]


def convolve(
    lhs: jax.Array, rhs: jax.Array, window_strides: Sequence[int], padding: Padding, **options: Any
) -> jax.Array:
    """`lax.conv_general_dilated`, by patches if the program being traced is for a CPU.

    XLA's own convolution is slow on a CPU inside a loop, where local training happens. There one
    matrix product over patches does the same, many times faster (`convolve_patches`). What patches
    cannot do is left to XLA.

    Example:
        >>> import flax.linen as nn
        >>> import holdfast as hf
        >>> layer = nn.Conv(8, (3, 3), conv_general_dilated=hf.models.convolve)
    """
    on_cpu = jax.default_backend() == "cpu"
    patches = on_cpu and _obstacle(lhs, rhs, options) is None
    function = convolve_patches if patches else lax.conv_general_dilated
    return function(lhs, rhs, window_strides, padding, **options)


def convolve_patches(
    lhs: jax.Array, rhs: jax.Array, window_strides: Sequence[int], padding: Padding, **options: Any
) -> jax.Array:
    r"""`lax.conv_general_dilated` as one matrix product.

    With $P$ one row per place of the output, the patch of the image under the kernel there, and
    $K$ the kernel with one row per entry of a patch,

    $$ Y = P K, \qquad \bar K = P^\top \bar Y, \qquad \bar P = \bar Y K^\top $$

    and the gradient of the image is the sum of $\bar P$ over the patches a pixel is in. $P$ is
    larger than the image by the size of the kernel, so backwards it is built again, not kept.

    Args:
        lhs: images, of shape (examples, height, width, channels).
        rhs: kernel, of shape (height, width, channels, channels out).
        window_strides: steps of the kernel down and across.
        padding: `"SAME"`, `"VALID"`, or (before, after) down and across.
        options: the others of `lax.conv_general_dilated`; neither dilation nor groups.
    """
    obstacle = _obstacle(lhs, rhs, options)
    if obstacle is not None:
        raise HoldfastError(
            f"convolution by patches: {obstacle}; give images (examples, height, width, channels) "
            f"without dilation or groups, or convolution='xla'."
        )
    down, across = window_strides
    x = _pad(lhs, rhs.shape[:2], (down, across), padding, 0)
    return _product(x, rhs, (down, across), options.get("precision"))


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
        >>> from holdfast.models.convolution import max_pool
        >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0].tolist()
        [[5.0, 7.0], [13.0, 15.0]]
    """
    stride = window if stride is None else stride
    x = _pad(x, (window, window), (stride, stride), padding, -jnp.inf)
    if stride != window:
        return functools.reduce(jnp.maximum, _shifted(x, (window, window), (stride, stride)))
    examples, height, width, channels = x.shape
    down, across = height // window, width // window
    whole = x[:, : down * window, : across * window]
    return whole.reshape(examples, down, window, across, window, channels).max(axis=(2, 4))


def _obstacle(lhs: jax.Array, rhs: jax.Array, options: dict[str, Any]) -> str | None:
    """What patches cannot do, if anything."""
    if lhs.ndim != 4:
        return f"the images have shape {lhs.shape}"
    layout = lax.conv_dimension_numbers(lhs.shape, rhs.shape, options.get("dimension_numbers"))
    if layout != LAYOUT:
        return f"the layout is {layout}"
    for name, value in options.items():
        if name in ("dimension_numbers", "precision") or value is None:
            continue
        if any(v != 1 for v in (value if isinstance(value, Sequence) else (value,))):
            return f"{name}={value}"
    return None


def _pad(
    x: jax.Array,
    window: Sequence[int],
    strides: tuple[int, int],
    padding: Padding,
    value: float,
) -> jax.Array:
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(x.shape[1:3], window, strides, padding)
    pads = [(0, 0, 0), *((before, after, 0) for before, after in padding), (0, 0, 0)]
    return lax.pad(x, jnp.asarray(value, x.dtype), pads)


def _output_size(x: jax.Array, window: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    down, across = (
        (side - of_window) // stride + 1
        for side, of_window, stride in zip(x.shape[1:3], window, strides, strict=True)
    )
    return down, across


def _shifted(x: jax.Array, window: Sequence[int], strides: tuple[int, int]) -> list[jax.Array]:
    """For each place in the window, row by row, the pixels it meets as the window moves."""
    down, across = _output_size(x, window, strides)

    def meets(i: int, j: int) -> jax.Array:
        last = (i + (down - 1) * strides[0] + 1, j + (across - 1) * strides[1] + 1)
        end = (x.shape[0], *last, x.shape[3])
        return lax.slice(x, (0, i, j, 0), end, (1, *strides, 1))

    return [meets(i, j) for i in range(window[0]) for j in range(window[1])]


def _patches(x: jax.Array, window: Sequence[int], strides: tuple[int, int]) -> jax.Array:
    """One row per place of the output."""
    patches = jnp.concatenate(_shifted(x, window, strides), axis=3)
    return patches.reshape(-1, patches.shape[3])


def _forward(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], precision: Any
) -> jax.Array:
    window, channels = kernel.shape[:2], kernel.shape[3]
    rows = _patches(x, window, strides)
    y = jnp.matmul(rows, kernel.reshape(-1, channels), precision=precision)
    return y.reshape(x.shape[0], *_output_size(x, window, strides), channels)


_product = jax.custom_vjp(_forward, nondiff_argnums=(2, 3))


def _product_forward(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], precision: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _forward(x, kernel, strides, precision), (x, kernel)


def _product_backward(
    strides: tuple[int, int], precision: Any, kept: tuple[jax.Array, jax.Array], slope: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    by_place = slope.reshape(-1, slope.shape[3])
    rows = _patches(x, kernel.shape[:2], strides)
    kernel_slope = jnp.matmul(rows.T, by_place, precision=precision)
    rows_slope = jnp.matmul(by_place, kernel.reshape(-1, kernel.shape[3]).T, precision=precision)
    patches_slope = rows_slope.reshape(*slope.shape[:3], -1)
    return _put_back(patches_slope, x, kernel.shape, strides), kernel_slope.reshape(kernel.shape)


def _put_back(
    patches: jax.Array, x: jax.Array, kernel: tuple[int, ...], strides: tuple[int, int]
) -> jax.Array:
    """The transpose of cutting patches out: every entry is added to the pixel it came from."""
    nothing = jnp.zeros((), x.dtype)
    apart = ((0, 0, 0), (0, 0, strides[0] - 1), (0, 0, strides[1] - 1), (0, 0, 0))
    total = jnp.zeros_like(x)
    for number, block in enumerate(jnp.split(patches, kernel[0] * kernel[1], axis=3)):
        corner = (0, *divmod(number, kernel[1]), 0)
        block = lax.pad(block, nothing, apart)
        before = lax.dynamic_slice(total, corner, block.shape)
        total = lax.dynamic_update_slice(total, before + block, corner)
    # So that XLA does not fuse the sum with its uses: that made the steps of a CNN slower.
    return lax.optimization_barrier(total)


_product.defvjp(_product_forward, _product_backward)
