"""How many bits each client of a round receives and returns."""

import dataclasses

import numpy as np

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.template import Template
from holdfast.engine.protocol import Bits
from holdfast.engine.select import Selection
from holdfast.record.state import RunState
from holdfast.trees import nbytes


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Counts from shapes, types and hyper-parameters alone: nothing is sent to be counted."""

    algorithm: Algorithm
    template: Template
    clients: int
    selection: Selection | None

    def of_round(self, now: Algorithm, state: RunState, ids: np.ndarray) -> tuple[Bits, Bits]:
        """Bits down and up: one number for everybody, or one for each where clients differ.

        `now` is the algorithm with the numbers of the round after this state.
        """
        down, up = self._of_message(now, state, ids)
        # What is said of how replies become one goes to everybody that something is sent to.
        also = 8 * nbytes(self.template.said)
        if isinstance(down, int):
            return down + also, up
        return tuple(bits and bits + also for bits in down), up

    def _of_message(self, now: Algorithm, state: RunState, ids: np.ndarray) -> tuple[Bits, Bits]:
        quiet = now.rule.traits.quiet(self.clients)
        wire, differ = now.wire, self.selection is not None
        if not (differ or quiet.any() or wire.replicates or hyper.varies(wire)):
            return wire.bits_down(self.template.broadcast), wire.bits_up(self.template.payload)
        last = state.ledger.last_contact() if wire.replicates else {}
        each = [(0, 0) if quiet[i] else self._of_client(int(i), now, state, last) for i in ids]
        return tuple(down for down, _ in each), tuple(up for _, up in each)

    def _of_client(
        self, client: int, now: Algorithm, state: RunState, last: dict[int, int]
    ) -> tuple[int, int]:
        broadcast, payload = self.template.broadcast, self.template.payload
        wire = hyper.of_client(now.wire, client, float)
        if self.selection is not None:
            chosen = self.selection
            down = wire.bits_down(chosen.sent(client, broadcast)) + chosen.bits_down
            return down, wire.bits_up(chosen.sent(client, payload)) + chosen.bits_up
        if not wire.replicates:
            return wire.bits_down(broadcast), wire.bits_up(payload)
        # Who was there last round receives the change; others what they missed, or all of it.
        down = 8 * nbytes(broadcast)
        if client in last:
            rounds = range(last[client], state.round + 1)
            missed = (hyper.at_round(self.algorithm.wire, t) for t in rounds)
            changes = (hyper.of_client(w, client, float).bits_down(broadcast) for w in missed)
            down = min(down, sum(changes))
        return down, wire.bits_up(payload)
