"""Send some coordinates: k at random, or the k largest."""

import math
import numbers
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from holdfast.core.hyper import Hyper, PerClient, Range, check_ranges
from holdfast.core.struct import static
from holdfast.errors import HoldfastError
from holdfast.trees import Number
from holdfast.wires.compressor import Compressor
from holdfast.wires.packing import Field, Reader, float_width, floats

_RANGES = MappingProxyType({"k": Range(1, whole=True)})


class Sparse(NamedTuple):
    """Some coordinates of a vector. In memory the others are zeros; on the wire they are absent."""

    values: jax.Array
    kept: jax.Array


def _check(owner: str, k: Hyper | None, share: float | None) -> None:
    if (k is None) == (share is None):
        raise HoldfastError(
            f"{owner}: k={k}, share={share}; give one of them: a number of coordinates, "
            f"or their share in (0, 1].",
            about=("share",),
        )
    if share is not None and not (isinstance(share, numbers.Real) and 0 < share <= 1):
        raise HoldfastError(f"{owner}: share={share!r}; give a number in (0, 1].", about=("share",))


def _check_size(owner: str, k: Hyper | None, size: int) -> None:
    largest = 0 if k is None else float(np.max(k.values if isinstance(k, PerClient) else k))
    if largest > size:
        raise HoldfastError(
            f"{owner}: k={largest:g}, but a reply has {size} numbers; give at most {size}, or share=1.0 for "
            f"all of them.",
            about=("k",),
        )


def _kept(k: Number, share: float | None, size: int) -> Number:
    """How many coordinates of a vector travel: an int if k is known, else a traced number."""
    if share is not None:
        return max(1, math.ceil(share * size))
    if isinstance(k, int | float | np.number):
        return min(max(int(k), 1), size)
    return jnp.clip(jnp.floor(k), 1, size)


def _keep_first(order: jax.Array, k: Number, v: jax.Array) -> Sparse:
    first = jnp.arange(v.size, dtype=jnp.int32) < jnp.asarray(k).astype(jnp.int32)
    kept = jnp.zeros(v.shape, bool).at[order].set(first)
    return Sparse(jnp.where(kept, v, jnp.zeros_like(v)), kept)


def _index_width(size: int) -> int:
    return max(1, (size - 1).bit_length())


def _place_bits(k: int, size: int) -> int:
    """Bits that say which coordinates travel: a list of places or one bit each, whichever is less."""
    return 0 if k == size else min(k * _index_width(size), size)


def _place_fields(kept: np.ndarray) -> list[Field]:
    size, places = len(kept), np.flatnonzero(kept)
    if len(places) == size:
        return []
    if len(places) * _index_width(size) < size:
        return [Field(places, _index_width(size))]
    return [Field(kept, 1)]


def _read_places(message: Reader, k: int, size: int) -> np.ndarray:
    if k == size:
        return np.ones(size, bool)
    if k * _index_width(size) < size:
        kept = np.zeros(size, bool)
        kept[message.take(k, _index_width(size)).astype(np.int64)] = True
        return kept
    return message.take(size, 1).astype(bool)


def _read_values(message: Reader, kept: np.ndarray, dtype: DTypeLike) -> Sparse:
    values = np.zeros(len(kept), dtype)
    values[kept] = message.floats(int(kept.sum()), dtype)
    return Sparse(jnp.asarray(values), jnp.asarray(kept))


