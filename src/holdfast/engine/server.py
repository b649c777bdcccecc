"""What the server has of its own: a data set or a loss, and how it trains on it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core.client import take_batch
from holdfast.core.keys import Purpose, host_key
from holdfast.core.local import Local
from holdfast.core.round_types import HasLoss, ServerWork
from holdfast.data.clients import Clients, check_finite, count
from holdfast.data.grouped import Grouped
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.feeds import settled
from holdfast.errors import HoldfastError, explain_constructor, whole_number
from holdfast.models.model import Model, takes_key
from holdfast.trees import Tree, describe_shapes


@dataclasses.dataclass(frozen=True)
class Objective:
    """The server's objective: a function of the parameters alone, or a mean over its examples."""

    loss: Callable[..., jax.Array] | None  # None: the model's own
    alone: bool

    def __call__(
        self, model: HasLoss, params: Tree, examples: Tree, rows: Any, key: jax.Array
    ) -> jax.Array:
        if self.alone:
            assert self.loss is not None
            return self.loss(params, key) if takes_key(self.loss, 2) else self.loss(params)
        batch, keep = take_batch(examples, rows)
        if self.loss is None:
            values = model.losses(params, batch, key)
        elif takes_key(self.loss, 3):
            values = self.loss(params, batch, key)
        else:
            values = self.loss(params, batch)
        return jnp.sum(jnp.where(keep, values, 0)) / jnp.sum(keep).astype(values.dtype)


@explain_constructor
@dataclasses.dataclass(frozen=True, eq=False)
class Server:
    """The server's side of a run, for methods in which it learns too.

    Args:
        source: a data set like the clients' (`hf.Examples`), or a loss of the parameters alone,
            `(params) -> number` or `(params, key) -> number`, such as a regulariser.
        local: its own batch size, number of steps, step size, optimiser and clip. For a loss of the
            parameters alone, give `steps`.
        loss: for a data set, a loss per example instead of the model's own.
        gradient_batch_size: examples in the one batch of a round that `at.grad` takes; as many as
            in a step unless given.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> # It has no data but prefers small weights: of both losses the optimum is 1.29.
        >>> server = hf.Server(lambda params: jnp.sum(params["weights"] ** 2) / 2, local)
        >>> algorithm = hf.algorithms.one_way_transfer()
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20, server=server)
        >>> print(f"{run.params['weights'].item():.2f}")
        1.29
    """

    source: Any
    local: Local
    loss: Callable[..., jax.Array] | None = None
    gradient_batch_size: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.local, Local):
            raise HoldfastError(
                f"Server: local is a {type(self.local).__name__}; give hf.Local(...), how it trains.",
                about=("local",),
            )
        if self.loss is not None and not callable(self.loss):
            raise HoldfastError(
                f"Server: loss={self.loss!r}; give a function (params, batch) -> one value per example.",
                about=("loss",),
            )
        if self.gradient_batch_size is not None:
            few = whole_number("Server", "gradient_batch_size", self.gradient_batch_size)
            object.__setattr__(self, "gradient_batch_size", few)
        if isinstance(self.source, Clients):
            raise HoldfastError(
                "Server: its data is a population of clients; give a data set, such as "
                "clients.pooled()[0].",
                about=("source",),
            )
        if self.alone and self.loss is not None:
            raise HoldfastError(
                "Server: two losses are given; give a data set with loss=, or one loss.",
                about=("loss",),
            )
        if isinstance(self.source, Grouped):
            raise HoldfastError(
                "Server: its examples are of several populations with losses of their own; give those of "
                "one, as joined.of(name, examples).",
                about=("source",),
            )
        if not self.alone and count(self.source) == 0:
            raise HoldfastError(
                "Server: its data set is empty; give at least one example.", about=("source",)
            )

    @property
    def alone(self) -> bool:
        """Whether it has a loss of the parameters alone, and no data."""
        return callable(self.source)

    @property
    def objective(self) -> Objective:
        """What it minimises."""
        return Objective(self.source, True) if self.alone else Objective(self.loss, False)

    @property
    def size(self) -> int:
        """Number of examples; none for a loss of the parameters alone."""
        return 0 if self.alone else count(self.source)

    def as_clients(self) -> Clients:
        """Its data as a population of one."""
        return Clients.from_rows(self.source, [np.arange(self.size)])

    def check(self, model: Model, params: Tree) -> None:
        """Refuse data the model cannot take and losses that are not what they should be."""
        key = host_key(0)
        rows = None
        if not self.alone:
            check_finite(self.source, "Server", about=("server",))
            if self.loss is None:
                model.check_examples(self.source, "Server", ("server",))
            rows = np.zeros(2, np.int32)
        examples = () if self.alone else tree.map(jnp.asarray, self.source)
        try:
            value = jax.eval_shape(lambda p: self.objective(model, p, examples, rows, key), params)
        # Whatever the model's library raises.
        except Exception as error:
            taken = "the parameters" if self.alone else f"examples of {describe_shapes(examples)}"
            raise HoldfastError(
                f"Server: its loss cannot take {taken}: {str(error).splitlines()[0]}; give a data set "
                f"like the clients', or a loss that takes it.",
                about=("server",),
            ) from None
        if getattr(value, "shape", None) != ():
            shape = getattr(value, "shape", None)
            raise HoldfastError(
                f"Server: the loss has shape {shape}; return one number for the parameters.",
                about=("server", "loss"),
            )
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise HoldfastError(
                f"Server: the loss is of type {value.dtype}; return a floating-point number.",
                about=("server", "loss"),
            )


class ServerPlanner:
    """The server's own data on the device, and its work round by round."""

    def __init__(self, server: Server, seed: int, mean_size: float) -> None:
        self.server = server
        self._weight = server.size / mean_size
        self.examples: Any = ()
        if server.alone:
            return
        self.examples = jax.device_put(settled(server.source))
        one_step = Local(
            learning_rate=1.0,
            steps=1,
            batch_size=server.gradient_batch_size or server.local.batch_size,
            shuffle=server.local.shuffle,
        )
        data = server.as_clients()
        self._steps = BatchPlanner(data, server.local, seed, Purpose.SERVER_ORDER)
        self._gradient = BatchPlanner(data, one_step, seed, Purpose.SERVER_GRADIENT)

    def gradient_rows(self, t: int) -> np.ndarray:
        """The one batch of round `t` that the server's gradient is taken on."""
        return np.asarray(self._gradient.slots(t, np.zeros(1, np.int64)).batches[0, 0])

    def work(self, t: int, params: Tree) -> ServerWork:
        """What the server does in round `t`."""
        batches = gradient_rows = None
        steps = self.server.local.steps or 1
        if not self.server.alone:
            batches = self._steps.slots(t, np.zeros(1, np.int64)).batches[0]
            gradient_rows = self.gradient_rows(t)
            steps = len(batches)
        return ServerWork(
            steps=self.server.local.at(t, params),
            count=np.int32(steps),
            examples=self.examples,
            batches=batches,
            gradient_rows=gradient_rows,
            weight=self._weight,
        )
