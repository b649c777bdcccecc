"""Evaluators: the server's model, the average of clients' models, every client's own."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core.local import Local
from holdfast.data.clients import Clients, check_finite, count
from holdfast.errors import HoldfastError, explain_arguments, whole_number
from holdfast.evaluate.protocol import EvaluationView
from holdfast.metrics import greater_is_better
from holdfast.models.model import Model
from holdfast.trees import Tree, describe_shapes

_LARGEST_BATCH = 2048


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
    return {name: jnp.sum(jnp.where(keep, v, jnp.zeros_like(v))) for name, v in values.items()}


_sums = jax.jit(_masked_sums, static_argnums=0)


def each_example(
    model: Model, params: Tree, examples: Tree, output: bool
) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Every metric of every example in 32 bits and, if asked for, what the model predicts of it."""
    predict = model.predictor.predict if output and model.predictor is not None else None
    parts: list[Any] = []
    for rows in _batches(count(examples)):
        batch = tree.map(lambda a, rows=rows: np.asarray(a)[np.maximum(rows, 0)], examples)
        found = jax.device_get(_values(model, predict, params, batch))
        parts.append(tree.map(lambda a, rows=rows: a[rows >= 0], found))
    metrics, outputs = tree.map(lambda *several: np.concatenate(several), *parts)
    return metrics, outputs


def _each(
    model: Model, predict: Any, params: Tree, batch: Tree
) -> tuple[dict[str, jax.Array], jax.Array | None]:
    measured = {n: v.astype(jnp.float32) for n, v in model.measure(params, batch).items()}
    return measured, None if predict is None else predict(params, batch).astype(jnp.float32)


# The predictor is an input of its own: models that differ in it alone are equal.
_values = jax.jit(_each, static_argnums=(0, 1))


def _check_examples(examples: Tree, model: Model, params: Tree) -> list[str]:
    """Refuse examples the model cannot take; the names of what it measures of them."""
    if count(examples) == 0:
        raise HoldfastError(
            "evaluate: the data set is empty; give at least one example.", about=("data",)
        )
    check_finite(examples, "evaluate")
    model.check_examples(examples, "evaluate", ("data",))
    batch = tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), examples)
    try:
        values = jax.eval_shape(model.measure, params, batch)
    except Exception as error:  # whatever the model's library raises
        raise HoldfastError(
            f"evaluate: the model cannot take examples of {describe_shapes(batch)}: "
            f"{str(error).splitlines()[0]} Give test data shaped like the training data.",
            about=("data",),
        ) from None
    for name, value in values.items():
        if value.shape != (2,):
            raise HoldfastError(
                f"evaluate: metric `{name}` has shape {value.shape} for 2 examples; "
                f"return one value per example.",
                about=("model",),
            )
    return list(values)


@dataclasses.dataclass(frozen=True)
class ServerModel:
    """The server's model on a data set."""

    examples: Any
    every: int = 1
    name: str = ""
    keeps_last_models = False
    at_start = True  # the model before the first round can be measured too

    def check(self, model: Model, params: Tree, clients: int) -> None:
        _check_examples(self.examples, model, params)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        return _all_named(self.name, measured)

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        return _named(self.name, measure(view.model, view.state.params, self.examples))


@dataclasses.dataclass(frozen=True)
class ClientAverage:
    """The average of every client's latest model."""

    examples: Any
    every: int = 1
    name: str = ""
    keeps_last_models = True
    at_start = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        _check_examples(self.examples, model, params)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        return _all_named(self.name, [f"average_{name}" for name in measured])

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        found = measure(view.model, average_of_clients(view), self.examples)
        return _named(self.name, {f"average_{name}": value for name, value in found.items()})


def average_of_clients(view: EvaluationView) -> Tree:
    """Mean of all clients' latest models, weighted as the algorithm weights deltas."""
    states = view.state.client_states
    weights = view.weights / view.weights.sum()
    seen = sorted(states.touched)
    unseen = 1.0 - weights[seen].sum()
    first = states.first.latest
    total = tree.map(lambda a: unseen * np.asarray(a, np.float64), first)
    for i in seen:
        total = tree.map(lambda s, a, w=weights[i]: s + w * a, total, view.latest(i))
    return tree.map(lambda s, a: s.astype(a.dtype), total, first)


@dataclasses.dataclass(frozen=True)
class ActiveAverage:
    """The average of the models that the round's clients trained."""

    examples: Any
    every: int = 1
    name: str = ""
    keeps_last_models = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        _check_examples(self.examples, model, params)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        return _all_named(self.name, [f"active_{name}" for name in measured])

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        average = average_of_active(view)
        if average is None:
            return {}
        found = measure(view.model, average, self.examples)
        return _named(self.name, {f"active_{name}": value for name, value in found.items()})


