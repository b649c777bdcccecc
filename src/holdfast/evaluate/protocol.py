"""What an evaluator is, and what it may look at. Below the engine, which calls it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, Protocol

import jax
import numpy as np

from holdfast.core.local import Local
from holdfast.core.round_types import ServerLoss, Slot
from holdfast.errors import HoldfastError
from holdfast.metrics.metric import Directions, directions
from holdfast.models.model import Model
from holdfast.record.state import RunState
from holdfast.trees import Tree

# What an evaluator could reach when it was given the whole run, and what has it now.
_FORMER = {
    "last_model": "view.latest(client)",
    "algorithm": "view.personal(client)",
    "experiment": "view.personal, view.adapted, view.data_of or view.coming_cohort",
}


class RenamedError(HoldfastError, AttributeError):
    """Something that is called otherwise now."""


class ServerData(NamedTuple):
    """The server's own objective and examples; no rows for a loss of the parameters alone."""

    loss: ServerLoss
    examples: Tree
    rows: np.ndarray | None


class EvaluationView(NamedTuple):
    """What an evaluator may look at after a round; a function is called only by who needs it."""

    model: Model
    state: RunState
    # How much each client's delta counts in the mean; 0 for clients without data.
    weights: np.ndarray
    # Of these clients in a mean of which each is a head; populations that were joined count by weight.
    votes: Callable[[np.ndarray], np.ndarray]
    # Of these clients in the mean of their deltas, if they are the cohort.
    weights_of: Callable[[np.ndarray], np.ndarray]
    # The model a client would use: `personal(client)`. With `personal(client, local)` after these
    # local steps of its own, in place of those that the method takes; with None after none.
    personal: Callable[..., Tree]
    # Any model after a client's own local steps on its training data.
    adapted: Callable[[Tree, int, Local], Tree]
    # The clients of the coming round, -1 where a slot is empty.
    coming_cohort: Callable[[], np.ndarray]
    # Slots of these clients, and the examples they name.
    data_of: Callable[[np.ndarray], tuple[Slot, Tree]]
    server_data: Callable[[], ServerData | None]
    # Floating-point operations of each of these clients in the round before.
    flops_of: Callable[[np.ndarray], np.ndarray]
    # Of the coming round: `view.key`.
    coming_key: Callable[[], jax.Array]

    @property
    def key(self) -> jax.Array:
        """That of the coming round, for what is drawn."""
        return self.coming_key()

    def __getattr__(self, name: str) -> NoReturn:
        if name in _FORMER:
            raise RenamedError(f"view: `{name}` is gone; use `{_FORMER[name]}`.")
        raise AttributeError(name)

    def latest(self, client: int) -> Tree:
        """The model this client trained last; there if an evaluator asked for it."""
        return self.state.client_states[client].latest


def declared_by(model: Model, evaluators: Sequence["Evaluator"]) -> Directions:
    """Which way metrics are better: what the model declares, and evaluators of metrics they were given."""
    found = dict(directions(model.greater_is_better))
    for evaluator in evaluators:
        for name, up in directions(getattr(evaluator, "directions", ())):
            if found.setdefault(name, up) != up:
                raise HoldfastError(
                    f"metric `{name}`: greater is better by one declaration, and worse by another; let them "
                    f"agree, or name the two differently.",
                    about=("evaluate", "metrics"),
                )
    return tuple(sorted(found.items()))


class Evaluator(Protocol):
    """Measures something after a round; write your own with these.

    It may have more: `columns(measured)`, the names it writes; `directions`, which way they are better;
    `at_start`, if the model before the first round can be measured too; and `watches(populations)`, a
    neutral rule that the run has beside its method, whose memory is `view.state.memory(kind, [])`;
    `asks_examples`, if it looks at clients' training examples.
    """

    @property
    def every(self) -> int:
        """Rounds between measurements."""

    @property
    def keeps_last_models(self) -> bool:
        """Whether clients must remember the model they trained last."""

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Refuse data the model cannot take, before the run."""

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        """Names and values for the history."""
