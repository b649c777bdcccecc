"""More than one federation: populations of clients, each with its own loss and cohort, one model."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree

from holdfast.cohorts import Cohort, Everyone
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError, explain_constructor
from holdfast.metrics.metric import directions
from holdfast.models.model import Model
from holdfast.trees import Tree, describe_shapes, signature


class Grouped(NamedTuple):
    """Examples and the number of the population they belong to."""

    examples: Any
    group: Any


@explain_constructor
@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """Clients that share a loss and take part by a rule of their own.

    Args:
        clients: its clients; examples of all populations have the same fields and shapes.
        model: its loss and metrics; all populations train the same parameters.
        cohort: who of it takes part in a round; everyone unless given.
        weight: of its mean loss in the objective.
    """

    clients: Clients
    model: Model
    cohort: Cohort = dataclasses.field(default_factory=Everyone)
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise HoldfastError(
                f"Population: weight={self.weight}; give a number above 0.", about=("weight",)
            )


@dataclasses.dataclass(frozen=True)
class JoinedCohort:
    """Each population draws its own clients; they are numbered one population after another."""

    steady: ClassVar[bool] = False
    cohorts: tuple[Any, ...]
    starts: tuple[int, ...]  # number of the first client of each population, and of all
    weights: tuple[float, ...]  # of the populations in the objective
    able_counts: tuple[int, ...]  # clients with data in each

    def _parts(self, able: np.ndarray) -> list[np.ndarray]:
        ends = zip(self.starts[:-1], self.starts[1:], strict=True)
        return [able[(able >= a) & (able < b)] - a for a, b in ends]

    def check(self, able: np.ndarray, population: int) -> None:
        sizes = np.diff(self.starts)
        for cohort, part, size in zip(self.cohorts, self._parts(able), sizes, strict=True):
            cohort.check(part, int(size))

    def _population(self, ids: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.asarray(self.starts), ids, side="right") - 1

    def votes(self, ids: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Factors that make deltas a mean within each population, then over populations by weight."""
        which = self._population(ids)
        total = np.bincount(which, weight, minlength=len(self.weights))
        return np.asarray(self.weights)[which] / total[which]

    def importance(self, ids: np.ndarray) -> np.ndarray:
        """How much each client counts in the objective: w_p / N_p, 1 on average over all clients."""
        each = np.asarray(self.weights) / np.asarray(self.able_counts)
        return each[self._population(ids)] * (sum(self.able_counts) / sum(self.weights))

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        parts = zip(self.cohorts, self._parts(able), self.starts[:-1], strict=True)
        return np.concatenate([cohort.draw(t, part, rng) + start for cohort, part, start in parts])


class Joined(NamedTuple):
    """Several populations as one: what `simulate` takes."""

    model: Model
    clients: Clients
    cohort: JoinedCohort


def join(populations: Sequence[Population]) -> Joined:
    r"""Train one model on several federations.

    $$ \min_x \sum_p w_p \frac{1}{N_p} \sum_{i \in p} f_i^p(x) $$

    Deltas are averaged within each population and then over populations by weight; control variates
    and other things heard count each client by $w_p / N_p$, so that corrections stay exact whatever
    the sizes and participation rates.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> a, b = (hf.data.partition.iid(train, clients=n, seed=n) for n in (4, 6))
        >>> model = hf.models.softmax_regression(10)
        >>> both = hf.join([hf.Population(a, model), hf.Population(b, model, weight=2.0)])
        >>> local = hf.Local(0.1, steps=1)
        >>> run = hf.simulate(hf.algorithms.scaffold(), **both._asdict(), local=local, rounds=1)
        >>> len(run.client_states)
        10
    """
    if not populations:
        raise HoldfastError(
            "join: no populations are given; give at least one.", about=("populations",)
        )
    first = tree.map(lambda a: a[:1], populations[0].clients.examples)
    for p in populations[1:]:
        other = tree.map(lambda a: a[:1], p.clients.examples)
        if signature(other) != signature(first):
            raise HoldfastError(
                f"join: one population has examples of {describe_shapes(first)}, another of "
                f"{describe_shapes(other)}; give all the same fields, shapes and types.",
                about=("populations",),
            )
    starts = np.concatenate([[0], np.cumsum([len(p.clients) for p in populations])])
    cohort = JoinedCohort(
        tuple(p.cohort for p in populations),
        tuple(starts.tolist()),
        tuple(float(p.weight) for p in populations),
        tuple(int((p.clients.sizes > 0).sum()) for p in populations),
    )
    clients = _joined_clients([p.clients for p in populations])
    return Joined(_joined_model(tuple(p.model for p in populations)), clients, cohort)


def _joined_clients(parts: list[Clients]) -> Clients:
    sizes = [len(tree.leaves(c.examples)[0]) for c in parts]
    shifts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    examples = tree.map(
        lambda *a: np.concatenate([np.asarray(q) for q in a]), *(c.examples for c in parts)
    )
    group = np.repeat(np.arange(len(parts)), sizes).astype(np.int32)
    order = np.concatenate([c.order + s for c, s in zip(parts, shifts, strict=True)])
    lengths = np.concatenate([c.sizes for c in parts])
    return Clients(Grouped(examples, group), order, np.concatenate([[0], np.cumsum(lengths)]))


@functools.lru_cache(maxsize=64)
def _joined_model(models: tuple[Model, ...]) -> Model:
    def init(key: jax.Array, examples: Tree) -> Tree:
        return models[0].init(key, examples.examples)

    def loss(params: Tree, batch: Grouped, key: jax.Array) -> jax.Array:
        # All examples of a client are of one population, so one branch is computed.
        branches = [m.losses for m in models]
        return lax.switch(batch.group[0], branches, params, batch.examples, key)

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        if not isinstance(batch, Grouped):  # a test set of the first population's kind
            return models[0].measure(params, batch)
        found = [m.measure(params, batch.examples) for m in models]
        shared = [name for name in found[0] if all(name in f for f in found)]
        return {
            name: jnp.select(
                [batch.group == g for g in range(len(models))], [f[name] for f in found]
            )
            for name in shared
        }

    def check(examples: Tree) -> None:
        for g, m in enumerate(models):
            if m.check is None:
                continue
            if isinstance(examples, Grouped):
                mine = np.asarray(examples.group) == g
                m.check(tree.map(lambda a, mine=mine: np.asarray(a)[mine], examples.examples))
            elif g == 0:
                m.check(examples)

    declared = dict(pair for m in models for pair in directions(m.greater_is_better))
    name = " + ".join(m.name for m in models)
    return Model(init, loss, metrics, check, name=name, greater_is_better=declared)
