"""The debug engine: the same round without compilation, with exceptions that say where."""

import dataclasses

import jax

from holdfast.core.client import Preparation, prepare_cohort
from holdfast.core.debug import debugging
from holdfast.core.round import federated_round
from holdfast.core.round_types import RoundInputs, RoundResult
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
            return federated_round(inputs)
