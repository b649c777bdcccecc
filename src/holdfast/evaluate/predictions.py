"""Metrics of a whole set: what a model predicts for all of its examples, and what they say of that."""

import math
import numbers
from collections.abc import Sequence

import jax
import numpy as np
from jax import tree

from holdfast.errors import HoldfastError
from holdfast.evaluate.batches import in_batches
from holdfast.metrics.metric import Metric
from holdfast.models.foreign import uncompiled
from holdfast.models.model import Model
from holdfast.trees import Tree

_WANTED = {
    "classes": "the probabilities of a classifier with one label per example",
    "two classes": "the probabilities of a classifier with two classes",
    "numbers": "the numbers of a regression",
}


def labels_of(examples: Tree) -> np.ndarray | None:
    """The label of each example; None of examples that have none."""
    found = getattr(examples, "y", None)
    return None if found is None else np.asarray(found)


# The function alone: models that differ in what they predict may be equal.
_predicted = jax.jit(lambda predict, params, batch: predict(params, batch), static_argnums=0)


def predictions_of(model: Model, params: Tree, examples: Tree) -> np.ndarray:
    """What the model predicts of every example, in batches of bounded size."""
    assert model.predictor is not None
    predict = model.predictor.predict
    with uncompiled(model):
        parts = [
            np.asarray(_predicted(predict, params, batch))[rows >= 0]
            for rows, batch in in_batches(examples)
        ]
    return np.concatenate(parts)


def of_set(
    metrics: Sequence[Metric], model: Model, params: Tree, examples: Tree
) -> dict[str, float | None]:
    """Metrics of a set that a model does not measure itself; None where the set has no such value."""
    if not metrics:
        return {}
    predictions = predictions_of(model, params, examples)
    labels = labels_of(examples)
    assert labels is not None
    if np.issubdtype(predictions.dtype, np.inexact):
        predictions = predictions.astype(np.float64)
    # After training has diverged there is nothing to rank.
    if not np.isfinite(predictions).all():
        return {metric.name: math.nan for metric in metrics}
    return {metric.name: _value(metric, labels, predictions) for metric in metrics}


def _value(metric: Metric, labels: np.ndarray, predictions: np.ndarray) -> float | None:
    assert metric.of is not None
    if metric.takes in ("classes", "two classes"):
        labels = labels.astype(np.int64)
    try:
        found = metric.of(labels, predictions)
    except HoldfastError:
        raise
    # Whatever somebody's own function raises.
    except Exception as error:
        raise HoldfastError(
            f"metric `{metric.name}` failed on {len(labels)} examples: {type(error).__name__}: "
            f"{' '.join(str(error).split())}; mend it, or return None where it has no value.",
            about=("evaluate", "metrics"),
        ) from error
    if found is None:
        return None
    # Of Python's, NumPy's or JAX's types.
    if not isinstance(found, numbers.Real) and getattr(found, "shape", None) != ():
        raise HoldfastError(
            f"metric `{metric.name}` returned a {type(found).__name__}; return a number, or None where "
            f"it has no value.",
            about=("evaluate", "metrics"),
        )
    return float(found)


def check(
    metrics: Sequence[Metric], model: Model, params: Tree, examples: Tree, whole: bool
) -> None:
    """Refuse metrics that make no sense of what the model predicts, before the run.

    Args:
        metrics: those that the model does not measure itself.
        model: it.
        params: its parameters, or their shapes.
        examples: what it will be measured on.
        whole: whether it is measured on all of them at once, not on parts of clients.
    """
    if not metrics:
        return
    name, about = metrics[0].name, ("evaluate", "metrics")
    labels = labels_of(examples)
    if model.predictor is None or labels is None:
        what = "does not say what it predicts" if model.predictor is None else "has no labels"
        raise HoldfastError(
            f"metric `{name}` is computed of labels and predictions, and {model.name} {what}; take it out, "
            f"or give hf.Model(predictor=hf.models.Predictor(predict, metrics)).",
            about=about,
        )
    batch = tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), examples)
    shape = jax.eval_shape(model.predict, params, batch).shape[1:]
    measured = jax.eval_shape(model.measure, params, batch)
    for metric in metrics:
        if metric.of is None:
            raise HoldfastError(
                f"metric `{metric.name}` is not measured by {model.name}; take it out, or give the model's "
                f"metrics that name.",
                about=about,
            )
        _check_kind(metric, model, labels, shape, "accuracy" in measured)
        _try_out(metric, labels, shape, whole)


def _check_kind(
    metric: Metric, model: Model, labels: np.ndarray, shape: tuple[int, ...], classifies: bool
) -> None:
    """Refuse a metric made for other predictions than these, of which one has this shape."""
    if metric.takes is None:
        return
    plain = labels.ndim == 1 and len(shape) <= 1
    classes = (shape[0] if shape else 2) if plain and classifies else None
    fits = {
        "classes": classes is not None,
        "two classes": classes == 2,
        "numbers": plain and not classifies and not shape,
    }[metric.takes]
    if not fits:
        what = (
            f"{classes} classes"
            if classes is not None
            else "a number"
            if plain and not shape
            else f"labels of shape {labels.shape[1:]} and predictions of shape {shape} per example"
        )
        raise HoldfastError(
            f"metric `{metric.name}` takes {_WANTED[metric.takes]}; {model.name} has {what}. Take it out, or "
            f"give a function of your own.",
            about=("evaluate", "metrics"),
        )
    k = int(metric.name.split("_")[1]) if metric.name.startswith("top_") else 0
    if classes is not None and k >= classes:
        raise HoldfastError(
            f"metric `{metric.name}`: the model has {classes} classes, so that every label is among {k}; "
            f"give a smaller number.",
            about=("evaluate", "metrics"),
        )


def _try_out(metric: Metric, labels: np.ndarray, shape: tuple[int, ...], whole: bool) -> None:
    """Compute it once of predictions that say nothing: what has no value of these labels is refused."""
    indifferent = np.full((len(labels), *shape), 1 / (shape[0] if shape else 2))
    found = _value(metric, labels, indifferent)
    if found is None and whole and metric.takes == "classes":
        raise HoldfastError(
            f"metric `{metric.name}`: all {len(labels)} examples have the label {labels[0]}, and it compares "
            f"classes; give examples of several.",
            about=("evaluate", "metrics"),
        )


def without_value(metric: Metric, parts: Sequence[np.ndarray]) -> list[int]:
    """Which of these sets of labels have no such value, whatever is predicted."""
    if metric.takes != "classes":
        return []
    return [
        i for i, labels in enumerate(parts) if len(np.unique(labels)) < 2 and _none(metric, labels)
    ]


def _none(metric: Metric, labels: np.ndarray) -> bool:
    classes = max(2, int(labels.max(initial=0)) + 1)
    return _value(metric, labels, np.full((len(labels), classes), 1 / classes)) is None
