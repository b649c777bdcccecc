"""Compression of what the server sends."""

from typing import NamedTuple

import jax
from jax import lax

from holdfast.core import hyper
from holdfast.core.rule import State
from holdfast.core.wire import Wire
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree, add, sub
from holdfast.wires.compressor import (
    Compressor,
    check_compressor,
    check_sizes,
    code_bits,
    compress,
    decompress,
    pack_codes,
    unpack_codes,
)
from holdfast.wires.wrapper import WireWrapper


class DownlinkState(NamedTuple):
    """What the server remembers: the replica that clients have, and the inner wire's state."""

    replica: Tree
    inner: Tree


class Downlink(WireWrapper):
    r"""The server sends compressed changes, from which every client rebuilds the same replica.

    $$ w \leftarrow w + C(x - w) $$

    Clients train from w. What compression left out stays in x - w and is sent later, so w follows x
    and the optimum is not lost. An unbiased compressor is first divided by $1 + \omega$.
    Travels: the code of the change down. A client that was absent first catches up: it receives the
    changes it missed or the whole replica, whichever is less, and a new one the whole replica.

    Args:
        inner: the wire that replies take; `hf.Wire()` delivers them unchanged.
        compressor: any of `hf.wires`.

    Reduces to: the inner wire if nothing is lost.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> # One number of two travels in a round, and the replica is complete in the second.
        >>> wire = hf.wires.Downlink(hf.Wire(), hf.wires.TopK(k=1))
        >>> x = jnp.array([2.5, 1.0])
        >>> state = wire.init((), (jnp.zeros(2), ())).server
        >>> for _ in range(2):
        ...     received, state = wire.send((x, ()), state, jax.random.key(0))
        ...     print(received[0], wire.bits_down((x, ())), "bits")
        [2.5 0. ] 33 bits
        [2.5 1. ] 33 bits

    Reference: Gruntkowska, Tyurin and Richtárik, "EF21-P and friends", ICML 2023.
    """

    lossless = False
    replicates = True
    compressor: Compressor

    def __post_init__(self) -> None:
        check_compressor("Downlink", self.compressor)
        if hyper.varies(self.compressor):
            raise HoldfastError(
                "Downlink: the compressor differs between clients, and everybody receives the same "
                "broadcast; give one number, or a schedule.",
                about=("compressor",),
            )

    def init(self, payload: Tree, broadcast: Tree) -> State:
        inner = self.inner.init(payload, broadcast)
        return State(server=DownlinkState(broadcast, inner.server), client=inner.client)

    def inside(self, state: State) -> tuple[tuple[Wire, State], ...]:
        return ((self.inner, state._replace(server=state.server.inner)),)

    def send(self, broadcast: Tree, state: Tree, key: jax.Array) -> tuple[Tree, Tree]:
        replica = self.follow(state.replica, self.change(broadcast, state, key))
        received, inner = self.inner.send(replica, state.inner, key)
        return received, DownlinkState(replica, inner)

    def change(self, broadcast: Tree, state: Tree, key: jax.Array) -> Tree:
        return compress(self.compressor, sub(broadcast, state.replica), key)

    def follow(self, copy: Tree, change: Tree) -> Tree:
        # Rounded before it is added in any program: a client's own is another one than the server's.
        moved = lax.optimization_barrier(decompress(self.compressor, change, damped=True))
        return add(copy, moved)

    def pack_change(self, change: Tree) -> bytes:
        return pack_codes(self.compressor, change)

    def unpack_change(self, data: bytes, broadcast: Tree, key: jax.Array) -> Tree:
        return unpack_codes(self.compressor, data, broadcast, key)

    def decode(self, mean: Tree, state: Tree, share: Number) -> tuple[Tree, Tree]:
        replica, inner = state
        payload, inner = self.inner.decode(mean, inner, share)
        return payload, DownlinkState(replica, inner)

    def check(self, payload: Tree) -> None:
        self.inner.check(payload)
        # A broadcast has a model in it, as delta is one.
        check_sizes(self.compressor, payload)

    def bits_down(self, broadcast: Tree) -> int:
        return code_bits(self.compressor, broadcast)
