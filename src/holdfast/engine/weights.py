"""How much each client counts: in the mean of deltas, and in the mean of what is heard."""

from typing import Any

import numpy as np

from holdfast.cohorts import Cohort
from holdfast.core.algorithm import Weighting
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.populations import JoinedCohort


def of_clients(weighting: Weighting, planner: BatchPlanner) -> np.ndarray:
    """One number per client of the population, 0 for those without data."""
    if weighting == "examples":
        return planner.weights
    if weighting == "processed":
        return planner.processed
    return (planner.sizes > 0).astype(float)


def of_cohort(
    weighting: Weighting, planner: BatchPlanner, cohort: Cohort, ids: np.ndarray, dtype: Any = float
) -> tuple[np.ndarray, np.ndarray | None]:
    """For these clients, in this order: weights of deltas, and of what is heard (None: all the same).

    Several populations are weighed against each other here and nowhere else.
    """
    own = of_clients(weighting, planner)[ids]
    if not isinstance(cohort, JoinedCohort):
        return own.astype(dtype), None
    # In the order of the clients, not of the slots: a sum's bits should not tell how many devices.
    order = np.argsort(ids)
    votes = np.empty(len(ids))
    votes[order] = cohort.votes(ids[order], own[order])
    return own.astype(dtype) * votes.astype(dtype), cohort.importance(ids).astype(dtype)
