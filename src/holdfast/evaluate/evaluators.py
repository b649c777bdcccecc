"""What to measure during training, on which model, and how often."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.core.round import pretended_server
from holdfast.core.rule import ClientView
from holdfast.data.clients import Clients, check_finite, count
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.metrics import greater_is_better
from holdfast.models.model import Model
from holdfast.record.state import RunState
from holdfast.trees import Tree, describe_shapes, float_type, zeros

if TYPE_CHECKING:
    from holdfast.engine.experiment import Experiment

__all__ = ["Evaluator", "client_average", "on", "personal"]

_LARGEST_BATCH = 2048


class Scene(NamedTuple):
    """What an evaluator may look at after a round."""

    model: Model
    algorithm: Algorithm
    state: RunState
    weights: np.ndarray  # n_i / mean(n) of each client, 0 for clients without data
    experiment: "Experiment"

    def last_model(self, client: int) -> Tree:
        """The model this client trained last; there if an evaluator asked for it."""
        return self.state.rows[client].rule[-1]


class Evaluator(Protocol):
    """Measures something after a round; write your own with these."""

    @property
    def every(self) -> int:
        """Rounds between measurements."""

    @property
    def keeps_last_models(self) -> bool:
        """Whether clients must remember the model they trained last."""

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Refuse data the model cannot take, before the run."""

    def __call__(self, scene: Scene) -> dict[str, float]:
        """Names and values for the history."""


def measure(model: Model, params: Tree, examples: Tree) -> dict[str, float]:
    """Means of the model's metrics over examples, in batches of bounded size."""
    n = count(examples)
    totals: dict[str, float] = {}
    for rows in _batches(n):
        batch = tree.map(lambda a, rows=rows: np.asarray(a)[np.maximum(rows, 0)], examples)
        for name, value in _sums(model, params, batch, rows >= 0).items():
            totals[name] = totals.get(name, 0.0) + float(value)
    return {name: totals[name] / n for name in sorted(totals, key=lambda name: name != "loss")}


def _batches(n: int) -> Iterator[np.ndarray]:
    # Sizes are powers of two, padded with -1: clients of all sizes share a few programs.
    size = min(_LARGEST_BATCH, 1 << max(0, n - 1).bit_length())
    for begin in range(0, n, size):
        rows = np.arange(begin, begin + size)
        yield np.where(rows < n, rows, -1)


def _masked_sums(model: Model, params: Tree, batch: Tree, keep: jax.Array) -> dict[str, jax.Array]:
    values = model.measure(params, batch)
    return {name: jnp.sum(jnp.where(keep, v, 0)) for name, v in values.items()}


_sums = jax.jit(_masked_sums, static_argnums=0)


def deployed_model(
    algorithm: Algorithm, x: Tree, server_state: Tree, row: Tree, client: Any
) -> Tree:
    """The model one client would use: the server's, unless the rule makes it personal."""
    dtype = float_type(x)
    me = hyper.of_client(algorithm, client, dtype)
    msg, _ = algorithm.rule.send(pretended_server(x, server_state))
    return me.rule.tilt(ClientView(x, msg, row, zeros, jnp.ones((), dtype))).deployed(x)


_deployed = jax.jit(deployed_model)


def _check_examples(examples: Tree, model: Model, params: Tree) -> None:
    if count(examples) == 0:
        raise HoldfastError("evaluate: the data set is empty; give at least one example.")
    check_finite(examples, "evaluate")
    if model.check is not None:
        model.check(examples)
    batch = tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), examples)
    try:
        values = jax.eval_shape(model.measure, params, batch)
    except Exception as error:  # whatever the model's library raises
        raise HoldfastError(
            f"evaluate: the model cannot take examples of {describe_shapes(batch)}: "
            f"{str(error).splitlines()[0]} Give test data shaped like the training data."
        ) from None
    for name, value in values.items():
        if value.shape != (2,):
            raise HoldfastError(
                f"evaluate: metric `{name}` has shape {value.shape} for 2 examples; "
                f"return one value per example."
            )


@dataclasses.dataclass(frozen=True)
class ServerModel:
    """The server's model on a data set."""

    examples: Any
    every: int = 1
    name: str = ""
    keeps_last_models = False

    def check(self, model: Model, params: Tree, clients: int) -> None:
        _check_examples(self.examples, model, params)

    def __call__(self, scene: Scene) -> dict[str, float]:
        return _named(self.name, measure(scene.model, scene.state.params, self.examples))


@dataclasses.dataclass(frozen=True)
class ClientAverage:
    """The average of every client's latest model."""

    examples: Any
    every: int = 1
    name: str = ""
    keeps_last_models = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        _check_examples(self.examples, model, params)

    def __call__(self, scene: Scene) -> dict[str, float]:
        found = measure(scene.model, average_of_clients(scene), self.examples)
        return _named(self.name, {f"average_{name}": value for name, value in found.items()})


