"""What goes to a site in a round: the whole broadcast, or what changed since the site's own copy of it."""

from typing import NamedTuple

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.rule import addressed
from holdfast.core.server import Opened
from holdfast.core.wire import Wire
from holdfast.deploy import frame
from holdfast.deploy.changes import Changes
from holdfast.deploy.messages import FIRST, Version
from holdfast.trees import Tree, nbytes


class Sent(NamedTuple):
    """The body of a message, of how many changes it is (0: the whole), and the bits that the wire counts."""

    body: bytes
    changes: int
    bits: int


class Broadcast:
    """The broadcast of one round.

    Args:
        algorithm: of the run, with its schedules.
        t: the round, from 0.
        opened: the round as it has begun.
        changes: the codes of the rounds before.
    """

    def __init__(self, algorithm: Algorithm, t: int, opened: Opened, changes: Changes) -> None:
        self.broadcast: Tree = (opened.x, addressed(opened.msg, None))
        self._wire, self._t, self._changes = algorithm.wire, t, changes
        whole = Wire().pack(self.broadcast)
        self._whole, self._said = whole, Wire().pack(opened.said)
        self._said_bits = 8 * nbytes(opened.said)
        # By which a site knows whether its copy is the server's.
        self.copy = ""
        if self._wire.replicates:
            self.copy = frame.identity(whole)
            now = hyper.at_round(self._wire, t)
            changes.keep(t, now.pack_change(opened.change))
            # As many as are never more than the whole.
            changes.forget_before(t - 8 * len(whole) // max(1, now.bits_down(self.broadcast)) - 1)

    def to(self, base: Version, whole: bool) -> Sent:
        """For a site that has the copy of this version; or that has none."""
        plain = Sent(self._whole + self._said, 0, 8 * len(self._whole) + self._said_bits)
        if not self._wire.replicates or whole or base == FIRST:
            return plain
        rounds = range(base.round, self._t + 1)
        bits = sum(hyper.at_round(self._wire, t).bits_down(self.broadcast) for t in rounds)
        if bits >= 8 * len(self._whole):
            return plain
        codes = self._changes.between(base.round, self._t)
        if codes is None:
            return plain
        return Sent(b"".join(codes) + self._said, len(codes), bits + self._said_bits)


def lengths(wire: Wire, broadcast: Tree, rounds: range) -> list[int]:
    """Bytes of the changes of these rounds."""
    return [-(-hyper.at_round(wire, t).bits_down(broadcast) // 8) for t in rounds]
