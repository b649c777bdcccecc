"""The debug engine: the same round without compilation, with exceptions that say where."""

import dataclasses

import jax
import numpy as np
from jax import tree

from holdfast.core.client import Preparation, prepare_cohort
from holdfast.core.debug import debugging
from holdfast.core.mean import Judged
from holdfast.core.round import Exchange, federated_round
from holdfast.core.round_types import ClientState, RoundInputs, RoundResult, Shared, Slot
from holdfast.core.server import Aggregate
from holdfast.engine.layout import SlotLayout
from holdfast.engine.protocol import Placement
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class DebugEngine:
    """The same round without compilation, one client after another.

    Stops at the first exception and at the first number that is not finite, with a `DebugError`
    that says the round, client, step and batch (rows of the data; -1 is padding).
    """

    @property
    def local_devices(self) -> int:
        """There is one device."""
        return 1

    def layout(self, clients: int, steady: bool, uniform: bool, tiny: bool) -> SlotLayout:
        """No empty slots."""
        return SlotLayout(clients, uniform=True)

    def here(self, slots: int) -> slice:
        """There is one process."""
        return slice(0, slots)

    def everywhere(self, arrays: Tree) -> Tree:
        """There is one device."""
        return jax.device_put(arrays)

    def prepare(self, t: int, inputs: Preparation) -> Tree:
        """Clients' work before their first round."""
        with jax.disable_jit(), debugging(round=t):
            return prepare_cohort(inputs)

    def round(self, t: int, inputs: RoundInputs, placement: Placement) -> RoundResult:
        """One round."""
        with jax.disable_jit(), debugging(round=t):
            return federated_round(inputs, _in_turn)


def _in_turn(
    exchange: Exchange, empty: Aggregate, cohort: tuple[ClientState, Slot], shared: Shared
) -> tuple[Aggregate, tuple[ClientState, Judged]]:
    """Visit one client after another, in a loop of Python's.

    JAX's own would compile a program for every number of a slot and every client.
    """
    so_far, outcomes = empty, []
    on_host = jax.device_get(cohort)
    for k in range(len(cohort[1].steps)):
        state, slot = jax.device_put(tree.map(lambda a, k=k: a[k], on_host))
        so_far, outcome = exchange(so_far, state, slot, shared)
        outcomes.append(jax.device_get(outcome))
    return so_far, jax.device_put(tree.map(lambda *each: np.stack(each), *outcomes))
