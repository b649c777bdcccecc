"""What a round is a function of, what travels in it, and what comes of it."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Steps, StepsPerPopulation
from holdfast.core.mean import Seen
from holdfast.core.struct import Struct, static
from holdfast.trees import Array, Number, Tree


class HasLoss(Protocol):
    """A model, as far as a round knows it."""

    def losses(self, params: Tree, batch: Tree, key: jax.Array) -> jax.Array:
        """One value per example."""


class ServerLoss(Protocol):
    """The server's own objective: a number for parameters and rows of its examples."""

    def __call__(
        self, model: HasLoss, params: Tree, examples: Tree, rows: Array | None, key: jax.Array
    ) -> jax.Array: ...


class ServerState(NamedTuple):
    """What the server remembers between rounds."""

    rule: Tree
    wire: Tree
    # Of how replies become one.
    aggregate: Tree = ()


class ClientState(NamedTuple):
    """What one client remembers between rounds."""

    rule: Tree
    wire: Tree
    # The model it trained last, if an evaluator asks for it.
    latest: Tree = ()


class Slot(NamedTuple):
    """One client's part of a round. Examples are rows of the flat data; -1 is padding."""

    client: Array  # its number in the population
    weight: Array  # n_i / mean(n)
    steps: Array  # K_i local steps; 0 means that the slot is empty
    batches: Array  # (largest K, batch) rows
    pages: Array  # (pages, batch) all of the client's rows, for gradients over all its data
    page_count: Array
    # Of its delta, of what is heard of it and of its head, in their means; None is 1 and costs no
    # product. The last two are 1 on average over all clients. () is the weight of its delta.
    delta_weight: Array | None = None
    heard_weight: Array | tuple[()] | None = None
    head_weight: Array | None = None
    # For federated select, the table rows this client uses.
    table_rows: tuple[Array, ...] | None = None
    # The number of its population, if there are several.
    population: Array | None = None


def in_type(slots: Slot, dtype: Any) -> Slot:
    """Weights in the type of the model."""
    names = ("weight", "delta_weight", "heard_weight", "head_weight")
    given = {name: getattr(slots, name) for name in names}
    return slots._replace(**tree.map(lambda w: jnp.asarray(w).astype(dtype), given))


class ServerWork(NamedTuple):
    """The server's own work in a round, if it has data or a loss of its own."""

    steps: Steps
    count: Number  # local steps
    examples: Tree
    batches: Array | None  # (count, batch) rows; -1 is padding
    gradient_rows: Array | None  # rows of the one batch that `at.grad` takes
    weight: Number  # n_0 / mean(n)


class Shared(Struct):
    """What is the same for every client of a round."""

    model: HasLoss = static()
    algorithm: Algorithm
    steps: Steps | StepsPerPopulation
    x: Tree
    msg: Tree
    examples: Tree
    key: jax.Array
    # What clients that lie know of honest replies: of `RoundInputs.overhear`.
    overheard: Tree = ()
    # Of the noise that this client adds to its steps, where it is not drawn from `key`.
    noise_key: jax.Array | None = None


class Reply(NamedTuple):
    """What comes of one client's round."""

    coded: Tree  # what travels
    heard: Tree  # what the server makes of it
    state: ClientState  # the client's new state, valid once the server has accepted the reply
    path: Number  # sum of the step sizes taken, which the server knows
    finite: jax.Array  # every number was, before the wire too, whose codes may hide it


ClientRound = Callable[[Shared, Algorithm, ClientState, Slot], Reply]


class RoundInputs(Struct):
    """Everything a round is a function of. `client_states` and `slots` have a leading axis.

    A new value of a number compiles nothing; another model, loss or way for clients does.
    """

    model: HasLoss = static()
    algorithm: Algorithm
    steps: Steps | StepsPerPopulation
    x: Tree
    server: ServerState
    client_states: ClientState
    slots: Slot
    examples: Tree
    population: Number  # clients that can take part
    key: jax.Array
    server_work: ServerWork | None = None
    server_loss: ServerLoss | None = static(default=None)
    # What a client runs: `client_round`, unless on a part of the model (federated select).
    client_round: ClientRound | None = static(default=None)
    # What clients that lie find out of the cohort before they reply, in simulations of such an attack:
    # a function of the way through a cohort, empty sums, the cohort and what all clients share.
    overhear: Callable[..., Tree] | None = static(default=None)
    # Of the populations in the objective, if there are several.
    population_weights: Array | None = None
    # Of what the server's end of the wire adds, if it adds anything: `Wire.noise_key`.
    noise_key: jax.Array | None = None


class RoundResult(NamedTuple):
    """What comes of a round."""

    x: Tree
    server: ServerState
    client_states: ClientState  # one per slot
    accepted: jax.Array  # one bool per slot: took part, and its reply counts
    seen: Seen = Seen()  # what was noted of each reply, one per slot
