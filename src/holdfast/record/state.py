"""A run between two rounds, complete: everything the next round depends on, and all that was recorded."""

import dataclasses

from holdfast.client_states.states import ClientStates
from holdfast.core.round import ServerState
from holdfast.record.history import History
from holdfast.record.ledger import Ledger
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True, eq=False)
class RunState:
    """A value: keep it, change a copy with `dataclasses.replace`, go on from any of them."""

    round: int  # rounds done
    params: Tree
    server: ServerState
    client_states: ClientStates
    ledger: Ledger
    history: History

    def __repr__(self) -> str:
        return f"RunState(round {self.round}, {self.client_states}, {self.ledger})"

    @property
    def rows(self) -> ClientStates:
        """The former name of `client_states`."""
        return self.client_states
