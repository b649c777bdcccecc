"""Convolution and max pooling that are fast on a CPU also inside a compiled loop."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax import lax

from holdfast.errors import HoldfastError

Convolution: TypeAlias = Literal["auto", "patches", "xla"]
Padding: TypeAlias = str | Sequence[tuple[int, int]]

# Bytes of patches at a time; measured with 0.5 MB of second-level cache.
_BYTES = 3 << 19

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
        raise HoldfastError(
            f"convolution={setting!r} is not known; give one of {known}.", about=("convolution",)
        )
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
        >>> import jax
        >>> import jax.numpy as jnp
        >>> layer = nn.Conv(1, (3, 3), conv_general_dilated=hf.models.convolve)
        >>> params = {"kernel": jnp.ones((3, 3, 1, 1)), "bias": jnp.zeros(1)}
        >>> found = jax.jit(layer.apply)({"params": params}, jnp.ones((1, 3, 3, 1)))
        >>> found[0, :, :, 0].tolist()
        [[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]
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
    larger than the image by the size of the kernel, so it is built for a few images at a time, which
    stay in the processor's cache, and backwards it is built again, not kept.

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
        down, across = _output_size(x, (window, window), (stride, stride))
        x = functools.reduce(jnp.maximum, _shifted(x, 2, window, across, stride))
        return functools.reduce(jnp.maximum, _shifted(x, 1, window, down, stride))
    down, across = x.shape[1] // window, x.shape[2] // window
    return _side_by_side(x[:, : down * window, : across * window], window)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _side_by_side(x: jax.Array, window: int) -> jax.Array:
    return functools.reduce(jnp.maximum, _corners(x, window))


@_side_by_side.defjvp
def _side_by_side_slope(
    window: int, given: tuple[jax.Array], slopes: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # JAX's own gradient of the maximum of an axis goes over the image twice as often.
    (x,), (slope,) = given, slopes
    largest = _side_by_side(x, window)
    shared_by = sum((corner == largest).astype(x.dtype) for corner in _corners(x, window))
    examples, down, across, channels = largest.shape
    windows = (examples, down, window, across, window, channels)
    is_largest = x.reshape(windows) == largest[:, :, None, :, None]
    passed = jnp.where(is_largest, slope.reshape(windows), 0)
    return largest, passed.sum(axis=(2, 4)) / shared_by


def _corners(x: jax.Array, window: int) -> list[jax.Array]:
    """For each place in windows that lie side by side, its pixels."""
    places = [(i, j) for i in range(window) for j in range(window)]
    return [lax.slice(x, (0, i, j, 0), x.shape, (1, window, window, 1)) for i, j in places]


class ConvolutionLayer(nn.Module):
    """A convolution and a bias, pooled if asked, then ReLU."""

    width: int
    kernel: int
    padding: str
    pooled: bool
    convolution: Convolution

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # In 32 bits, as flax draws its own layers, also where 64 are enabled.
        shape = (self.kernel, self.kernel, x.shape[3], self.width)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.width,), jnp.float32)
        x, kernel, bias = promote_dtype(x, kernel, bias, dtype=None)
        by = convolution_by(self.convolution)
        y = by(x, kernel, (1, 1), self.padding, dimension_numbers=LAYOUT)
        # Bias and ReLU keep the order of numbers, so they may wait and have a quarter to do.
        y = max_pool(y) if self.pooled else y
        return nn.relu(y + bias[None, None, None])


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


def _shifted(x: jax.Array, axis: int, places: int, size: int, stride: int) -> list[jax.Array]:
    """For each place in a window along one axis, the pixels it meets as the window moves."""

    def meets(place: int) -> jax.Array:
        return lax.slice_in_dim(x, place, place + (size - 1) * stride + 1, stride, axis)

    return [meets(place) for place in range(places)]


def _patches(x: jax.Array, window: Sequence[int], strides: tuple[int, int]) -> jax.Array:
    """One row per place of the output: across first, so that down whole rows of a patch are copied."""
    down, across = _output_size(x, window, strides)
    x = jnp.concatenate(_shifted(x, 2, window[1], across, strides[1]), axis=3)
    x = jnp.concatenate(_shifted(x, 1, window[0], down, strides[0]), axis=3)
    return x.reshape(-1, x.shape[3])


def _put_back(
    rows: jax.Array, x: jax.Array, window: Sequence[int], strides: tuple[int, int]
) -> jax.Array:
    """The transpose of cutting patches out: every entry is added to the pixel it came from."""
    examples, height, _, channels = x.shape
    down, across = _output_size(x, window, strides)
    patches = rows.reshape(examples, down, across, -1)
    strips = jnp.zeros((examples, height, across, window[1] * channels), x.dtype)
    strips = _add_back(strips, patches, 1, window[0], strides[0])
    return _add_back(jnp.zeros_like(x), strips, 2, window[1], strides[1])


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


def _block(x: jax.Array, kernel: jax.Array, strides: tuple[int, int]) -> int:
    """How many images at a time: patches are larger than images, and should stay in the cache."""
    examples = x.shape[0]
    down, across = _output_size(x, kernel.shape[:2], strides)
    bytes_each = down * across * kernel[..., 0].size * x.dtype.itemsize
    most = max(1, _BYTES // bytes_each)
    best = max(n for n in range(1, examples + 1) if examples % n == 0 and n <= most)
    # A batch of, say, 47 has no blocks; one by one would cost more than the cache saves.
    return best if 4 * best > min(most, examples) else examples


def _forward(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], precision: Any
) -> jax.Array:
    window, channels = kernel.shape[:2], kernel.shape[3]
    matrix, block = kernel.reshape(-1, channels), _block(x, kernel, strides)
    size = (block, *_output_size(x, window, strides), channels)

    def convolved(x: jax.Array) -> jax.Array:
        rows = _patches(x, window, strides)
        return jnp.matmul(rows, matrix, precision=precision).reshape(size)

    if block == x.shape[0]:
        return convolved(x)

    def step(i: Any, y: jax.Array) -> jax.Array:
        here = convolved(_images(x, i, block))
        return lax.dynamic_update_slice_in_dim(y, here, i * block, 0)

    start = jnp.zeros((x.shape[0], *size[1:]), x.dtype)
    return lax.fori_loop(0, x.shape[0] // block, step, start)


def _images(x: jax.Array, i: Any, block: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(x, i * block, block)


_product = jax.custom_vjp(_forward, nondiff_argnums=(2, 3))


def _product_forward(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], precision: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _forward(x, kernel, strides, precision), (x, kernel)


def _product_backward(
    strides: tuple[int, int], precision: Any, kept: tuple[jax.Array, jax.Array], slope: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    window, channels = kernel.shape[:2], kernel.shape[3]
    transposed, block = kernel.reshape(-1, channels).T, _block(x, kernel, strides)

    # Transposed, with the small factor on the left: faster by a third.
    def of_kernel(x: jax.Array, slope: jax.Array) -> jax.Array:
        by_place = slope.reshape(-1, channels)
        return jnp.matmul(by_place.T, _patches(x, window, strides), precision=precision)

    def of_images(slope: jax.Array, x: jax.Array) -> jax.Array:
        rows = jnp.matmul(slope.reshape(-1, channels), transposed, precision=precision)
        return _put_back(rows, x, window, strides)

    if block == x.shape[0]:
        return of_images(slope, x), of_kernel(x, slope).T.reshape(kernel.shape)

    # Two loops, so that one goes away if nobody asks for the gradient of the images.
    def add_kernel(i: Any, total: jax.Array) -> jax.Array:
        return total + of_kernel(_images(x, i, block), _images(slope, i, block))

    def put_images(i: Any, total: jax.Array) -> jax.Array:
        here = of_images(_images(slope, i, block), _images(x, i, block))
        return lax.dynamic_update_slice_in_dim(total, here, i * block, 0)

    blocks = x.shape[0] // block
    kernel_slope = lax.fori_loop(0, blocks, add_kernel, jnp.zeros_like(transposed))
    x_slope = lax.fori_loop(0, blocks, put_images, jnp.zeros_like(x))
    return x_slope, kernel_slope.T.reshape(kernel.shape)


_product.defvjp(_product_forward, _product_backward)