class RandK(Compressor):
    r"""k coordinates drawn at random, scaled up to be unbiased.

    $$ C(v) = \tfrac{d}{k} \sum_{j \in S} v_j e_j, \quad |S| = k, \quad \omega = \tfrac{d}{k} - 1 $$

    Travels: k values, and their places at $\lceil\log_2 d\rceil$ bits each or as one bit per
    coordinate, whichever is less.

    Args:
        k: number of coordinates; a number, one per client (`hf.PerClient`) or a schedule.
        share: instead of k, a share of the coordinates.
        shared_seed: the server draws the same places from the run's seed, so they do not travel.

    Reduces to: nothing lost at `share=1`.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> compressor = hf.wires.RandK(k=2)
        >>> v = jnp.array([1.0, -2.0, 3.0, 0.5])
        >>> code = jax.jit(compressor.encode)(v, jax.random.key(0))
        >>> compressor.decode(code, v.dtype).tolist()
        [0.0, 0.0, 6.0, 1.0]
        >>> # Bits of a thousand numbers, which are 32000 without it, and the variance bound.
        >>> compressor.bits(1000, "float32"), compressor.omega(1000)
        (84, 499.0)

    Reference: Khirirat et al., "Distributed learning with compressed gradients", 2018.
    """

    ranges = _RANGES
    k: Hyper | None = None
    share: float | None = static(default=None)
    shared_seed: bool = static(default=False)

    def __post_init__(self) -> None:
        _check("RandK", self.k, self.share)
        check_ranges(self)

    def check_size(self, size: int) -> None:
        _check_size("RandK", self.k, size)

    def _draw(self, size: int, key: jax.Array) -> jax.Array:
        return jnp.argsort(jax.random.bits(key, (size,)))

    def encode(self, v: jax.Array, key: jax.Array) -> Sparse:
        return _keep_first(self._draw(v.size, key), _kept(self.k, self.share, v.size), v)

    def decode(self, code: Sparse, dtype: DTypeLike) -> jax.Array:
        return (1 + self.omega(code.values.size)) * code.values

    def omega(self, size: int) -> Number:
        return size / _kept(self.k, self.share, size) - 1

    def bits(self, size: int, dtype: DTypeLike) -> int:
        k = int(_kept(self.k, self.share, size))
        return k * float_width(dtype) + (0 if self.shared_seed else _place_bits(k, size))

    def fields(self, code: Sparse, dtype: DTypeLike) -> list[Field]:
        kept = np.asarray(code.kept)
        places = [] if self.shared_seed else _place_fields(kept)
        return [*places, floats(np.asarray(code.values)[kept])]

    def read(self, message: Reader, size: int, dtype: DTypeLike, key: jax.Array) -> Sparse:
        k = int(_kept(self.k, self.share, size))
        if self.shared_seed:
            kept = np.zeros(size, bool)
            kept[np.asarray(self._draw(size, key))[:k]] = True
        else:
            kept = _read_places(message, k, size)
        return _read_values(message, kept, dtype)


class TopK(Compressor):
    r"""The k coordinates of largest magnitude.

    $$ C(v) = \sum_{j \in S} v_j e_j, \quad S = \text{the } k \text{ largest } |v_j|, \quad
       \delta = \tfrac{k}{d} $$

    Biased: give it to `hf.wires.ErrorFeedback`, or what it never sends is lost.
    Travels: k values, and their places at $\lceil\log_2 d\rceil$ bits each or as one bit per
    coordinate, whichever is less.

    Args:
        k: number of coordinates; a number, one per client (`hf.PerClient`) or a schedule.
        share: instead of k, a share of the coordinates.

    Reduces to: nothing lost at `share=1`.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> compressor = hf.wires.TopK(k=2)
        >>> v = jnp.array([1.0, -2.0, 3.0, 0.5])
        >>> code = jax.jit(compressor.encode)(v, jax.random.key(0))
        >>> compressor.decode(code, v.dtype).tolist()
        [0.0, -2.0, 3.0, 0.0]
        >>> # Bits of a thousand numbers, which are 32000 without it, and the contraction.
        >>> compressor.bits(1000, "float32"), compressor.delta(1000)
        (84, 0.002)

    Reference: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """

    unbiased = False
    ranges = _RANGES
    k: Hyper | None = None
    share: float | None = static(default=None)

    def __post_init__(self) -> None:
        _check("TopK", self.k, self.share)
        check_ranges(self)

    def check_size(self, size: int) -> None:
        _check_size("TopK", self.k, size)

    def encode(self, v: jax.Array, key: jax.Array) -> Sparse:
        return _keep_first(jnp.argsort(-jnp.abs(v)), _kept(self.k, self.share, v.size), v)

    def decode(self, code: Sparse, dtype: DTypeLike) -> jax.Array:
        return code.values

    def delta(self, size: int) -> Number:
        return _kept(self.k, self.share, size) / size

    def bits(self, size: int, dtype: DTypeLike) -> int:
        k = int(_kept(self.k, self.share, size))
        return k * float_width(dtype) + _place_bits(k, size)

    def fields(self, code: Sparse, dtype: DTypeLike) -> list[Field]:
        kept = np.asarray(code.kept)
        return [*_place_fields(kept), floats(np.asarray(code.values)[kept])]

    def read(self, message: Reader, size: int, dtype: DTypeLike, key: jax.Array) -> Sparse:
        kept = _read_places(message, int(_kept(self.k, self.share, size)), size)
        return _read_values(message, kept, dtype)
