"""One model for several populations: each has its own loss and metrics of the same parameters."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree

from holdfast.data.grouped import Grouped, OfPopulation, Whose
from holdfast.errors import HoldfastError
from holdfast.metrics.metric import directions
from holdfast.models.model import Model, Predictor, Table
from holdfast.trees import Tree, describe_shapes


@dataclasses.dataclass(frozen=True)
class JoinedTable(Table):
    """A table that each population looks up by fields of its own."""

    # One per population; None for one that does not declare the table, and may use any of its rows.
    own: tuple[Table | None, ...] = ()

    def used(self, examples: Grouped, rows: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
        """For each client, whose rows of the examples these are, the rows of the table it uses."""

        def of(mine: np.ndarray) -> np.ndarray:
            if not len(mine):
                return np.unique(np.asarray(self.always, np.int64))
            p = int(examples.group[mine[0]])
            table = self.own[p]
            return np.arange(size) if table is None else table.used(parts[p], [mine], size)[0]

        parts = [examples.of(p) for p in range(len(self.own))]
        return [of(mine) for mine in rows]


def joined_tables(models: Sequence[Model], whose: Sequence[Whose]) -> tuple[Table, ...]:
    """The tables of several populations' models, looked up by columns of their joined examples."""
    leaves = dict.fromkeys(table.leaf for model in models for table in model.tables)
    found = []
    for leaf in leaves:
        own = tuple(next((t for t in m.tables if t.leaf == leaf), None) for m in models)
        known = [(t, w) for t, w in zip(own, whose, strict=True) if t is not None]
        columns = dict.fromkeys(w.column(field) for t, w in known for field in t.fields)
        always = dict.fromkeys(row for t, _ in known for row in t.always)
        found.append(JoinedTable(leaf, tuple(columns), tuple(always), own))
    return tuple(found)


def table_roles(model: Model) -> dict[str, frozenset[str]]:
    """For each field that holds row numbers, the tables they are of."""
    fields = {field for table in model.tables for field in table.fields}
    return {f: frozenset(t.leaf for t in model.tables if f in t.fields) for f in fields}


