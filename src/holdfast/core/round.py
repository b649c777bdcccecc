"""The round. There is no other: every method, engine and machine runs these functions.

A client runs `client_round`; a server runs `open_round`, `accept` for every reply, and `close_round`.
`federated_round` strings them together for an engine that has all clients at hand.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax, tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import client_round, of_own_population
from holdfast.core.debug import position
from holdfast.core.gathered import revert
from holdfast.core.mean import Held, Judged
from holdfast.core.round_types import (
    ClientRound,
    ClientState,
    Reply,
    RoundInputs,
    RoundResult,
    Shared,
    Slot,
    in_type,
)
from holdfast.core.server import (
    Aggregate,
    Opened,
    accept,
    announced,
    close_round,
    gathered_sums,
    open_round,
    server_view,
)
from holdfast.trees import float_type, zeros


class Exchange(NamedTuple):
    """What happens in one slot of a cohort, in two halves: the client's, and the server's."""

    reply: ClientRound
    accept: Callable[
        [Algorithm, Aggregate, Reply, ClientState, Slot], tuple[Aggregate, ClientState, Judged]
    ] = accept

    def __call__(
        self, so_far: Aggregate, state: ClientState, slot: Slot, shared: Shared
    ) -> tuple[Aggregate, tuple[ClientState, Judged]]:
        """Both; nothing at all if the slot is empty."""

        def absent(
            so_far: Aggregate, state: ClientState, slot: Slot
        ) -> tuple[Aggregate, tuple[ClientState, Judged]]:
            return so_far, (state, self.unseen(shared, so_far))

        present = functools.partial(self.present, shared)
        return lax.cond(slot.steps > 0, present, absent, so_far, state, slot)

    def present(
        self, shared: Shared, so_far: Aggregate, state: ClientState, slot: Slot
    ) -> tuple[Aggregate, tuple[ClientState, Judged]]:
        """Both, of a slot that is known to have a client."""
        mine = hyper.of_client(shared.algorithm, slot.client, so_far.heads.dtype)
        with position(client=slot.client):
            reply = self.reply(shared, mine, state, slot)
        so_far, state, judged = self.accept(mine, so_far, reply, state, slot)
        return so_far, (state, judged)

    def unseen(self, shared: Shared, so_far: Aggregate) -> Judged:
        """What comes of an empty slot at the server."""
        seen = shared.algorithm.mean.unseen(so_far.heads.dtype)
        held: Any = ()
        if shared.algorithm.mean.gathers:
            nobody = jnp.zeros_like(so_far.heads)
            each = tree.map(lambda _: nobody, so_far.heard)
            held = Held(zeros(so_far.received), zeros(so_far.heard), nobody, each)
        return Judged(jnp.zeros((), bool), seen, held)


VisitCohort = Callable[
    [Exchange, Aggregate, tuple[ClientState, Slot], Shared],
    tuple[Aggregate, tuple[ClientState, Judged]],
]


def one_by_one(
    exchange: Exchange, empty: Aggregate, cohort: tuple[ClientState, Slot], shared: Shared
) -> tuple[Aggregate, tuple[ClientState, Judged]]:
    """Visit one client of the cohort after another."""
    return lax.scan(lambda so_far, one: exchange(so_far, *one, shared), empty, cohort)


def opened_round(inputs: RoundInputs, client: ClientState) -> Opened:
    """The server's half before the clients'. `client` is any client's state, for its shapes."""
    slots = in_type(inputs.slots, float_type(inputs.x))
    # With select, what is heard of rows that were not sent is not what was received of them.
    kept = inputs.algorithm.mean.gathers
    alike = slots if inputs.client_round is None and not kept else None
    at = server_view(inputs)
    server = inputs.server
    return open_round(
        inputs.algorithm, at, server.wire, client, inputs.key, alike, server.aggregate
    )


def finished_round(
    inputs: RoundInputs, opened: Opened, reply: ClientRound, visit: VisitCohort
) -> RoundResult:
    """The rest of a round that has begun, with every client's reply as it is asked for or has come."""
    slots = in_type(inputs.slots, float_type(inputs.x))
    shared = Shared(
        inputs.model,
        announced(inputs.algorithm, opened.said),
        inputs.steps,
        opened.x,
        opened.msg,
        inputs.examples,
        inputs.key,
    )
    exchange = Exchange(of_own_population(reply))
    cohort = (inputs.client_states, slots)
    if inputs.overhear is not None:
        known = inputs.overhear(visit, opened.aggregate, cohort, shared)
        shared = dataclasses.replace(shared, overheard=known)
    heard_all, (states, judged) = visit(exchange, opened.aggregate, cohort, shared)
    if inputs.algorithm.mean.gathers:
        heard_all, judged = gathered_sums(inputs.algorithm, heard_all, judged, slots)
        if inputs.algorithm.mean.chooses:
            states = revert(judged.accepted, states, inputs.client_states)
    at, (_, wire_state, mean_state) = server_view(inputs), opened.server
    x, server = close_round(
        inputs.algorithm,
        at._replace(state=opened.server.rule),
        wire_state,
        heard_all,
        inputs.population,
        mean_state,
        judged,
        inputs.noise_key,
    )
    return RoundResult(x, server, states, judged.accepted, judged.seen)


def federated_round(inputs: RoundInputs, visit: VisitCohort = one_by_one) -> RoundResult:
    """A whole round: send, every client of the cohort, the two means, the server's step.

    `visit` goes through the slots: one by one, several at a time, or spread over devices.
    """
    client = tree.map(lambda a: a[0], inputs.client_states)
    opened = opened_round(inputs, client)
    return finished_round(inputs, opened, inputs.client_round or client_round, visit)
