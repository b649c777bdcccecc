"""Evaluators: the server's model, the average of clients' models, every client's own."""

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax import tree

from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError, HoldfastWarning, explain_arguments, whole_number
from holdfast.evaluate import predictions
from holdfast.evaluate.measuring import (
    Measuring,
    also,
    check_examples,
    known,
    measure,
    measure_together,
)
from holdfast.evaluate.protocol import EvaluationView
from holdfast.metrics import Metric, greater_is_better
from holdfast.metrics.by_name import as_metrics
from holdfast.metrics.metric import Directions, directions
from holdfast.models.model import Model
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class ServerModel(Measuring):
    """The server's model on a data set."""

    examples: Any
    every: int = 1
    name: str = ""
    metrics: tuple[Metric, ...] = ()
    keeps_last_models = False
    at_start = True  # the model before the first round can be measured too

    def check(self, model: Model, params: Tree, clients: int) -> None:
        check_examples(self.examples, model, params, self.metrics)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        return _all_named(self.name, also(measured, self.metrics))

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        found = measure(view.model, view.state.params, self.examples, self.metrics)
        return named_by(self.name, known(found))


@dataclasses.dataclass(frozen=True)
class ClientAverage(Measuring):
    """The average of every client's latest model."""

    examples: Any
    every: int = 1
    name: str = ""
    metrics: tuple[Metric, ...] = ()
    keeps_last_models = True
    at_start = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        check_examples(self.examples, model, params, self.metrics)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        return _all_named(self.name, [f"average_{name}" for name in also(measured, self.metrics)])

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        found = measure(view.model, average_of_clients(view), self.examples, self.metrics)
        return named_by(self.name, {f"average_{n}": value for n, value in known(found).items()})


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
class ActiveAverage(Measuring):
    """The average of the models that the round's clients trained."""

    examples: Any
    every: int = 1
    name: str = ""
    metrics: tuple[Metric, ...] = ()
    keeps_last_models = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        check_examples(self.examples, model, params, self.metrics)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        return _all_named(self.name, [f"active_{name}" for name in also(measured, self.metrics)])

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        average = average_of_active(view)
        if average is None:
            return {}
        found = measure(view.model, average, self.examples, self.metrics)
        return named_by(self.name, {f"active_{n}": value for n, value in known(found).items()})


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
class Personal(Measuring):
    """Each client's own model on its own data: the mean over clients and over the worst tenth."""

    examples: Any
    every: int = 1
    latest: bool = False
    adapt: Local | None = None
    name: str = ""
    metrics: tuple[Metric, ...] = ()
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
        names = self._check_tests(model, params)
        # The worst tenth is of those that are worse.
        for name in names:
            greater_is_better(name, self._directions(model))

    def _check_tests(self, model: Model, params: Tree) -> list[str]:
        if not isinstance(self.examples, Clients):
            return check_examples(self.examples, model, params, self.metrics)
        tests = self.examples
        if tests.populations is None:
            names = check_examples(tests.examples, model, params, self.metrics, whole=False)
        else:
            # Each population has predictions of its own, and one client's examples say which.
            names = check_examples(tests.examples, model, params)
            firsts = [
                int(np.argmax(tests.populations.of == p)) for p in range(len(tests.populations))
            ]
            for i in firsts if self.metrics else ():
                check_examples(tests[i], model, params, self.metrics, whole=False)
            names = also(names, self.metrics)
        self._say_who_has_none(tests)
        return names

    def _say_who_has_none(self, tests: Clients) -> None:
        """Clients whose test examples have no such value, which no mean counts."""
        tested = np.flatnonzero(tests.sizes)
        for metric in self.metrics:
            labels = [predictions.labels_of(tests[int(i)]) for i in tested]
            none = predictions.without_value(metric, [y for y in labels if y is not None])
            if len(none) == len(tested):
                raise HoldfastError(
                    f"evaluate.personal: `{metric.name}` compares classes, and no client has test examples "
                    f"of two; take it out, or give clients other test examples.",
                    about=("evaluate", "metrics"),
                )
            if none:
                few = ", ".join(tests.name(int(tested[i])) for i in none[:5])
                more = ", ..." if len(none) > 5 else ""
                warnings.warn(
                    f"{metric.name}: {len(none)} of {len(tested)} clients ({few}{more}) have test examples "
                    f"of one class and so none of their own; its mean is over the others.",
                    HoldfastWarning,
                    stacklevel=2,
                )

    def _directions(self, model: Model) -> Directions:
        return tuple(
            sorted({**dict(directions(model.greater_is_better)), **dict(self.directions)}.items())
        )

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes, from the names of the model's metrics."""
        both = [
            (name, end) for name in also(measured, self.metrics) for end in ("", "_worst_tenth")
        ]
        names = [f"personal_{name}{end}" for name, end in both]
        return _all_named(self.name, names)

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        return self.of_clients(view, list(self.each(view).values()))

    def of_clients(
        self, view: EvaluationView, found: Sequence[Mapping[str, float | None]]
    ) -> dict[str, float]:
        """What comes of what was measured of each client: the mean, and that of the worst tenth."""
        declared = self._directions(view.model)
        out = {}
        # Populations may have metrics of their own.
        for name in (name for name in found[0] if all(name in other for other in found)):
            values = np.sort([value for f in found if (value := f[name]) is not None])
            if not len(values):
                continue
            worst = values[:: 1 if greater_is_better(name, declared) else -1]
            out[f"personal_{name}"] = float(values.mean())
            out[f"personal_{name}_worst_tenth"] = float(worst[: -(-len(values) // 10)].mean())
        return named_by(self.name, out)

    def each(
        self, view: EvaluationView, most: int | None = None
    ) -> dict[int, dict[str, float | None]]:
        """What is measured of each client that has test data, None where its examples have no such value;
        of `most` of them, spread evenly."""
        tests, together = self.examples, []
        # Of one model on plain metrics, what all clients are measured on is looked at once.
        alike = isinstance(tests, Clients) and tests.populations is None and not self.metrics
        found = {}
        for i in self._tested(view, most):
            params = self.model_of(view, i)
            if alike and params is view.state.params:
                together.append(i)
            else:
                found[i] = measure(view.model, params, self._of(i), self.metrics)
        if together:
            found |= measure_together(view.model, view.state.params, tests, together)
        return dict(sorted(found.items()))

    def models(
        self, view: EvaluationView, most: int | None = None
    ) -> Iterator[tuple[int, Tree, Tree]]:
        """Of the same clients the number, the model it is measured by and the examples."""
        for i in self._tested(view, most):
            yield i, self.model_of(view, i), self._of(i)

    def _tested(self, view: EvaluationView, most: int | None) -> list[int]:
        own = isinstance(self.examples, Clients)
        everyone = np.arange(len(view.state.client_states))
        ids = np.flatnonzero(self.examples.sizes) if own else everyone
        if most is not None and len(ids) > most:
            ids = ids[np.linspace(0, len(ids) - 1, most).astype(int)]
        return [int(i) for i in ids]

    def _of(self, client: int) -> Tree:
        return self.examples[client] if isinstance(self.examples, Clients) else self.examples

    def model_of(self, view: EvaluationView, client: int) -> Tree:
        """The model that one client is measured by."""
        # After pooling, everybody shares one client's model.
        who = client if len(view.state.client_states) > 1 else 0
        if self.latest:
            latest = view.latest(who)
            return latest if self.adapt is None else view.adapted(latest, who, self.adapt)
        # Without data there is nothing of its own.
        if view.weights[who] == 0:
            return view.state.params
        return view.personal(who) if self.adapt is None else view.personal(who, self.adapt)


def named_by(name: str, found: dict[str, float]) -> dict[str, float]:
    """What was measured, with a set's name before the name of each metric."""
    return {f"{name}_{key}": value for key, value in found.items()} if name else found


def _all_named(name: str, columns: list[str]) -> list[str]:
    return list(named_by(name, dict.fromkeys(columns, 0.0)))


def _every(every: int) -> int:
    return whole_number("evaluate", "every", every)


@explain_arguments
def on(
    examples: Tree, every: int = 1, name: str = "", metrics: Sequence[Metric] = ()
) -> ServerModel:
    """The server's model: `loss` and the model's other metrics, every so many rounds.

    Args:
        examples: a data set.
        every: rounds between evaluations.
        name: goes before the names of what is measured: with "validation" it is `validation_loss`.
        metrics: metrics of the whole set besides, by scikit-learn's definitions: names such as `"auc"`
            (`holdfast list metrics` has all), or functions `(labels, predictions) -> number` of your own
            (`hf.metrics.declare`).

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.breast_cancer()
        >>> clients = hf.data.partition.iid(train, clients=4)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.logistic_regression(),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, steps=5),
        ...     rounds=2,
        ...     evaluate=hf.evaluate.on(test, metrics=["auc", "brier"]),
        ... )
        >>> [name for name in run.history.columns if name in ("accuracy", "auc", "brier")]
        ['accuracy', 'auc', 'brier']
    """
    return ServerModel(examples, _every(every), name, as_metrics(metrics))


@explain_arguments
def client_average(
    examples: Tree, every: int = 1, name: str = "", metrics: Sequence[Metric] = ()
) -> ClientAverage:
    """The average of every client's latest model (`average_accuracy`): what FedDyn's tables report.

    Args:
        examples: a data set.
        every: rounds between evaluations.
        name: goes before the names of what is measured.
        metrics: metrics of the whole set besides, as of `hf.evaluate.on`.
    """
    return ClientAverage(examples, _every(every), name, as_metrics(metrics))


@explain_arguments
def active_average(
    examples: Tree, every: int = 1, name: str = "", metrics: Sequence[Metric] = ()
) -> ActiveAverage:
    r"""The average of the models that the clients of the round trained (`active_accuracy`).

    $$ \gamma^t = \tfrac{1}{|S_t|} \sum_{i \in S_t} y_i^t $$

    What FedDyn's theorems bound. Weighted as the method weights deltas; for FedAvg it is the
    server's model. A client whose reply was not finite does not count, and a round without clients
    measures nothing.

    Args:
        examples: a data set.
        every: rounds between evaluations.
        name: goes before the names of what is measured.
        metrics: metrics of the whole set besides, as of `hf.evaluate.on`.

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
    return ActiveAverage(examples, _every(every), name, as_metrics(metrics))


@explain_arguments
def personal(
    examples: Tree,
    every: int = 1,
    latest: bool = False,
    adapt: Local | None = None,
    name: str = "",
    metrics: Sequence[Metric] = (),
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
        metrics: metrics of each client's own set besides, as of `hf.evaluate.on`. A client whose examples
            have no such value, as AUC of one class, is in no mean.
    """
    return Personal(examples, _every(every), latest, adapt, name, as_metrics(metrics))
