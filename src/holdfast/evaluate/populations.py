"""Several populations, each measured on its own test set."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from holdfast.data.clients import Clients
from holdfast.data.grouped import OfPopulation
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.evaluate.evaluators import on
from holdfast.evaluate.protocol import EvaluationView, Evaluator
from holdfast.metrics import Metric
from holdfast.metrics.metric import Directions
from holdfast.models.model import Model
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class EachPopulation:
    """What an evaluator measures on every population's own test set, and the mean by their weights."""

    parts: tuple[Evaluator, ...]
    names: tuple[str, ...]
    weights: tuple[float, ...]
    # What each population's model measures, where that is known beforehand.
    metrics: tuple[tuple[str, ...], ...] = ()

    @property
    def every(self) -> int:
        """Rounds between measurements."""
        return self.parts[0].every

    @property
    def keeps_last_models(self) -> bool:
        """Whether clients must remember the model they trained last."""
        return any(part.keeps_last_models for part in self.parts)

    @property
    def directions(self) -> Directions:
        """Which way the metrics that its parts were given are better."""
        return tuple(sorted({pair for e in self.parts for pair in getattr(e, "directions", ())}))

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Refuse data that a population's model cannot take."""
        for part in self.parts:
            part.check(model, params, clients)

    def columns(self, measured: Sequence[str]) -> list[str]:
        """What it writes, if this is measured of all examples."""
        each = self.metrics or (tuple(measured),) * len(self.parts)
        found = [part.columns(list(own)) for part, own in zip(self.parts, each, strict=True)]  # type: ignore[attr-defined]
        shared = [name for name in found[0] if all(name in other for other in found)]
        named = zip(self.names, found, strict=True)
        return shared + [f"{population}_{name}" for population, own in named for name in own]

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        found = [part(view) for part in self.parts]
        shared = [name for name in found[0] if all(name in other for other in found)]
        out = {
            name: float(np.average([f[name] for f in found], weights=self.weights))
            for name in shared
        }
        for population, measured in zip(self.names, found, strict=True):
            out |= {f"{population}_{name}": value for name, value in measured.items()}
        return out


@explain_arguments
def populations(
    clients: Clients,
    tests: Sequence[Any],
    of: Callable[..., Evaluator] = on,
    every: int = 1,
    name: str = "",
    metrics: Sequence[Metric] = (),
) -> EachPopulation:
    r"""Each population's metrics on its own test set (`phones_loss`), and their mean by weight (`loss`).

    $$ \frac{\sum_p w_p\, m_p}{\sum_p w_p} \text{ for every metric } m \text{ that all populations have} $$

    Args:
        clients: those of `hf.join`.
        tests: one data set for each population.
        of: `hf.evaluate.on`, `client_average` or `active_average`: which model is measured.
        every: rounds between evaluations.
        name: goes before the names of what is measured.
        metrics: metrics of each whole set besides, as of `hf.evaluate.on`.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=4)
        >>> model = hf.models.softmax_regression(10)
        >>> both = hf.join([hf.Population(clients, model, name=name) for name in ("a", "b")])
        >>> measured = hf.evaluate.populations(both.clients, [test, test])
        >>> local = hf.Local(0.1, steps=1)
        >>> run = hf.simulate(hf.algorithms.fedavg(), **both, local=local, rounds=1, evaluate=measured)
        >>> [name for name in run.history.columns if "accuracy" in name]
        ['accuracy', 'a_accuracy', 'b_accuracy']
    """
    known = clients.populations
    count = 0 if known is None else len(known)
    if known is None or len(tests) != count:
        raise HoldfastError(
            f"evaluate.populations: {len(tests)} test sets for {count} populations that hf.join put "
            f"together; give one for each.",
            about=("tests",),
        )
    also: dict[str, Any] = {"metrics": metrics} if metrics else {}
    parts = tuple(of(OfPopulation(t, p), every, name=name, **also) for p, t in enumerate(tests))
    return EachPopulation(parts, known.names, known.weights)
