"""Wires around wires."""

import jax

from holdfast.core.rule import State
from holdfast.core.wire import Wire
from holdfast.trees import Number, Tree


class Inside(Wire):
    """Follows an inner wire in everything; what goes around it speaks where it has something to say."""

    inner: Wire

    @property
    def hears_each(self) -> bool:  # type: ignore[override]
        """As the inner wire."""
        return self.inner.hears_each

    @property
    def replicates(self) -> bool:  # type: ignore[override]
        """As the inner wire."""
        return self.inner.replicates

    def init(self, payload: Tree, broadcast: Tree) -> State:
        return self.inner.init(payload, broadcast)

    def send(self, broadcast: Tree, state: Tree, key: jax.Array) -> tuple[Tree, Tree]:
        return self.inner.send(broadcast, state, key)

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        return self.inner.encode(payload, mine, key)

    def receive(self, coded: Tree) -> Tree:
        return self.inner.receive(coded)

    def decode(self, mean: Tree, state: Tree, share: Number) -> tuple[Tree, Tree]:
        return self.inner.decode(mean, state, share)

    def noise(self, payload: Tree) -> float:
        return self.inner.noise(payload)

    def bits_down(self, broadcast: Tree) -> int:
        return self.inner.bits_down(broadcast)

    def bits_up(self, payload: Tree) -> int:
        return self.inner.bits_up(payload)

    def pack(self, coded: Tree) -> bytes:
        return self.inner.pack(coded)

    def unpack(self, data: bytes, payload: Tree, key: jax.Array) -> Tree:
        return self.inner.unpack(data, payload, key)