def average_of_active(view: EvaluationView) -> Tree | None:
    """Mean of the models that the last round's clients trained, weighted as their deltas were; None if
    there were none."""
    entry = view.state.ledger.entries[-1]
    active = np.setdiff1d(entry.clients, entry.left_out).astype(np.int64)
    if not len(active):
        return None
    weights = view.weights_of(active)
    models = view.state.client_states.read(active).latest

    def mean(stacked: Any) -> np.ndarray:
        # In double precision, for a mean of many.
        several = np.asarray(stacked)
        total = np.tensordot(weights / weights.sum(), several.astype(np.float64), axes=1)
        return total.astype(several.dtype)

    return tree.map(mean, models)


@dataclasses.dataclass(frozen=True)
class Personal:
    """Each client's own model on its own data: the mean over clients and over the worst tenth."""

    examples: Any
    every: int = 1
    latest: bool = False
    adapt: Local | None = None
    name: str = ""
    at_start = True

    @property
    def keeps_last_models(self) -> bool:
        """Only if the latest models are asked for."""
        return self.latest

    def check(self, model: Model, params: Tree, clients: int) -> None:
        own = isinstance(self.examples, Clients)
        if own and len(self.examples) != clients:
            raise HoldfastError(
                f"evaluate.personal: {len(self.examples)} clients have test data but the population "
                f"has {clients}; give every client its own, if only an empty one.",
                about=("evaluate", "personal"),
            )
        names = _check_examples(self.examples.examples if own else self.examples, model, params)
        # The worst tenth is of those that are worse.
        for name in names:
            greater_is_better(name, model.greater_is_better)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        names = [f"personal_{name}{end}" for name in measured for end in ("", "_worst_tenth")]
        return _all_named(self.name, names)

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        found = list(self.each(view).values())
        out = {}
        # Populations may have metrics of their own.
        for name in (name for name in found[0] if all(name in other for other in found)):
            values = np.sort([f[name] for f in found])
            worst = values[:: 1 if greater_is_better(name, view.model.greater_is_better) else -1]
            out[f"personal_{name}"] = float(values.mean())
            out[f"personal_{name}_worst_tenth"] = float(worst[: -(-len(values) // 10)].mean())
        return _named(self.name, out)

    def each(self, view: EvaluationView, most: int | None = None) -> dict[int, dict[str, float]]:
        """What is measured of each client that has test data; of `most` of them, spread evenly."""
        return {
            i: measure(view.model, params, examples)
            for i, params, examples in self.models(view, most)
        }

    def models(
        self, view: EvaluationView, most: int | None = None
    ) -> Iterator[tuple[int, Tree, Tree]]:
        """Of the same clients the number, the model it is measured by and the examples."""
        own = isinstance(self.examples, Clients)
        everyone = np.arange(len(view.state.client_states))
        ids = np.flatnonzero(self.examples.sizes) if own else everyone
        if most is not None and len(ids) > most:
            ids = ids[np.linspace(0, len(ids) - 1, most).astype(int)]
        for i in map(int, ids):
            yield i, self._params(view, i), self.examples[i] if own else self.examples

    def _params(self, view: EvaluationView, client: int) -> Tree:
        # After pooling, everybody shares one client's model.
        who = client if len(view.state.client_states) > 1 else 0
        if self.latest:
            latest = view.latest(who)
            return latest if self.adapt is None else view.adapted(latest, who, self.adapt)
        # Without data there is nothing of its own.
        if view.weights[who] == 0:
            return view.state.params
        return view.personal(who) if self.adapt is None else view.personal(who, self.adapt)


def _named(name: str, found: dict[str, float]) -> dict[str, float]:
    return {f"{name}_{key}": value for key, value in found.items()} if name else found


def _all_named(name: str, columns: list[str]) -> list[str]:
    return list(_named(name, dict.fromkeys(columns, 0.0)))


def _every(every: int) -> int:
    return whole_number("evaluate", "every", every)


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
def active_average(examples: Tree, every: int = 1, name: str = "") -> ActiveAverage:
    r"""The average of the models that the clients of the round trained (`active_accuracy`).

    $$ \gamma^t = \tfrac{1}{|S_t|} \sum_{i \in S_t} y_i^t $$

    What FedDyn's theorems bound. Weighted as the method weights deltas; for FedAvg it is the
    server's model. A client whose reply was not finite does not count, and a round without clients
    measures nothing.

    Args:
        examples: a data set.
        every: rounds between evaluations.
        name: goes before the names of what is measured.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> both = [hf.evaluate.on(data), hf.evaluate.active_average(data)]
        >>> algorithm = hf.algorithms.feddyn(alpha=1.0)
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=4, evaluate=both)
        >>> for record in run.history:
        ...     print(f"server {record['loss']:.3f}, active clients {record['active_loss']:.3f}")
        server 0.275, active clients 0.956
        server 0.276, active clients 0.288
        server 0.213, active clients 0.208
        server 0.201, active clients 0.201
    """
    return ActiveAverage(examples, _every(every), name)


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
            is measured; those of the method unless given, if it adapts (`reptile`, `fomaml`).
        name: goes before the names of what is measured.
    """
    return Personal(examples, _every(every), latest, adapt, name)
