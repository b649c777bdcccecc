"""One run of a sweep, wherever it happens, and what comes of it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from holdfast.engine.experiment import Experiment
from holdfast.engine.simulate import Run, simulate
from holdfast.errors import RoundFailedError
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.history import History
from holdfast.record.ledger import Ledger
from holdfast.record.state import RunState
from holdfast.sweeps.naming import Point, folder_name, label
from holdfast.sweeps.results import SweptRun
from holdfast.trees import Tree

Seen = Callable[[RunState], None]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run came to, in plain values: it may travel between processes."""

    leaves: list[np.ndarray] | None  # of the parameters; None if the first round failed
    history: History
    ledger: Ledger | None
    failed: str | None
    best_round: int | None
    kept_round: int | None

    def swept(self, point: Point, experiment: Experiment, structure: Any) -> SweptRun:
        """As the sweep has it; `structure` is that of the parameters."""
        params = None
        if self.leaves is not None:
            params = jax.tree.unflatten(structure, [jax.numpy.asarray(a) for a in self.leaves])
        return SweptRun(
            point,
            experiment.seed,
            experiment.algorithm,
            experiment.local,
            params,
            self.history,
            self.ledger,
            self.failed,
            self.best_round,
            self.kept_round,
        )


def carry_out(experiment: Experiment, rounds: int, store: Checkpoint | None, seen: Seen) -> Result:
    """All rounds of one run, or those until not one client returns finite numbers."""
    last: RunState | None = None
    run: Run | None = None
    failed = None

    def noticed(state: RunState) -> None:
        nonlocal last
        last = state
        seen(state)

    try:
        run = simulate(
            experiment, rounds=rounds, checkpoint=store, progress=False, on_round=noticed
        )
        last = run.state
    except RoundFailedError as error:
        failed = str(error)
    params = run.params if run is not None else None if last is None else last.params
    return Result(
        leaves=None if params is None else _leaves(params),
        history=History() if last is None else last.history,
        ledger=None if last is None else last.ledger,
        failed=failed,
        best_round=None if run is None else run.best_round,
        kept_round=None if run is None or run.deployed is run.state else run.deployed.round,
    )


def _leaves(params: Tree) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.device_get(params))]


def own_folder(store: Checkpoint | None, point: Point, seed: int) -> Checkpoint | None:
    """Where one run is saved."""
    if store is None:
        return None
    place = Path(store.folder) / folder_name(label(point))
    return dataclasses.replace(store, folder=place / f"seed-{seed}")
