"""How a method serves its clients: the distribution of their own results, and its worst tenth."""

import dataclasses
import math
from typing import Any

import numpy as np

from holdfast.metrics import Spread, find, greater_is_better
from holdfast.metrics.figures import number
from holdfast.runs.results import MethodResult, Results

_ABOUT_CLIENTS = ("client", "name", "examples")
_MOST_PLACES = 200


@dataclasses.dataclass(frozen=True, eq=False)
class Distribution:
    """Clients' results from worst to best, and figures of it over seeds.

    The curve is the mean of the seeds' sorted curves, not the sorted means of clients: averaging a
    client over seeds first would make the worst look better than in any one run.
    """

    shares: np.ndarray  # of the clients, from 0 (the worst) to 1
    values: np.ndarray
    clients: int
    worst_tenth: Spread
    median: Spread
    mean: Spread
    best_tenth: Spread


def metrics(results: Results) -> list[str]:
    """What clients were measured by, the metric compared first if it is among them.

    Without a metric whose direction nobody knows: which clients it serves worst cannot be said.
    """
    declared = results.directions
    found = dict.fromkeys(
        name
        for method in results.methods
        for clients in method.clients
        for name in clients
        if name not in _ABOUT_CLIENTS and _values(clients, name).size and find(name, declared)
    )
    # Without the metric compared itself (average_accuracy, say), the nearest to it is its ending.
    return sorted(found, key=lambda n: (n != results.metric, not results.metric.endswith(n)))


def distribution(method: MethodResult, metric: str) -> Distribution | None:
    """Over the complete seeds; None if there is none, or clients were not measured."""
    by_seed = [np.sort(_values(clients, metric)) for clients in method.clients]
    up = greater_is_better(metric, method.directions)
    runs = [values if up else values[::-1] for values in by_seed if values.size]
    if not runs:
        return None
    places = min(_MOST_PLACES, max(len(values) for values in runs))
    shares = np.linspace(0, 1, places) if places > 1 else np.array([0.5])
    return Distribution(
        shares=shares,
        values=np.mean([_at(shares, values) for values in runs], axis=0),
        clients=max(len(values) for values in runs),
        worst_tenth=_over(runs, lambda values: values[: tenth(len(values))].mean()),
        median=_over(runs, np.median),
        mean=_over(runs, np.mean),
        best_tenth=_over(runs, lambda values: values[-tenth(len(values)) :].mean()),
    )


def tenth(clients: int) -> int:
    """How many clients a tenth is: at least one.

    Example:
        >>> tenth(50), tenth(7)
        (5, 1)
    """
    return max(1, math.ceil(clients / 10))


def _values(clients: dict[str, Any], metric: str) -> np.ndarray:
    found = [number(value) for value in clients.get(metric, ())]
    return np.array([value for value in found if value is not None])


def _at(shares: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.interp(shares, np.linspace(0, 1, len(values)), values)


def _over(runs: list[np.ndarray], figure: Any) -> Spread:
    return Spread(tuple(float(figure(values)) for values in runs))
