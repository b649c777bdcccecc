"""A run between two rounds, complete: everything the next round depends on, and all that was recorded."""

import dataclasses

from holdfast.engine.history import History
from holdfast.engine.ledger import Ledger
from holdfast.engine.rows import Rows
from holdfast.round import Sides
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True, eq=False)
class RunState:
    """A value: keep it, change a copy with `dataclasses.replace`, go on from any of them."""

    round: int  # rounds done
    params: Tree
    server: Sides
    rows: Rows
    ledger: Ledger
    history: History

    def __repr__(self) -> str:
        return f"RunState(round {self.round}, {self.rows}, {self.ledger})"
