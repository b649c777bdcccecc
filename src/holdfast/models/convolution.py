"""Convolution that is fast on a CPU also inside a compiled loop."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax import lax, tree
from jax.custom_derivatives import SymbolicZero

from holdfast.errors import HoldfastError
from holdfast.models.patches import Patches
from holdfast.models.pooling import (
    Padding,
    largest_of_four,
    max_pool,
    output_size,
    pad,
    pads_of,
    shared_among_four,
)
from holdfast.models.winograd import FILTERINGS, Winograd

Convolution: TypeAlias = Literal["auto", "patches", "xla"]
Way: TypeAlias = Patches | Winograd

# Bytes of patches or tiles at a time; measured with 1 MB of second-level cache.
_BYTES = 3 << 19
# Channels from which on fewer multiplications are worth their additions.
_CHANNELS = 8

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
    """`lax.conv_general_dilated`, in ways of our own if the program being traced is for a CPU.

    XLA's own convolution is slow on a CPU inside a loop, where local training happens. There matrix
    products over patches (`convolve_patches`) do the same many times faster, and kernels of 3 x 3 and
    5 x 5 that move by one pixel need half of the multiplications (Winograd's filtering, which rounds
    no worse). What neither can do is left to XLA.

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
    how = _chosen(lhs, rhs, window_strides, padding, options)
    if how is None:
        return lax.conv_general_dilated(lhs, rhs, window_strides, padding, **options)
    return _convolved(lhs, rhs, how)


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
    return _convolved(lhs, rhs, _by_patches(lhs, rhs, window_strides, padding, options))


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
        # Bias and ReLU keep the order of numbers, so they may wait and have a quarter to do.
        return nn.relu(self._pooled(x, kernel) + bias[None, None, None])

    def _pooled(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        options = {"dimension_numbers": LAYOUT}
        given = (x, kernel, (1, 1), self.padding)
        ways = {"auto": _chosen, "patches": _by_patches}
        how = ways[self.convolution](*given, options) if self.convolution in ways else None
        if how is not None:
            return _convolved(x, kernel, dataclasses.replace(how, pooled=self.pooled))
        y = convolution_by(self.convolution)(*given, **options)
        return max_pool(y) if self.pooled else y


@dataclasses.dataclass(frozen=True)
class _How:
    """What is the same for all blocks of images."""

    way: Way
    pads: tuple[tuple[int, int], tuple[int, int]]
    window: tuple[int, int]
    strides: tuple[int, int]
    pooled: bool = False

    def block(self, x: jax.Array, kernel: jax.Array) -> int:
        """How many images at a time: what is made of them is larger, and should stay in the cache."""
        # A large kernel is read and added to for every block, so let that be worth it.
        room = max(_BYTES, kernel.size * x.dtype.itemsize)
        padded = jax.eval_shape(self.padded, x)
        most = max(1, room // self.way.bytes_each(padded, kernel))
        return math.ceil(x.shape[0] / math.ceil(x.shape[0] / most))

    def padded(self, x: jax.Array) -> jax.Array:
        """Images with zeros around them."""
        return pad(x, self.pads, 0)

    def size(self, x: jax.Array) -> tuple[int, ...]:
        """Height and width of the convolution."""
        return output_size(jax.eval_shape(self.padded, x), self.window, self.strides)


def _by_patches(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Padding,
    options: dict[str, Any],
) -> _How:
    obstacle = _obstacle(x, kernel, options)
    if obstacle is not None:
        raise HoldfastError(
            f"convolution by patches: {obstacle}; give images (examples, height, width, channels) "
            f"without dilation or groups, or convolution='xla'."
        )
    window, apart = (kernel.shape[0], kernel.shape[1]), (strides[0], strides[1])
    way = Patches(window, apart, options.get("precision"))
    return _How(way, pads_of(x, window, apart, padding), window, apart)


def _chosen(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Padding,
    options: dict[str, Any],
) -> _How | None:
    """What is fastest on a CPU; none elsewhere."""
    if jax.default_backend() != "cpu" or _obstacle(x, kernel, options) is not None:
        return None
    how = _by_patches(x, kernel, strides, padding, options)
    down, across, *channels = kernel.shape
    known = down == across and down in FILTERINGS and how.strides == (1, 1)
    if known and min(channels) >= _CHANNELS:
        return dataclasses.replace(how, way=Winograd(down, options.get("precision")))
    return how


def _obstacle(lhs: jax.Array, rhs: jax.Array, options: dict[str, Any]) -> str | None:
    """What neither way can do, if anything."""
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolved(x: jax.Array, kernel: jax.Array, how: _How) -> jax.Array:
    return _forward(x, kernel, how)[0]


def _forward(x: jax.Array, kernel: jax.Array, how: _How) -> tuple[jax.Array, jax.Array | None]:
    """The convolution, and where the largest pixels were if it is pooled."""
    matrix, block = how.way.matrix(kernel), how.block(x, kernel)

    def here(x: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        y = how.way.convolved(how.padded(x), matrix)
        return largest_of_four(y) if how.pooled else (y, None)

    if block == x.shape[0]:
        return here(x)

    def step(i: Any, found: Any) -> Any:
        start = _start(i, block, x)
        return _put(found, here(_images(x, start, block)), start)

    return _loop(x, block, step, _room(here, x, block))


def _convolved_forward(x: Any, kernel: Any, how: _How) -> tuple[jax.Array, tuple[Any, ...]]:
    y, places = _forward(x.value, kernel.value, how)
    # Nobody asks for the gradient of the first layer's images.
    return y, (x.value, kernel.value, places, () if x.perturbed else None)


def _convolved_backward(
    how: _How, kept: tuple[Any, ...], slope: Any
) -> tuple[jax.Array | None, jax.Array]:
    x, kernel, places, images = kept
    if isinstance(slope, SymbolicZero):
        slope = jnp.zeros(slope.shape, slope.dtype)
    matrix, block = how.way.matrix(kernel), how.block(x, kernel)

    def unpooled(slope: jax.Array, places: jax.Array | None) -> jax.Array:
        return slope if places is None else shared_among_four(slope, places, how.size(x))

    if isinstance(how.way, Winograd):
        # Not in the loop: XLA would do it again for each of the products.
        slope, places = unpooled(slope, places), None

    def here(given: Any, seen: Any) -> tuple[jax.Array, jax.Array | None]:
        x, slope, places = given
        slope, whole = unpooled(slope, places), how.padded(x)
        of_images = None
        if images is not None:
            cut = [(-before, -after) for before, after in how.pads]
            of_images = pad(how.way.of_images(slope, matrix, whole), cut, 0)
        if seen is not None:
            # The last block overlaps the one before if blocks do not divide the batch.
            new = jnp.arange(x.shape[0]) >= seen
            whole = jnp.where(new[:, None, None, None], whole, 0)
        return how.way.of_matrix(whole, slope), of_images

    given = (x, slope, places)
    if block == x.shape[0]:
        total, of_images = here(given, None)
        return of_images, how.way.of_kernel(total, kernel)

    def step(i: Any, found: Any) -> Any:
        start = _start(i, block, x)
        seen = None if x.shape[0] % block == 0 else i * block - start
        total, of_images = here(tree.map(lambda a: _images(a, start, block), given), seen)
        return found[0] + total, _put(found[1], of_images, start)

    first = tree.map(lambda a: a[:block], given)
    of_matrix = jax.eval_shape(lambda: here(first, None)[0])
    room = (
        jnp.zeros(of_matrix.shape, of_matrix.dtype),
        None if images is None else jnp.zeros_like(x),
    )
    total, of_images = _loop(x, block, step, room)
    return of_images, how.way.of_kernel(total, kernel)


_convolved.defvjp(_convolved_forward, _convolved_backward, symbolic_zeros=True)


def _loop(x: jax.Array, block: int, step: Callable[[Any, Any], Any], room: Any) -> Any:
    return lax.fori_loop(0, math.ceil(x.shape[0] / block), step, room)


def _start(i: Any, block: int, x: jax.Array) -> Any:
    return i * block if x.shape[0] % block == 0 else jnp.minimum(i * block, x.shape[0] - block)


def _images(x: jax.Array, start: Any, block: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(x, start, block)


def _put(found: Any, here: Any, start: Any) -> Any:
    return tree.map(lambda a, b: lax.dynamic_update_slice_in_dim(a, b, start, 0), found, here)


def _room(here: Callable[[jax.Array], Any], x: jax.Array, block: int) -> Any:
    """Zeros of the shape of all blocks."""
    of_block = jax.eval_shape(here, x[:block])
    return tree.map(lambda a: jnp.zeros((x.shape[0], *a.shape[1:]), a.dtype), of_block)
