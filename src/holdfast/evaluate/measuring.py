"""Measuring a model on a set: means over examples, metrics of the whole, and what is refused before."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.data.clients import Clients, check_finite, count
from holdfast.errors import HoldfastError
from holdfast.evaluate import predictions
from holdfast.evaluate.batches import in_batches
from holdfast.metrics import Metric, find
from holdfast.metrics.metric import Directions
from holdfast.models.foreign import uncompiled
from holdfast.models.model import Model
from holdfast.trees import Tree, describe_shapes


def measure(
    model: Model, params: Tree, examples: Tree, metrics: Sequence[Metric] = ()
) -> dict[str, float | None]:
    """Means of the model's metrics over examples, in batches of bounded size, and metrics of the whole
    set; None where the set has no such value."""
    n = count(examples)
    means = {name: total / n for name, total in totals(model, params, examples).items()}
    others = [metric for metric in metrics if metric.name not in means]
    return means | predictions.of_set(others, model, params, examples)


def totals(model: Model, params: Tree, examples: Tree) -> dict[str, float]:
    """Sums of the model's metrics over examples, the loss first."""
    found: dict[str, float] = {}
    for rows, batch in in_batches(examples):
        with uncompiled(model):
            sums = _sums(model, params, batch, rows >= 0)
        for name, value in sums.items():
            found[name] = found.get(name, 0.0) + float(value)
    return {name: found[name] for name in sorted(found, key=lambda name: name != "loss")}


def measure_together(
    model: Model, params: Tree, tests: Clients, ids: Sequence[int]
) -> dict[int, dict[str, float | None]]:
    """What `measure` finds of these clients' examples where all use one model: clients may share examples,
    so each is looked at once."""
    rows = np.unique(np.concatenate([tests.rows(i) for i in ids]))
    parts = []
    for kept, batch in in_batches(tree.map(lambda a: np.asarray(a)[rows], tests.examples)):
        with uncompiled(model):
            found = jax.device_get(_metrics(model, params, batch))
        parts.append({name: np.asarray(v, np.float64)[kept >= 0] for name, v in found.items()})
    names = sorted(parts[0], key=lambda name: name != "loss")
    values = {name: np.concatenate([part[name] for part in parts]) for name in names}
    places = {i: np.searchsorted(rows, tests.rows(i)) for i in ids}
    return {i: {n: float(values[n][at].mean()) for n in names} for i, at in places.items()}


_metrics = jax.jit(lambda model, params, batch: model.measure(params, batch), static_argnums=0)


def known(found: Mapping[str, float | None]) -> dict[str, float]:
    """Without what has no value."""
    return {name: value for name, value in found.items() if value is not None}


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
    for rows, batch in in_batches(examples):
        with uncompiled(model):
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


def check_examples(
    examples: Tree,
    model: Model,
    params: Tree,
    metrics: Sequence[Metric] = (),
    whole: bool = True,
) -> list[str]:
    """Refuse examples the model cannot take, and metrics that make no sense of it; the names of what is
    measured of them."""
    if count(examples) == 0:
        raise HoldfastError(
            "evaluate: the data set is empty; give at least one example.", about=("data",)
        )
    check_finite(examples, "evaluate")
    model.check_examples(examples, "evaluate", ("data",))
    batch = tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), examples)
    try:
        # The function itself where there is one: JAX remembers what it has traced.
        values = jax.eval_shape(model.metrics or model.measure, params, batch)
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
    others = [metric for metric in metrics if metric.name not in values]
    predictions.check(others, model, params, examples, whole)
    return [*values, *(metric.name for metric in others)]


def also(measured: list[str], metrics: Sequence[Metric]) -> list[str]:
    """With the names of metrics of sets that the model does not measure itself."""
    return list(dict.fromkeys([*measured, *(metric.name for metric in metrics)]))


def _says(metric: Metric) -> bool:
    known = find(metric.name)
    return known is not None and known.greater_is_better == metric.greater_is_better


class Measuring:
    """What evaluators with metrics of sets have in common."""

    metrics: tuple[Metric, ...]

    @property
    def directions(self) -> Directions:
        """Which way the metrics that it was given are better, where their names do not say so."""
        return tuple(sorted((m.name, m.greater_is_better) for m in self.metrics if not _says(m)))
