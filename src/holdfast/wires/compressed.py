"""Plain compression of every reply."""

import jax

from holdfast.core.wire import Wire
from holdfast.trees import Tree
from holdfast.wires.compressor import (
    Coded,
    Compressor,
    code_bits,
    compress,
    decompress,
    noise_of,
    pack_codes,
    unpack_codes,
)


class Compressed(Wire):
    r"""Replies are compressed and nothing else is done about it: DCGD with one full-batch step.

    $$ x \leftarrow x + \overline{C(d_i)} $$

    With an unbiased compressor and clients that disagree it stalls at a distance from the optimum
    that grows with $\omega$; `Diana` does not. Biased ones need `ErrorFeedback`.
    Travels: the model down, the code of the reply up.

    Args:
        compressor: any of `hf.wires`.

    Example:
        >>> import holdfast as hf
        >>> hf.Algorithm(wire=hf.wires.Compressed(hf.wires.RandK(k=5))).wire.compressor.k
        5

    Reference: Khirirat et al., "Distributed learning with compressed gradients", 2018.
    """

    lossless = False
    compressor: Compressor

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        coded = compress(self.compressor, payload, key)
        return coded, decompress(self.compressor, coded), mine

    def receive(self, coded: Coded) -> Tree:
        return decompress(self.compressor, coded)

    def noise(self, payload: Tree) -> float:
        return noise_of(self.compressor, payload) if self.compressor.unbiased else 0.0

    def bits_up(self, payload: Tree) -> int:
        return code_bits(self.compressor, payload)

    def pack(self, coded: Coded) -> bytes:
        return pack_codes(self.compressor, coded)

    def unpack(self, data: bytes, payload: Tree, key: jax.Array) -> Coded:
        return unpack_codes(self.compressor, data, payload, key)
