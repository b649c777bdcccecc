"""Choices that change no result, only time and memory, with the measurements behind them.

Figures are of a two-core machine; `docs/design.md` has more of them.
"""

import jax
import numpy as np
from jax import tree

from holdfast import processes
from holdfast.client_states.storage import Storage
from holdfast.data.clients import Clients, count
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.compiled import CompiledEngine
from holdfast.engine.feeds import Elsewhere, Feed, Gathered, Resident, settled
from holdfast.engine.protocol import Engine, RemoteEngine
from holdfast.trees import Tree, nbytes

# Operations a round, some milliseconds; below, handing out to devices costs more than it saves.
_WORTH_SHARING = 3e8
# Operations a step; starting one costs as much.
_TINY = 5e4
# Steps of a client, for which it is worth compiling clients together.
_MANY = 50
# XLA looks rows up in an array of more bytes than this with several threads, which costs more than
# copying less than this share of its examples.
_LITTLE = 10**6
_SMALL_PART = 0.02


def _operations(params: Tree, planner: BatchPlanner, steps: int) -> int:
    """A parameter costs about six per example, forwards and backwards."""
    return 6 * sum(int(p.size) for p in tree.leaves(params)) * planner.batch_size * steps


def choose_engine(params: Tree, planner: BatchPlanner, cohort: np.ndarray) -> Engine:
    """All devices where a round is long enough to be shared; results do not depend on it."""
    if len(jax.devices()) == 1 or processes.count() > 1:
        return CompiledEngine()
    shared = is_worth_sharing(operations_of_round(params, planner, cohort))
    return CompiledEngine() if shared else CompiledEngine(devices=1)


def operations_of_round(params: Tree, planner: BatchPlanner, cohort: np.ndarray) -> int:
    """About how many operations the local steps of a cohort are."""
    return _operations(params, planner, int(planner.steps[cohort].sum()))


def is_worth_sharing(operations: float) -> bool:
    """Whether a round is long enough for several devices to share."""
    return operations > _WORTH_SHARING


def has_tiny_steps(params: Tree, planner: BatchPlanner) -> bool:
    """Whether a step is mostly overhead, which clients with the same work can share."""
    return _operations(params, planner, steps=1) < _TINY and planner.largest[1] >= _MANY


def fits_on_a_device(clients: Clients, storage: Storage) -> bool:
    """Whether all examples may lie on every device."""
    return nbytes(clients.examples) <= storage.device_bytes


def choose_feed(clients: Clients, storage: Storage, engine: Engine, cohort: np.ndarray) -> Feed:
    """All examples on every device, unless there is no room or a cohort needs very few of them."""
    if isinstance(engine, RemoteEngine):
        return Elsewhere()
    gathered = Gathered(clients)
    if not fits_on_a_device(clients, storage):
        return gathered
    # Sorting clients by size is not for nothing.
    if nbytes(clients.examples) > _LITTLE:
        most = gathered.capacity(len(cohort))
        if most < _SMALL_PART * count(clients.examples):
            return gathered
    return Resident(engine.everywhere(settled(clients.examples)))
