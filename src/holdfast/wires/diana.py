"""Compression of differences to a shift that learns, so that nothing is lost in the end."""

from types import MappingProxyType

import jax

from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.rule import State
from holdfast.core.wire import Wire
from holdfast.trees import Number, Tree, add, axpy, scale, sub, zeros
from holdfast.wires.compressed import Compressed
from holdfast.wires.compressor import (
    Coded,
    Compressor,
    VectorLayout,
    check_compressor,
    compress,
    decompress,
    noise_of,
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

    def __post_init__(self) -> None:
        check_compressor("Diana", self.compressor)
        check_ranges(self)

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
        coded = compress(self.compressor, sub(payload, mine), key)
        difference, move = self.receive(coded)
        return coded, add(mine, difference), add(mine, move)

    def receive(self, coded: Coded) -> Tree:
        difference = decompress(self.compressor, coded)
        return difference, self._move(difference)

    def decode(self, mean: Tree, state: Tree, share: Number) -> tuple[Tree, Tree]:
        difference, move = mean
        return add(state, difference), axpy(share, move, state)

    def noise(self, payload: Tree) -> float:
        return noise_of(self.compressor, payload)

    check = Compressed.check
    bits_up = Compressed.bits_up
    pack = Compressed.pack
    unpack = Compressed.unpack
