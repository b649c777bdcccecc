"""What liars who conspire find out before they reply: what the honest clients of their round will send."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.attacks.attack import Attack
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import client_round, of_own_population
from holdfast.core.gathered import LAST
from holdfast.core.mean import Judged
from holdfast.core.round import Exchange, VisitCohort
from holdfast.core.round_types import ClientRound, ClientState, Reply, Shared, Slot
from holdfast.core.server import Aggregate
from holdfast.trees import Tree, select, zeros


class _Listening(Exchange):
    """Every slot's reply is kept as the server would decode it, and added to nothing."""

    def unseen(self, shared: Shared, so_far: Aggregate) -> Judged:
        return Judged(jnp.zeros((), bool), held=zeros(so_far.received))


def _kept(
    mine: Algorithm, so_far: Aggregate, reply: Reply, state: ClientState, slot: Slot
) -> tuple[Aggregate, ClientState, Judged]:
    there = jnp.logical_and(slot.steps > 0, reply.finite)
    received = select(there, mine.wire.receive(reply.coded), zeros(so_far.received))
    return so_far, state, Judged(there, held=received)


@dataclasses.dataclass(frozen=True)
class Overheard:
    """A look at the round before it: every client of the cohort takes its part, and nothing comes of it.

    So the cohort works twice, and its replies are in memory together.
    """

    attack: Attack
    liars: tuple[int, ...]
    inner: ClientRound = client_round

    def __call__(
        self,
        visit: VisitCohort,
        empty: Aggregate,
        cohort: tuple[ClientState, Slot],
        shared: Shared,
    ) -> Tree:
        listening = _Listening(of_own_population(self.inner), _kept)
        judged = visit(listening, empty, cohort, shared)[1][1]
        slots = cohort[1]
        lies = jnp.isin(jnp.asarray(slots.client), np.array(self.liars, np.int32))
        honest = judged.accepted & ~lies
        # By client number, others last, as `gathered` has them.
        order = jnp.argsort(jnp.where(honest, jnp.asarray(slots.client), LAST))
        there = honest[order]

        def ordered(a: Tree) -> Tree:
            return jnp.where(there.reshape(-1, *(1,) * (a.ndim - 1)), a[order], jnp.zeros_like(a))

        replies = tree.map(ordered, judged.held)
        count = jnp.sum(lies & (jnp.asarray(slots.steps) > 0))
        return self.attack.agreed(replies, there, count)
