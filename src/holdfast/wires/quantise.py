"""Send every coordinate, each in fewer bits."""

import math
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.struct import static
from holdfast.errors import HoldfastError
from holdfast.trees import Number
from holdfast.wires.compressor import Compressor
from holdfast.wires.packing import Field, Reader, float_width, floats


class Levels(NamedTuple):
    """Whole numbers of a common unit."""

    levels: jax.Array
    scale: jax.Array


class Quantise(Compressor):
    r"""QSGD: each coordinate is rounded at random to one of s levels of the vector's norm.

    $$ C(v)_j = \|v\|\,\mathrm{sign}(v_j)\,\tfrac{\ell_j}{s}, \quad
       \omega = \min\big(\tfrac{d}{s^2}, \tfrac{\sqrt d}{s}\big) $$

    Travels: the norm, and one of $2s + 1$ numbers per coordinate at a fixed width.

    Args:
        levels: s; a number, one per client (`hf.PerClient`) or a schedule.

    Reduces to: nothing lost as s grows.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> compressor = hf.wires.Quantise(levels=7)
        >>> v = jnp.array([1.0, -2.0, 3.0, 0.5])
        >>> code = jax.jit(compressor.encode)(v, jax.random.key(0))
        >>> code.levels.tolist(), [round(w, 2) for w in compressor.decode(code, v.dtype).tolist()]
        ([1, -3, 6, 1], [0.54, -1.62, 3.24, 0.54])
        >>> # Bits of a thousand numbers, which are 32000 without it, and the variance bound.
        >>> compressor.bits(1000, "float32"), round(float(compressor.omega(1000)), 2)
        (4032, 4.52)

    Reference: Alistarh et al., "QSGD", NeurIPS 2017.
    """

    ranges = MappingProxyType({"levels": Range(1, whole=True)})
    levels: Hyper

    def __post_init__(self) -> None:
        check_ranges(self)

    def _levels(self) -> Number:
        if isinstance(self.levels, int | float | np.number):
            return int(self.levels)
        return jnp.floor(self.levels)

    def encode(self, v: jax.Array, key: jax.Array) -> Levels:
        length = jnp.linalg.norm(v)
        safe = jnp.where(length > 0, length, jnp.ones_like(length))
        exact = jnp.abs(v) / safe * self._levels()
        low = jnp.floor(exact)
        up = jax.random.uniform(key, v.shape, v.dtype) < exact - low
        return Levels((jnp.sign(v) * (low + up.astype(v.dtype))).astype(jnp.int32), length)

    def decode(self, code: Levels, dtype: DTypeLike) -> jax.Array:
        return code.scale * code.levels.astype(code.scale.dtype) / self._levels()

    def omega(self, size: int) -> Number:
        s = self._levels()
        return jnp.minimum(size / s**2, math.sqrt(size) / s)

    def _width(self) -> int:
        return (2 * int(self._levels())).bit_length()

    def bits(self, size: int, dtype: DTypeLike) -> int:
        return float_width(dtype) + size * self._width()

    def fields(self, code: Levels, dtype: DTypeLike) -> list[Field]:
        shifted = np.asarray(code.levels, np.int64) + int(self._levels())
        return [floats(code.scale), Field(shifted, self._width())]

    def read(self, message: Reader, size: int, dtype: DTypeLike, key: jax.Array) -> Levels:
        scale = message.floats(1, dtype)[0]
        shifted = message.take(size, self._width()).astype(np.int64)
        levels = (shifted - int(self._levels())).astype(np.int32)
        return Levels(jnp.asarray(levels), jnp.asarray(scale))


class Powers(NamedTuple):
    """Signs and exponents of two, counted from the lowest of the type; 0 is the number 0."""

    negative: jax.Array
    exponents: jax.Array


def _exponents(dtype: DTypeLike) -> tuple[int, int]:
    """Exponents of the smallest and the largest power of two of a type."""
    about = jnp.finfo(dtype)
    return int(about.minexp), int(about.maxexp) - 1


def _exponent_width(dtype: DTypeLike) -> int:
    lowest, highest = _exponents(dtype)
    return (highest - lowest + 1).bit_length()


