"""What an engine does: it runs rounds. The compiled and the debug engine are two of them.

To write another, read this page, `core/round.py` and `core/round_types.py`. The host plans a round (who
takes part, in which slot, with which examples) and hands an engine one value, `RoundInputs`; the engine
runs the one round, `federated_round` or the halves it is made of, and hands back a `RoundResult`.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from holdfast.core.client import Preparation
from holdfast.core.round_types import ClientState, RoundInputs, RoundResult
from holdfast.engine.layout import Execution, SlotLayout
from holdfast.record.history import Record
from holdfast.trees import Tree

# Of every client of a round, or of each.
Bits = int | tuple[int, ...]


class Placement(NamedTuple):
    """Where the slots of a round are, which changes no result."""

    leaf: np.ndarray  # of the tree along which each slot's reply is added up
    execution: Execution


@runtime_checkable
class Engine(Protocol):
    """Runs rounds. What it must keep:

    - `round` is a function of its inputs alone. The same inputs give the same bits, and the sums of
      replies are taken along the leaves of `placement`, so that bits do not depend on devices.
    - A slot without steps is empty: its client state comes back as it was, and it is not accepted.
    - A reply with a number that is not finite is not accepted, and its client state stays.
    - `client_states` and `accepted` come back in the order of the slots; `x` and `server` on one device.
    - Nothing given is changed or kept: inputs are values, and the next round may be planned while this
      one runs. Only where `placement` says that states are renewed in place may theirs be used up.

    One that cannot run every experiment may have `check(experiment, params)`, which refuses before a run
    begins what it cannot.

    Calling it makes the default engine: `hf.Engine(devices=2)` is an `hf.CompiledEngine`.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **settings: Any) -> Any:
            """The default engine, where no other class is meant."""
            from holdfast.engine.compiled import CompiledEngine

            return object.__new__(cls) if cls is not Engine else CompiledEngine(*args, **settings)

    @property
    def local_devices(self) -> int:
        """Devices of this process, over which its slots are spread in equal parts."""

    def layout(self, clients: int, steady: bool, uniform: bool, tiny: bool) -> SlotLayout:
        """Slots for a cohort of so many clients.

        `steady` says that every round has as many, `uniform` that all take as many steps, `tiny` that
        a step is mostly overhead, which clients with the same work can share.
        """

    def here(self, slots: int) -> slice:
        """The part of the slots that is on this process's devices."""

    def everywhere(self, arrays: Tree) -> Tree:
        """Arrays that every device has."""

    def prepare(self, t: int, inputs: Preparation) -> Tree:
        """Clients' work before their first round: the rule's client states."""

    def round(self, t: int, inputs: RoundInputs, placement: Placement) -> RoundResult:
        """Round `t`, from 0."""


@runtime_checkable
class RemoteEngine(Protocol):
    """An engine whose clients are elsewhere, with their examples and what they remember."""

    @property
    def mark(self) -> ClientState:
        """What is kept here of a client before its first round, instead of its state."""

    def counted(self, ids: np.ndarray, down: Bits, up: Bits) -> tuple[Bits, Bits]:
        """Of the bits of the last round those that travelled: not everybody may have been reached."""

    def facts(self, ids: np.ndarray) -> Record:
        """What else is to be told of the last round with these clients."""
