"""Compression that makes up later for what it left out."""

import jax

from holdfast.core.rule import State
from holdfast.core.wire import Wire
from holdfast.trees import Tree, add, sub, zeros
from holdfast.wires.compressed import Compressed
from holdfast.wires.compressor import (
    Coded,
    Compressor,
    check_compressor,
    compress,
    decompress,
    noise_of,
)


class ErrorFeedback(Wire):
    r"""Each client keeps what compression left out and adds it to its next reply.

    $$ m_i = C(d_i + e_i), \quad e_i \leftarrow d_i + e_i - m_i $$

    For biased compressors; an unbiased one is first divided by $1 + \omega$, which makes it a
    contraction. Travels: the model down, the code of the reply up.

    Tells: later what compression left out earlier, before any bound of the server's, so
    `hf.privacy.Gaussian` refuses it; `hf.privacy.LocalGaussian` puts its noise before the code.

    Args:
        compressor: any of `hf.wires`.

    Reduces to: the bare wire if nothing is lost.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> # One number of two travels; the other waits until it is the larger.
        >>> wire = hf.wires.ErrorFeedback(hf.wires.TopK(k=1))
        >>> payload = (jnp.array([2.5, 1.0]), ())
        >>> kept = wire.init(payload, ()).client
        >>> for _ in range(4):
        ...     _, told, kept = wire.encode(payload, kept, jax.random.key(0))
        ...     print(told[0])
        [2.5 0. ]
        [2.5 0. ]
        [0. 3.]
        [5. 0.]

    Reference: Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """

    lossless = False
    compressor: Compressor

    def __post_init__(self) -> None:
        check_compressor("ErrorFeedback", self.compressor)

    def init(self, payload: Tree, broadcast: Tree) -> State:
        return State(client=zeros(payload))

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        wanted = add(payload, mine)
        coded = compress(self.compressor, wanted, key)
        told = self.receive(coded)
        return coded, told, sub(wanted, told)

    def receive(self, coded: Coded) -> Tree:
        return decompress(self.compressor, coded, damped=True)

    def noise(self, payload: Tree) -> float:
        return noise_of(self.compressor, payload)

    check = Compressed.check
    bits_up = Compressed.bits_up
    pack = Compressed.pack
    unpack = Compressed.unpack
