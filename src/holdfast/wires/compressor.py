"""What a compressor is, and how a payload becomes the vectors it acts on."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree
from jax.typing import DTypeLike

from holdfast.core.struct import Struct, static
from holdfast.errors import HoldfastError, expect
from holdfast.trees import Number, Tree
from holdfast.wires.packing import Field, Reader, pack


class Compressor(Struct):
    r"""A map from a vector to a code of fewer bits, and back: $C(v) = \text{decode}(\text{encode}(v))$.

    An unbiased one has $E\,C(v) = v$ and $E\|C(v) - v\|^2 \le \omega\|v\|^2$; a biased one is a
    contraction, $E\|C(v) - v\|^2 \le (1 - \delta)\|v\|^2$.
    """

    unbiased: ClassVar[bool] = True

    def encode(self, v: jax.Array, key: jax.Array) -> Tree:
        """The code of a vector."""
        raise NotImplementedError

    def decode(self, code: Tree, dtype: DTypeLike) -> jax.Array:
        """The vector a code stands for."""
        raise NotImplementedError

    def bits(self, size: int, dtype: DTypeLike) -> int:
        """Bits of the code of a vector of `size` numbers of this type."""
        raise NotImplementedError

    def omega(self, size: int) -> Number:
        """The variance bound of an unbiased compressor."""
        raise NotImplementedError

    def delta(self, size: int) -> Number:
        r"""How much a contraction takes away; unbiased compressors are one after division by
        $1 + \omega$."""
        return 1 / (1 + self.omega(size))

    def damping(self, size: int) -> Number:
        """The factor that makes it a contraction."""
        return 1 / (1 + self.omega(size)) if self.unbiased else 1.0

    def noise(self, size: int) -> Number:
        """How large the square of its error can be, relative to what it is given and to what it
        leaves of it: the variance bound, or that of a contraction whose error comes back."""
        return self.omega(size) if self.unbiased else (1 - self.delta(size)) / self.delta(size)

    def check_size(self, size: int) -> None:
        """Refuse to compress vectors of `size` numbers, the largest that a reply has."""

    def fields(self, code: Tree, dtype: DTypeLike) -> list[Field]:
        """The code as whole numbers at their bit width."""
        raise NotImplementedError

    def read(self, message: Reader, size: int, dtype: DTypeLike, key: jax.Array) -> Tree:
        """The code again, from the fields of a message."""
        raise NotImplementedError


def check_compressor(wire: str, given: object) -> None:
    """Refuse what is no compressor, such as the name of one."""
    expect(wire, "compressor", given, Compressor, "hf.wires.RandK(k=10)")


class Part(NamedTuple):
    """Leaves that are compressed as one vector: those of one type, on one side of the payload."""

    leaves: tuple[int, ...]
    dtype: str
    size: int


class VectorLayout(NamedTuple):
    """How a payload is cut into vectors: `delta` is one, what travels beside it another."""

    definition: Any
    shapes: tuple[tuple[int, ...], ...]
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, payload: Tree) -> "VectorLayout":
        """From a payload or its shapes."""
        places, definition = jax.tree_util.tree_flatten_with_path(payload)
        groups: dict[tuple[Any, str], list[int]] = {}
        for i, (path, leaf) in enumerate(places):
            name = jnp.dtype(leaf.dtype).name
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise HoldfastError(
                    f"wire: a reply contains {name}{tuple(leaf.shape)}, and compressors take "
                    f"floating numbers; cast it in the rule's `reply`."
                )
            groups.setdefault((path[0], name), []).append(i)
        shapes = tuple(tuple(leaf.shape) for _, leaf in places)
        parts = [
            Part(tuple(ids), name, sum(int(np.prod(shapes[i])) for i in ids))
            for (_, name), ids in groups.items()
        ]
        return cls(definition, shapes, tuple(parts))

    def vectors(self, payload: Tree) -> list[jax.Array]:
        """The payload as vectors."""
        leaves = tree.leaves(payload)
        return [jnp.concatenate([leaves[i].reshape(-1) for i in p.leaves]) for p in self.parts]

    def payload(self, vectors: list[jax.Array]) -> Tree:
        """The vectors as a payload."""
        leaves: list[Any] = [None] * len(self.shapes)
        for part, vector in zip(self.parts, vectors, strict=True):
            begin = 0
            for i in part.leaves:
                size = int(np.prod(self.shapes[i]))
                leaves[i] = vector[begin : begin + size].reshape(self.shapes[i])
                begin += size
        return tree.unflatten(self.definition, leaves)


class Coded(Struct):
    """The codes of a payload's vectors."""

    codes: tuple[Tree, ...]
    layout: VectorLayout = static()


def compress(compressor: Compressor, payload: Tree, key: jax.Array) -> Coded:
    """The codes of a payload."""
    layout = VectorLayout.of(payload)
    codes = [
        compressor.encode(v, jax.random.fold_in(key, i))
        for i, v in enumerate(layout.vectors(payload))
    ]
    return Coded(tuple(codes), layout)


def decompress(compressor: Compressor, coded: Coded, damped: bool = False) -> Tree:
    """The payload that codes stand for; damped, that of a contraction."""
    vectors = []
    for part, code in zip(coded.layout.parts, coded.codes, strict=True):
        v = compressor.decode(code, part.dtype).astype(part.dtype)
        contracts = not (damped and compressor.unbiased)
        vectors.append(v if contracts else (compressor.damping(part.size) * v).astype(part.dtype))
    return coded.layout.payload(vectors)


def check_sizes(compressor: Compressor, payload: Tree) -> None:
    """Refuse a compressor that the largest vector of a payload is too small for."""
    parts = VectorLayout.of(payload).parts
    compressor.check_size(max((p.size for p in parts), default=0))


def noise_of(compressor: Compressor, payload: Tree) -> float:
    """The noise of a payload's codes: that of its noisiest vector."""
    return max(float(compressor.noise(p.size)) for p in VectorLayout.of(payload).parts)


def code_bits(compressor: Compressor, payload: Tree) -> int:
    """Bits of a payload's codes."""
    parts = VectorLayout.of(payload).parts
    return sum(compressor.bits(p.size, jnp.dtype(p.dtype)) for p in parts)


def pack_codes(compressor: Compressor, coded: Coded) -> bytes:
    """Codes as the bytes that travel."""
    pairs = zip(jax.device_get(coded.codes), coded.layout.parts, strict=True)
    return pack(
        [field for code, part in pairs for field in compressor.fields(code, jnp.dtype(part.dtype))]
    )


def unpack_codes(compressor: Compressor, data: bytes, payload: Tree, key: jax.Array) -> Coded:
    """The codes again, for a payload of these shapes."""
    layout, message = VectorLayout.of(payload), Reader(data)
    codes = [
        compressor.read(message, p.size, jnp.dtype(p.dtype), jax.random.fold_in(key, i))
        for i, p in enumerate(layout.parts)
    ]
    return Coded(tuple(codes), layout)
