"""A run between two rounds, complete: everything the next round depends on, and all that was recorded."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from holdfast.client_states.states import ClientStates
from holdfast.core.algorithm import Algorithm
from holdfast.core.memory import Memory, recall
from holdfast.core.round_types import ServerState
from holdfast.core.rule import Rule
from holdfast.core.wire import Wire
from holdfast.errors import HoldfastError
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.history import History
from holdfast.record.ledger import Ledger
from holdfast.trees import Tree


class Kept(NamedTuple):
    """What is kept of the best round so far: its models, and states of the clients that had one."""

    round: int
    params: Tree
    server: ServerState
    touched: np.ndarray  # numbers of these clients
    stacked: Tree  # their states, along a leading axis


@dataclasses.dataclass(frozen=True, eq=False)
class RunState:
    """A value: keep it, change a copy with `dataclasses.replace`, go on from any of them."""

    round: int  # rounds done
    params: Tree
    server: ServerState
    client_states: ClientStates
    ledger: Ledger
    history: History
    algorithm: Algorithm  # that the states are of
    best: Kept | None = None  # by early stopping, if it keeps the best round
    chosen_mask: ChosenMask | None = None  # by the first round, if the method waits for a mask

    def __repr__(self) -> str:
        return f"RunState(round {self.round}, {self.client_states}, {self.ledger})"

    @property
    def rows(self) -> ClientStates:
        """The former name of `client_states`."""
        return self.client_states

    def memory(
        self,
        kind: type[Rule] | type[Wire],
        clients: int | Sequence[int] | np.ndarray | None = None,
        which: int | None = None,
    ) -> Memory:
        """What a rule or a wire remembers, wherever it stands in the algorithm: the server's memory, and
        the clients' along a leading axis. A client that never took part has the first state.

        Args:
            kind: the class, such as `hf.rules.Dynamic` or `hf.wires.Diana`.
            clients: of one client (then without the axis) or of several; of all unless given.
            which: if the algorithm has several of that class, the number of one, from 0 on.

        Example:
            >>> import holdfast as hf
            >>> import numpy as np
            >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
            >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
            >>> clients = hf.data.partition.in_order(data, clients=2)
            >>> model = hf.models.least_squares(intercept=False)
            >>> local = hf.Local(learning_rate=0.1, steps=10)
            >>> run = hf.simulate(hf.algorithms.scaffold(), model, clients, local, rounds=60)
            >>> c, c_i = run.memory(hf.rules.ControlVariate)
            >>> # At the optimum every c_i is its client's gradient, and c their mean, which is zero.
            >>> print(np.round(c_i["weights"].ravel(), 3), np.round(abs(c["weights"]), 3))
            [ 0.8 -0.8] [0.]
        """
        count = len(self.client_states)
        ids = np.arange(count) if clients is None else np.asarray(clients)
        if ids.dtype.kind not in "iu" or ids.ndim > 1 or not ((ids >= 0) & (ids < count)).all():
            raise HoldfastError(
                f"memory: clients={clients!r}; give a number in 0..{count - 1}, or a list of them."
            )
        read = self.client_states.read(np.atleast_1d(ids))
        found = recall(self.algorithm, kind, self.server, read, which)
        server, mine = jax.device_get(tuple(found))
        return Memory(server, mine if ids.ndim else jax.tree.map(lambda a: a[0], mine))
