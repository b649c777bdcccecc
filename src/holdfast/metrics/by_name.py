"""Metrics that somebody asks for: by name, or as a function of their own."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics import sets
from holdfast.metrics.metric import BY_NAME, STANDARD, Metric, find

# What can be computed of any model's predictions.
OF_SETS = {metric.name: metric for metric in STANDARD if metric.of is not None}


def named(name: str) -> Metric:
    """A metric that is computed of predictions, by its name; `top_5_accuracy` with any number.

    Example:
        >>> import holdfast as hf
        >>> hf.metrics.named("brier").greater_is_better, hf.metrics.named("top_3_accuracy").title
        (False, 'accuracy of the 3 most probable classes')
    """
    if top := re.fullmatch(r"top_([1-9]\d*)_accuracy", name):
        k = int(top[1])
        title = f"accuracy of the {k} most probable classes"
        of = functools.partial(sets.top_k_accuracy, k=k)
        return Metric(name, True, title, 1, of, "classes")
    # What every model measures itself may be named too.
    if name in OF_SETS or name == "loss":
        return BY_NAME[name]
    known = [*OF_SETS, "top_5_accuracy"]
    raise HoldfastError(
        f"metric `{name}` is not computed of predictions; {did_you_mean(name, known)}",
        about=("metrics",),
    )


def declare(*, greater_is_better: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say of a metric of one's own, a function of labels and predictions, which way it is better.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> @hf.metrics.declare(greater_is_better=False)
        ... def cost(labels, predictions):
        ...     missed = (labels == 1) & (predictions < 0.5)
        ...     return 5.0 * missed.mean()
        >>> hf.metrics.as_metric(cost).greater_is_better
        False
    """

    def declared(function: Callable[..., Any]) -> Callable[..., Any]:
        function.greater_is_better = greater_is_better  # type: ignore[attr-defined]
        return function

    return declared


def as_metric(given: Any, greater_is_better: bool | None = None) -> Metric:
    """A metric of a set: itself, one by its name, or a function `(labels, predictions) -> number`.

    Args:
        given: a `Metric`, a name, or a function, which gives the metric its name.
        greater_is_better: of a function; what `declare` said, or what is known by its name, unless given.
    """
    if isinstance(given, Metric):
        return given
    if isinstance(given, str):
        return named(given)
    name = getattr(given, "__name__", "")
    if not callable(given) or not name.isidentifier():
        raise HoldfastError(
            f"metrics: {given!r} is a {type(given).__name__}; give a name such as 'auc', or a function of "
            f"labels and predictions.",
            about=("metrics",),
        )
    up = (
        getattr(given, "greater_is_better", None)
        if greater_is_better is None
        else greater_is_better
    )
    known = find(name)
    if up is None and known is not None:
        up = known.greater_is_better
    if not isinstance(up, bool):
        raise HoldfastError(
            f"metric `{name}`: nobody said whether greater is better; put "
            f"@hf.metrics.declare(greater_is_better=True) or False before it, or in a file "
            f'{{ name = "...:{name}", greater_is_better = true }}.',
            about=("metrics",),
        )
    return Metric(name, up, name, None, given)


def as_metrics(given: Sequence[Any]) -> tuple[Metric, ...]:
    """Several, each once; refuses a name alone, which is a sequence of letters."""
    if isinstance(given, str | Metric) or not isinstance(given, Sequence):
        raise HoldfastError(
            f"metrics={given!r}; give a list, such as metrics=['auc'].", about=("metrics",)
        )
    found = tuple(map(as_metric, given))
    names = [metric.name for metric in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise HoldfastError(
            f"metrics: `{twice}` is there twice; give each once.", about=("metrics",)
        )
    return found
