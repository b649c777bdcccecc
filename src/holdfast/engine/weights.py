"""How much each client counts: in the mean of deltas, and in the mean of what is heard."""

from typing import Any

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


def of_cohort(
    weighting: Weighting, planner: BatchPlanner, ids: np.ndarray, dtype: Any = float
) -> tuple[np.ndarray, np.ndarray | None]:
    """For these clients, in this order: weights of deltas, and of what is heard (None: all the same).

    Several populations are weighed against each other here and nowhere else.
    """
    own = of_clients(weighting, planner)[ids]
    populations = planner.clients.populations
    if populations is None:
        return own.astype(dtype), None
    # In the order of the clients, not of the slots: a sum's bits should not tell how many devices.
    order = np.argsort(ids)
    votes = np.empty(len(ids))
    votes[order] = _votes(populations, ids[order], own[order])
    heard = _importance(populations, planner.able)[ids]
    return own.astype(dtype) * votes.astype(dtype), heard.astype(dtype)


def _votes(populations: Populations, ids: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Factors that make deltas a mean within each population, then over populations by weight."""
    which = populations.of[ids]
    total = np.bincount(which, weight, minlength=len(populations))
    return np.asarray(populations.weights)[which] / total[which]


def _importance(populations: Populations, able: np.ndarray) -> np.ndarray:
    """How much each client counts in the objective: w_p / N_p, 1 on average over all clients."""
    present = np.bincount(populations.of[able], minlength=len(populations))
    weights = np.where(present > 0, populations.weights, 0.0)
    each = weights / np.maximum(present, 1)
    return each[populations.of] * (len(able) / weights.sum())
