"""Plain compression of every reply."""

import jax

from holdfast.core.wire import Wire
from holdfast.trees import Tree
from holdfast.wires.compressor import (
    Coded,
    Compressor,
    check_compressor,
    check_sizes,
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

    Reduces to: the bare wire if nothing is lost.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> wire = hf.wires.Compressed(hf.wires.RandK(k=2))
        >>> reply = (jnp.array([1.0, -2.0, 3.0, 0.5]), ())
        >>> send = jax.jit(wire.encode)
        >>> for seed in range(3):
        ...     code, told, _ = send(reply, (), jax.random.key(seed))
        ...     print(told[0].tolist(), len(wire.pack(code)), "bytes")
        [0.0, -4.0, 0.0, 1.0] 9 bytes
        [0.0, -4.0, 0.0, 1.0] 9 bytes
        [2.0, 0.0, 6.0, 0.0] 9 bytes

    Reference: Khirirat et al., "Distributed learning with compressed gradients", 2018.
    """

    lossless = False
    compressor: Compressor

    def __post_init__(self) -> None:
        check_compressor("Compressed", self.compressor)

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        coded = compress(self.compressor, payload, key)
        return coded, decompress(self.compressor, coded), mine

    def receive(self, coded: Coded) -> Tree:
        return decompress(self.compressor, coded)

    def check(self, payload: Tree) -> None:
        check_sizes(self.compressor, payload)

    def noise(self, payload: Tree) -> float:
        return noise_of(self.compressor, payload) if self.compressor.unbiased else 0.0

    def bits_up(self, payload: Tree) -> int:
        return code_bits(self.compressor, payload)

    def pack(self, coded: Coded) -> bytes:
        return pack_codes(self.compressor, coded)

    def unpack(self, data: bytes, payload: Tree, key: jax.Array) -> Coded:
        return unpack_codes(self.compressor, data, payload, key)