class Natural(Compressor):
    r"""Each coordinate is rounded at random to one of the two nearest powers of two.

    $$ C(t) = \mathrm{sign}(t)\, 2^{\lfloor \log_2|t| \rfloor + b}, \quad
       P(b = 1) = |t| / 2^{\lfloor\log_2|t|\rfloor} - 1, \quad \omega = \tfrac18 $$

    Travels: sign and exponent, 9 bits of a float32 and 12 of a float64.

    Reduces to: nothing lost on powers of two.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> compressor = hf.wires.Natural()
        >>> v = jnp.array([1.0, -2.5, 3.5, 0.3])
        >>> code = jax.jit(compressor.encode)(v, jax.random.key(0))
        >>> compressor.decode(code, v.dtype).tolist()
        [1.0, -2.0, 4.0, 0.25]
        >>> # Bits of a thousand numbers, which are 32000 without it, and the variance bound.
        >>> compressor.bits(1000, "float32"), compressor.omega(1000)
        (9000, 0.125)

    Reference: Horváth et al., "Natural compression for distributed deep learning", 2019.
    """

    def encode(self, v: jax.Array, key: jax.Array) -> Powers:
        lowest, highest = _exponents(v.dtype)
        # |v| = fraction 2^exponent, fraction in [1/2, 1)
        fraction, exponent = jnp.frexp(jnp.abs(v))
        up = jax.random.uniform(key, v.shape, v.dtype) < 2 * fraction - 1
        power = jnp.minimum(exponent - 1 + up.astype(exponent.dtype), highest)
        stored = jnp.where((v == 0) | (power < lowest), 0, power - lowest + 1)
        return Powers(v < 0, stored.astype(jnp.int32))

    def decode(self, code: Powers, dtype: DTypeLike) -> jax.Array:
        lowest, _ = _exponents(dtype)
        sign = jnp.where(code.negative, -1.0, 1.0).astype(dtype)
        power = jnp.ldexp(sign, code.exponents - 1 + lowest)
        return jnp.where(code.exponents > 0, power, jnp.zeros_like(power))

    def omega(self, size: int) -> Number:
        return 0.125

    def bits(self, size: int, dtype: DTypeLike) -> int:
        return size * (1 + _exponent_width(dtype))

    def fields(self, code: Powers, dtype: DTypeLike) -> list[Field]:
        return [
            Field(np.asarray(code.negative), 1),
            Field(np.asarray(code.exponents), _exponent_width(dtype)),
        ]

    def read(self, message: Reader, size: int, dtype: DTypeLike, key: jax.Array) -> Powers:
        negative = message.take(size, 1).astype(bool)
        exponents = message.take(size, _exponent_width(dtype)).astype(np.int32)
        return Powers(jnp.asarray(negative), jnp.asarray(exponents))


class Signs(NamedTuple):
    """One bit per coordinate, and how far all of them go."""

    negative: jax.Array
    scale: jax.Array


class Sign(Compressor):
    r"""The signs, times the mean magnitude.

    $$ C(v) = \tfrac{\|v\|_1}{d}\, \mathrm{sign}(v), \quad \delta \ge \tfrac1d $$

    Biased: give it to `hf.wires.ErrorFeedback`.
    Travels: one bit per coordinate and one number.

    Reduces to: nothing lost on vectors of one magnitude.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> compressor = hf.wires.Sign()
        >>> v = jnp.array([1.0, -2.0, 3.0, 0.5])
        >>> code = jax.jit(compressor.encode)(v, jax.random.key(0))
        >>> compressor.decode(code, v.dtype).tolist()
        [1.625, -1.625, 1.625, 1.625]
        >>> # Bits of a thousand numbers, which are 32000 without it.
        >>> compressor.bits(1000, "float32")
        1032

    Reference: Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019.
    """

    unbiased = False

    def encode(self, v: jax.Array, key: jax.Array) -> Signs:
        return Signs(v < 0, jnp.mean(jnp.abs(v)))

    def decode(self, code: Signs, dtype: DTypeLike) -> jax.Array:
        return jnp.where(code.negative, -code.scale, code.scale)

    def delta(self, size: int) -> Number:
        return 1 / size

    def bits(self, size: int, dtype: DTypeLike) -> int:
        return size + float_width(dtype)

    def fields(self, code: Signs, dtype: DTypeLike) -> list[Field]:
        return [Field(np.asarray(code.negative), 1), floats(code.scale)]

    def read(self, message: Reader, size: int, dtype: DTypeLike, key: jax.Array) -> Signs:
        negative = message.take(size, 1).astype(bool)
        return Signs(jnp.asarray(negative), jnp.asarray(message.floats(1, dtype)[0]))


class Cast(Compressor):
    r"""Every number in 16 bits, rounded to the nearest.

    $$ |C(v)_j - v_j| \le 2^{-8} |v_j| \text{ (bfloat16)}, \quad
       2^{-11} |v_j| \text{ (float16, above its smallest normal number)} $$

    Slightly biased. `"bfloat16"` has the range of a float32; `"float16"` has three bits more, and
    numbers above 65504 overflow, in which case the reply is left out of the round.
    Travels: half of a float32.

    Args:
        dtype: `"bfloat16"` or `"float16"`.

    Reduces to: nothing lost on numbers of few digits.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> v = jnp.array([0.1, 3.14159, 1e5])
        >>> for dtype in ("bfloat16", "float16"):
        ...     compressor = hf.wires.Cast(dtype)
        ...     code = compressor.encode(v, jax.random.key(0))
        ...     print([f"{w:.5g}" for w in compressor.decode(code, v.dtype).tolist()])
        ['0.1001', '3.1406', '99840']
        ['0.099976', '3.1406', 'inf']
        >>> compressor.bits(1000, "float32")
        16000
    """

    unbiased = False
    dtype: str = static(default="bfloat16")

    def __post_init__(self) -> None:
        if self.dtype not in ("bfloat16", "float16"):
            raise HoldfastError(
                f"Cast: dtype={self.dtype!r}; give 'bfloat16' or 'float16'.", about=("dtype",)
            )

    def encode(self, v: jax.Array, key: jax.Array) -> jax.Array:
        return v.astype(self.dtype)

    def decode(self, code: jax.Array, dtype: DTypeLike) -> jax.Array:
        return code.astype(dtype)

    def delta(self, size: int) -> Number:
        return 1 - 4.0 ** -(8 if self.dtype == "bfloat16" else 11)

    def bits(self, size: int, dtype: DTypeLike) -> int:
        return 16 * size

    def fields(self, code: jax.Array, dtype: DTypeLike) -> list[Field]:
        return [floats(code)]

    def read(self, message: Reader, size: int, dtype: DTypeLike, key: jax.Array) -> jax.Array:
        return jnp.asarray(message.floats(size, jnp.dtype(self.dtype)))
