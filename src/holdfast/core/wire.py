"""What happens to messages between server and clients, and what they cost."""

from typing import Any, ClassVar

import jax
import numpy as np
from jax import tree

from holdfast.core.rule import State
from holdfast.core.struct import Struct
from holdfast.trees import Number, Tree, divided, nbytes


class Wire(Struct):
    """The bare wire delivers everything unchanged; compression and clipping are wires of their own.

    A broadcast is `(x, msg)`, a payload is `(delta, upload)`. The server decodes the mean of what
    it received from the clients.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> reply = (jnp.zeros(1000), ())
        >>> for wire in (hf.Wire(), hf.wires.Compressed(hf.wires.Natural()), hf.OnSite()):
        ...     print(type(wire).__name__, wire.bits_up(reply) // 8, "bytes")
        Wire 4000 bytes
        Compressed 1125 bytes
        OnSite 0 bytes
    """

    lossless: ClassVar[bool] = True
    hears_each: ClassVar[bool] = True  # the server learns every reply, not only their mean
    replicates: ClassVar[bool] = False  # a broadcast says what changed since the one before
    # What it divides sums by was fixed before the run: a mean of this round's replies that follows
    # every weighting, in which clients that are not there count as zeros.
    fixed_mean: ClassVar[bool] = False
    # What travels is finite whatever a client's numbers are, so that none is left out by them.
    always_finite: ClassVar[bool] = False

    def inside(self, state: State) -> tuple[tuple["Wire", State], ...]:
        """The wires directly inside it, each with its part of a state that `init` laid out."""
        return ()

    def init(self, payload: Tree, broadcast: Tree) -> State:
        """Server state and one client's first state."""
        return State()

    def beginning(self, t: int) -> "Wire":
        """The same for a run whose round `t`, counted from 0, is its first with this wire."""
        return self

    def send(self, broadcast: Tree, state: Tree, key: jax.Array) -> tuple[Tree, Tree]:
        """Server: what clients will have of the broadcast, and the new state."""
        return broadcast, state

    def change(self, broadcast: Tree, state: Tree, key: jax.Array) -> Tree:
        """Server: what travels of a broadcast that says what changed; nothing where it goes as a whole."""
        return ()

    def follow(self, copy: Tree, change: Tree) -> Tree:
        """Client: its copy of the broadcast after such a change, to the bit that of the server."""
        raise NotImplementedError

    def pack_change(self, change: Tree) -> bytes:
        """Server: a change as the bytes that travel."""
        raise NotImplementedError

    def unpack_change(self, data: bytes, broadcast: Tree, key: jax.Array) -> Tree:
        """Client: the change again, of a broadcast of these shapes."""
        raise NotImplementedError

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        """Client: what travels, what the server will take it for, and its new state."""
        return payload, payload, mine

    def receive(self, coded: Tree) -> Tree:
        """Server: one client's code as numbers that can be averaged."""
        return coded

    def informed(self, state: Tree) -> "Wire":
        """The wire as it is in a round that begins with this state of the server's."""
        return self

    def noise_key(self, seed: int, t: int) -> jax.Array | None:
        """The key of what the server itself adds in round `t`, which no client may know; None: nothing."""
        return None

    def average(
        self, total: Tree, weight: jax.Array, heads: jax.Array, key: jax.Array | None
    ) -> tuple[Tree, jax.Array]:
        """Server: the mean of what was received, from its weighted sum, and how many rules are told of."""
        return divided(total, weight), heads

    def decode(self, mean: Tree, state: Tree, share: Number) -> tuple[Tree, Tree]:
        """Server: the mean payload and the new state, from the mean of what was received."""
        return mean, state

    def check(self, payload: Tree) -> None:
        """Refuse replies of these shapes, before a run begins."""

    def noise(self, payload: Tree) -> float:
        """Variance of what the server takes for a reply, relative to the square of the reply."""
        return 0.0

    def bits_down(self, broadcast: Tree) -> int:
        """Bits of one broadcast."""
        return 8 * nbytes(broadcast)

    def bits_up(self, payload: Tree) -> int:
        """Bits of one reply."""
        return 8 * nbytes(payload)

    def pack(self, coded: Tree) -> bytes:
        """Client: a code as the bytes that travel, `bits_up` of them rounded up to whole bytes."""
        return b"".join(np.asarray(leaf).tobytes() for leaf in tree.leaves(jax.device_get(coded)))

    def unpack(self, data: bytes, payload: Tree, key: jax.Array) -> Tree:
        """Server: the code again, for a payload of these shapes."""
        leaves: list[Any] = tree.leaves(payload)
        ends = np.cumsum([nbytes(leaf) for leaf in leaves])
        parts = [data[end - nbytes(a) : end] for a, end in zip(leaves, ends, strict=True)]
        arrays = [
            np.frombuffer(part, a.dtype).reshape(a.shape)
            for part, a in zip(parts, leaves, strict=True)
        ]
        return tree.unflatten(tree.structure(payload), arrays)


class OnSite(Wire):
    """Training happens where the data is: nothing travels, and the ledger says 0.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> model = {"weights": jnp.zeros((100, 10)), "bias": jnp.zeros(10)}
        >>> [wire.bits_down((model, ())) // 8 for wire in (hf.Wire(), hf.OnSite())]
        [4040, 0]
    """

    def bits_down(self, broadcast: Tree) -> int:
        return 0

    def bits_up(self, payload: Tree) -> int:
        return 0
