"""Compression of differences to a shift that learns, so that nothing is lost in the end."""

import dataclasses
import functools
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.rule import State
from holdfast.core.struct import static
from holdfast.core.wire import Wire
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree, add, axpy, nbytes, scale, select, sub, zeros
from holdfast.wires.compressed import Compressed
from holdfast.wires.compressor import (
    Coded,
    Compressor,
    VectorLayout,
    check_compressor,
    code_bits,
    compress,
    decompress,
    noise_of,
    pack_codes,
    unpack_codes,
)


class Diana(Wire):
    r"""Clients compress the difference of their reply to a shift, and both sides move the shift.

    $$ m_i = C(d_i - h_i), \quad h_i \leftarrow h_i + \beta_i m_i, \quad
       d = h + \overline{m_i}, \quad h \leftarrow h + \tfrac{|S|}{N}\overline{\beta_i m_i} $$

    The shifts learn the replies at the optimum, so the noise of compression vanishes there. The
    server keeps only the mean of the shifts: it learns the mean of replies, not each, and a rule
    that hears each reply must be `hf.Uploaded`.
    Travels: the model down, the code of the difference up.

    Args:
        compressor: any of `hf.wires`; with a biased one this is EF21.
        beta: $\beta$, a number or one per client; unless given, $1 / (1 + \omega)$, and 1 for a biased
            compressor.
        start: what shifts are at first: `"zeros"`, or for clients of the first round their replies to
            it, which travel whole then: `"gradients"`, $h_i^0 = \nabla f_i(x^0)$ with one step a round.

    Reduces to: `Compressed` at `beta=0`; the bare wire if nothing is lost.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> # One number of two travels; what the shift has learned need not travel again.
        >>> wire = hf.wires.Diana(hf.wires.TopK(k=1))
        >>> payload = (jnp.array([2.5, 1.0]), ())
        >>> kept = wire.init(payload, ()).client
        >>> for _ in range(3):
        ...     _, told, kept = wire.encode(payload, kept, jax.random.key(0))
        ...     print(told[0])
        [2.5 0. ]
        [2.5 1. ]
        [2.5 1. ]

    Reference: Mishchenko et al., "Distributed learning with compressed gradient differences", 2019;
    Richtárik, Sokolov and Fatkhullin, "EF21", NeurIPS 2021.
    """

    lossless = False
    hears_each = False
    ranges = MappingProxyType({"beta": Range(0, 1)})
    compressor: Compressor
    beta: Hyper | None = None
    start: Literal["zeros", "gradients"] = static(default="zeros")
    # 1 in the round whose replies travel whole, else 0.
    whole: Hyper | None = None

    def __post_init__(self) -> None:
        check_compressor("Diana", self.compressor)
        check_ranges(self)
        if self.start not in ("zeros", "gradients"):
            raise HoldfastError(
                f"Diana: start={self.start!r}; give 'zeros' or 'gradients'.", about=("start",)
            )
        if self.start == "gradients" and self.whole is None:
            object.__setattr__(self, "whole", functools.partial(_is_round, 0))

    def beginning(self, t: int) -> "Diana":
        if self.start == "zeros":
            return self
        return dataclasses.replace(self, whole=functools.partial(_is_round, t))

    def init(self, payload: Tree, broadcast: Tree) -> State:
        return State(server=zeros(payload), client=zeros(payload))  # h, h_i

    def _move(self, difference: Tree) -> Tree:
        """What the shift makes of a difference."""
        if self.beta is not None:
            return scale(self.beta, difference)
        if not self.compressor.unbiased:
            return difference
        layout = VectorLayout.of(difference)
        pairs = zip(layout.parts, layout.vectors(difference), strict=True)
        moves = [(self.compressor.damping(p.size) * v).astype(v.dtype) for p, v in pairs]
        return layout.payload(moves)

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        coded: Any = compress(self.compressor, sub(payload, mine), key)
        if self.whole is not None:
            # Every shift is 0 before that round, so the reply is its difference to the shift.
            coded = Opening(coded, select(self._is_whole, payload, zeros(payload)))
        difference, move = self.receive(coded)
        return coded, add(mine, difference), add(mine, move)

    @property
    def _is_whole(self) -> jax.Array:
        return jnp.asarray(self.whole) > 0

    def receive(self, coded: Any) -> Tree:
        if self.whole is None:
            difference = decompress(self.compressor, coded)
            return difference, self._move(difference)
        difference = decompress(self.compressor, coded.coded)
        compressed = difference, self._move(difference)
        return select(self._is_whole, (coded.payload, coded.payload), compressed)

    def decode(self, mean: Tree, state: Tree, share: Number) -> tuple[Tree, Tree]:
        difference, move = mean
        return add(state, difference), axpy(share, move, state)

    def noise(self, payload: Tree) -> float:
        return noise_of(self.compressor, payload)

    check = Compressed.check

    def bits_up(self, payload: Tree) -> int:
        return 8 * nbytes(payload) if self.whole else code_bits(self.compressor, payload)

    def pack(self, coded: Any) -> bytes:
        if self.whole is None:
            return pack_codes(self.compressor, coded)
        if self.whole:
            return super().pack(coded.payload)
        return pack_codes(self.compressor, coded.coded)

    def unpack(self, data: bytes, payload: Tree, key: jax.Array) -> Any:
        if self.whole is None:
            return unpack_codes(self.compressor, data, payload, key)
        nothing = tree.map(lambda a: jnp.zeros(a.shape, a.dtype), payload)
        if not self.whole:
            return Opening(unpack_codes(self.compressor, data, payload, key), nothing)
        return Opening(compress(self.compressor, nothing, key), super().unpack(data, payload, key))


class Opening(NamedTuple):
    """A code, and the whole reply in the round in which that travels instead; zeros in others."""

    coded: Coded
    payload: Tree


def _is_round(wanted: int, t: int) -> float:
    return float(t == wanted)