@functools.lru_cache(maxsize=64)
def joined_model(
    models: tuple[Model, ...], names: tuple[str, ...], whose: tuple[Whose, ...]
) -> Model:
    """The model of populations with these names, whose examples are stored in these columns."""
    # Populations with the same loss and the same columns are one branch.
    pairs = list(zip(models, whose, strict=True))
    kinds = list(dict.fromkeys(pairs))
    first_of = [pairs.index(kind) for kind in kinds]
    kind_of = np.array([kinds.index(pair) for pair in pairs], np.int32)

    def unnamed(what: str) -> Model:
        """The model of examples that do not say whose they are."""
        if any(m != models[0] for m in models[1:]):
            raise HoldfastError(
                f"{what}: the populations {', '.join(names)} have models of their own, and these examples do "
                f"not say whose they are; give joined.of({names[0]!r}, examples), joined being what "
                f"hf.join returned.",
                about=("data",),
            )
        return models[0]

    def init(key: jax.Array, examples: Tree) -> Tree:
        if isinstance(examples, OfPopulation):
            return models[examples.population].init(key, examples.examples)
        if not isinstance(examples, Grouped):
            return unnamed("init").init(key, examples)
        begun = [models[p].init(key, _own(examples, p)) for p in first_of]
        for p, other in zip(first_of, begun, strict=True):
            if describe_shapes(other) != describe_shapes(begun[0]):
                raise HoldfastError(
                    f"join: the model of population {names[0]} has {describe_shapes(begun[0])}, that of "
                    f"{names[p]} {describe_shapes(other)}; let all train the same parameters.",
                    about=("model",),
                )
        return begun[0]

    def loss(params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        if isinstance(batch, OfPopulation):
            return models[batch.population].losses(params, batch.examples, key)
        if not isinstance(batch, Grouped):
            return unnamed("loss").losses(params, batch, key)

        def branch(p: int) -> Any:
            return lambda params, batch, key: models[p].losses(params, batch.of(p), key)

        branches = [branch(p) for p in first_of]
        if len(branches) == 1:
            return branches[0](params, batch, key)
        # All examples of a client are of one population, so one branch is computed.
        kind = jnp.asarray(kind_of)[batch.group[0]]
        return lax.switch(kind, branches, params, batch, key)

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        if isinstance(batch, OfPopulation):
            return models[batch.population].measure(params, batch.examples)
        if not isinstance(batch, Grouped):
            return unnamed("evaluate").measure(params, batch)
        found = [models[p].measure(params, batch.of(p)) for p in first_of]
        shared = [name for name in found[0] if all(name in f for f in found)]
        kind = jnp.asarray(kind_of)[batch.group]
        places = [kind == k for k in range(len(found))]
        return {name: jnp.select(places, [f[name] for f in found]) for name in shared}

    def predict(params: Tree, batch: Tree) -> jax.Array:
        if isinstance(batch, Grouped):
            raise HoldfastError(
                f"predict: examples of {', '.join(names)} are given together; give "
                f"joined.of({names[0]!r}, examples), joined being what hf.join returned.",
                about=("data",),
            )
        if isinstance(batch, OfPopulation):
            return models[batch.population].predict(params, batch.examples)
        return unnamed("predict").predict(params, batch)

    def output(params: Tree, batch: Tree) -> jax.Array:
        if isinstance(batch, Grouped):
            raise HoldfastError(
                f"output: examples of {', '.join(names)} are given together; give "
                f"joined.of({names[0]!r}, examples), joined being what hf.join returned.",
                about=("data",),
            )
        named = isinstance(batch, OfPopulation)
        own = models[batch.population] if named else unnamed("output")
        assert own.output is not None
        return own.output(params, batch.examples if named else batch)

    def of_predictions(found: jax.Array, batch: Tree) -> dict[str, jax.Array]:
        own = models[batch.population] if isinstance(batch, OfPopulation) else unnamed("predict")
        assert own.predictor is not None
        return own.predictor.metrics(found, getattr(batch, "examples", batch))

    def check(examples: Tree) -> None:
        if isinstance(examples, OfPopulation):
            _check(models[examples.population], examples.examples)
        elif isinstance(examples, Grouped):
            for p, model in enumerate(models):
                if model.check is not None:
                    model.check(_own(examples, p))
        else:
            _check(unnamed("data"), examples)

    return Model(
        init,
        loss,
        metrics,
        check,
        name=" + ".join(m.name for m in models),
        tables=joined_tables(models, whose),
        greater_is_better=_declared(models, names),
        # Of one population's examples, which say whose they are.
        predictor=Predictor(predict, of_predictions) if all(m.predictor for m in models) else None,
        output=output if all(m.output for m in models) else None,
    )


def _check(model: Model, examples: Tree) -> None:
    if model.check is not None:
        model.check(examples)


def _own(examples: Grouped, population: int) -> Tree:
    """A population's own rows, where it is known which they are."""
    if isinstance(examples.group, jax.core.Tracer) or len(examples.group) == 1:
        return examples.of(population)
    mine = np.asarray(examples.group) == population
    return tree.map(lambda a: np.asarray(a)[mine], examples.of(population))


def _declared(models: Sequence[Model], names: Sequence[str]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for model, population in zip(models, names, strict=True):
        for name, greater in directions(model.greater_is_better):
            if found.setdefault(name, greater) != greater:
                raise HoldfastError(
                    f"join: `{name}` is better when greater in one population, when smaller in {population}; "
                    f"let their models agree, or name the two differently.",
                    about=("model",),
                )
    return found


@functools.lru_cache(maxsize=64)
def counting(model: Model, total: float) -> Model:
    """The same model with clients' losses times the sum of their populations' weights.

    The server's loss stands beside them with a weight of its own, so that all weights are on one scale.
    """

    def loss(params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        values = model.losses(params, batch, key)
        return values * total if isinstance(batch, Grouped) else values

    return dataclasses.replace(model, loss=loss)
