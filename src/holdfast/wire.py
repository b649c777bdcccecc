"""What happens to a reply between client and server, and what it costs."""

from typing import ClassVar

import jax

from holdfast.rule import State
from holdfast.struct import Struct
from holdfast.trees import Number, Tree, nbytes


class Wire(Struct):
    """The bare wire delivers every reply unchanged; compression and noise are wires of their own.

    A payload is `(delta, upload)`. The server decodes the mean of what the clients encoded.
    """

    lossless: ClassVar[bool] = True

    def init(self, payload: Tree) -> State:
        """Server state and one client's first row."""
        return State()

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        """Client: what travels, what the server will take it for, and the new row."""
        return payload, payload, mine

    def decode(self, mean: Tree, state: Tree, share: Number) -> tuple[Tree, Tree]:
        """Server: the mean payload and the new state, from the mean of what travelled."""
        return mean, state

    def bytes_down(self, broadcast: Tree) -> int:
        """Bytes one client receives in a round: the model and the rule's message."""
        return nbytes(broadcast)

    def bytes_up(self, coded: Tree) -> int:
        """Bytes one client returns in a round."""
        return nbytes(coded)


class OnSite(Wire):
    """Training happens where the data is: nothing travels, and the ledger says 0."""

    def bytes_down(self, broadcast: Tree) -> int:
        return 0

    def bytes_up(self, coded: Tree) -> int:
        return 0