def average_of_clients(scene: Scene) -> Tree:
    """Mean of all clients' latest models, weighted as the algorithm weights deltas."""
    by_examples = scene.algorithm.weighting == "examples"
    weights = scene.weights if by_examples else (scene.weights > 0).astype(float)
    weights = weights / weights.sum()
    seen = sorted(scene.state.rows.touched)
    unseen = 1.0 - weights[seen].sum()
    first = scene.state.rows.first.rule[-1]
    total = tree.map(lambda a: unseen * np.asarray(a, np.float64), first)
    for i in seen:
        total = tree.map(lambda s, a, w=weights[i]: s + w * a, total, scene.last_model(i))
    return tree.map(lambda s, a: s.astype(a.dtype), total, first)


@dataclasses.dataclass(frozen=True)
class Personal:
    """Each client's own model on its own data: the mean over clients and over the worst tenth."""

    examples: Any
    every: int = 1
    latest: bool = False
    adapt: Local | None = None
    name: str = ""

    @property
    def keeps_last_models(self) -> bool:
        """Only if the latest models are asked for."""
        return self.latest

    def check(self, model: Model, params: Tree, clients: int) -> None:
        own = isinstance(self.examples, Clients)
        if own and len(self.examples) != clients:
            raise HoldfastError(
                f"evaluate.personal: {len(self.examples)} clients have test data but the population "
                f"has {clients}; give every client its own, if only an empty one."
            )
        _check_examples(self.examples.examples if own else self.examples, model, params)

    def __call__(self, scene: Scene) -> dict[str, float]:
        found = list(self.each(scene).values())
        out = {}
        for name in found[0]:
            values = np.sort([f[name] for f in found])
            worst = values[:: 1 if greater_is_better(name, scene.model.greater_is_better) else -1]
            out[f"personal_{name}"] = float(values.mean())
            out[f"personal_{name}_worst_tenth"] = float(worst[: -(-len(values) // 10)].mean())
        return _named(self.name, out)

    def each(self, scene: Scene, most: int | None = None) -> dict[int, dict[str, float]]:
        """What is measured of each client that has test data; of `most` of them, spread evenly."""
        own = isinstance(self.examples, Clients)
        everyone = np.arange(len(scene.state.rows))
        ids = np.flatnonzero(self.examples.sizes) if own else everyone
        if most is not None and len(ids) > most:
            ids = ids[np.linspace(0, len(ids) - 1, most).astype(int)]
        return {
            i: measure(
                scene.model, self._params(scene, i), self.examples[i] if own else self.examples
            )
            for i in map(int, ids)
        }

    def _params(self, scene: Scene, client: int) -> Tree:
        # After pooling, everybody shares one client's model.
        who = client if len(scene.state.rows) > 1 else 0
        if self.latest:
            params = scene.last_model(who)
        elif scene.weights[who] == 0:  # no data, so nothing of its own
            params = scene.state.params
        else:
            params = _deployed(
                scene.algorithm,
                scene.state.params,
                scene.state.server.rule,
                scene.experiment.row(scene.state, who).rule,
                who,
            )
        return params if self.adapt is None else scene.experiment.adapted(params, who, self.adapt)


def _named(name: str, found: dict[str, float]) -> dict[str, float]:
    return {f"{name}_{key}": value for key, value in found.items()} if name else found


def _every(every: int) -> int:
    if not isinstance(every, int) or every < 1:
        raise HoldfastError(f"evaluate: every={every!r}; give a whole number of at least 1.")
    return every


@explain_arguments
def on(examples: Tree, every: int = 1, name: str = "") -> ServerModel:
    """The server's model: `loss` and the model's other metrics, every so many rounds.

    With `name="validation"` they are called `validation_loss` and so on.
    """
    return ServerModel(examples, _every(every), name)


@explain_arguments
def client_average(examples: Tree, every: int = 1, name: str = "") -> ClientAverage:
    """The average of every client's latest model (`average_accuracy`): what FedDyn's tables report."""
    return ClientAverage(examples, _every(every), name)


@explain_arguments
def personal(
    examples: Tree,
    every: int = 1,
    latest: bool = False,
    adapt: Local | None = None,
    name: str = "",
) -> Personal:
    """Each client's own model (`personal_accuracy`, and that of the worst tenth of clients).

    Args:
        examples: test data as `Clients`, one entry per client, or one data set for everybody.
        every: rounds between evaluations.
        latest: the model each client trained last, instead of the one the method would deploy there
            (which is the server's model unless the method is a personal one).
        adapt: local steps that each client takes from that model on its own training data before it
            is measured, as meta-learning does.
        name: goes before the names of what is measured.
    """
    return Personal(examples, _every(every), latest, adapt, name)
