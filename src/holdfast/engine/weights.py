"""How much each client counts: in the mean of deltas, and in the mean of what is heard."""

from typing import Any, NamedTuple

import numpy as np

from holdfast.core.algorithm import Weighting
from holdfast.data.grouped import Populations
from holdfast.engine.batches import BatchPlanner


def of_clients(weighting: Weighting, planner: BatchPlanner) -> np.ndarray:
    """One number per client of the population, 0 for those without data."""
    if weighting == "examples":
        return planner.weights
    if weighting == "processed":
        return planner.processed
    return (planner.sizes > 0).astype(float)


class Weights(NamedTuple):
    """What clients count in three means; None where all count 1. `heard` may be `delta` itself."""

    delta: np.ndarray
    heard: np.ndarray | None  # in the objective, 1 on average over all clients
    head: np.ndarray | None  # the same if clients of a population count alike


def of_cohort(
    weighting: Weighting,
    planner: BatchPlanner,
    ids: np.ndarray,
    dtype: Any = float,
    fixed: np.ndarray | None = None,
) -> Weights:
    """For these clients, in this order. `fixed` has those of all clients where others' data has no say.

    Several populations are weighed against each other here and nowhere else.
    """
    if fixed is not None:
        delta = fixed[ids].astype(dtype)
        return Weights(delta, delta, None)
    everyone = of_clients(weighting, planner)
    own, populations = everyone[ids], planner.clients.populations
    if populations is None:
        delta = own.astype(dtype)
        if weighting == "processed":
            return Weights(delta, (own / planner.mean_processed).astype(dtype), None)
        return Weights(delta, delta if weighting == "examples" else None, None)
    # In the order of the clients, not of the slots: a sum's bits should not tell how many devices.
    order = np.argsort(ids)
    votes = np.empty(len(ids))
    votes[order] = _votes(populations, ids[order], own[order])
    heard, head = (
        _importance(populations, of_clients(kind, planner), planner.able)[ids].astype(dtype)
        for kind in (weighting, "uniform")
    )
    return Weights(own.astype(dtype) * votes.astype(dtype), heard, head)


def _votes(populations: Populations, ids: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Factors that make deltas a mean within each population, then over populations by weight."""
    which = populations.of[ids]
    total = np.bincount(which, weight, minlength=len(populations))
    return np.asarray(populations.weights)[which] / total[which]


def _importance(populations: Populations, own: np.ndarray, able: np.ndarray) -> np.ndarray:
    """What each client counts in the objective, 1 on average over all clients: its share of its
    population, which is 1 / N_p where clients count alike, by the population's weight."""
    totals = np.bincount(populations.of, own, minlength=len(populations))
    weights = np.where(totals > 0, populations.weights, 0.0)
    each = weights / np.where(totals > 0, totals, 1.0)
    return own * each[populations.of] * (len(able) / weights.sum())
