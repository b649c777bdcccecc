"""Early stopping: which round was best by a metric, and when a run ends because none is better."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
from jax import tree

from holdfast import processes
from holdfast.client_states.states import ClientStates
from holdfast.client_states.storage import Storage
from holdfast.errors import HoldfastError, did_you_mean, explain_constructor
from holdfast.evaluate.protocol import Evaluator
from holdfast.metrics import greater_is_better
from holdfast.metrics.metric import Declared, Directions
from holdfast.models.model import Model
from holdfast.record.history import History
from holdfast.record.ledger import Ledger
from holdfast.record.log import Log
from holdfast.record.state import Kept, RunState
from holdfast.trees import Tree, nbytes


@explain_constructor
@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """End a run when a metric has not become better for a while, and keep the best round.

    Best is the first round with the best value; a value that is no number is never best. The metric
    should be of examples set apart for this (`hf.data.set_apart`), since what was chosen by test examples
    looks better on them than it is.

    Args:
        metric: a column of the history, such as `"validation_accuracy"`.
        patience: the run ends after so many evaluations in a row without a better value; never unless given.
        keep: `"best"`: the run's model, clients' states and personal models are those of the best round;
            `"last"`: of the last. The history has all rounds either way.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.breast_cancer()
        >>> everything = hf.data.partition.iid(train, clients=4)
        >>> clients, validation = hf.data.set_apart(everything, share=0.2)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.logistic_regression(),
        ...     clients,
        ...     hf.Local(learning_rate=0.5, steps=5),
        ...     rounds=50,
        ...     evaluate=[
        ...         hf.evaluate.on(validation.pooled()[0], name="validation"),
        ...         hf.evaluate.on(test),
        ...     ],
        ...     stop=hf.EarlyStopping("validation_loss", patience=3),
        ... )
        >>> print(run.best_round, run.state.round, run.stopped)
        4 7 no better validation_loss in 3 evaluations after round 4
    """

    metric: str
    patience: int | None = None
    keep: Literal["best", "last"] = "best"

    def __post_init__(self) -> None:
        whole = isinstance(self.patience, int) and not isinstance(self.patience, bool)
        if self.patience is not None and not (whole and self.patience >= 1):
            raise HoldfastError(
                f"EarlyStopping: patience={self.patience!r}; give how many evaluations without a better "
                f"value end the run, at least 1.",
                about=("patience",),
            )
        if self.keep not in ("best", "last"):
            raise HoldfastError(
                f"EarlyStopping: keep={self.keep!r}; give 'best' or 'last'.", about=("keep",)
            )

    def check(
        self,
        model: Model,
        params: Tree,
        examples: Tree,
        evaluators: Sequence[Evaluator],
        declared: Directions,
    ) -> None:
        """Refuse a metric that nobody measures, or of which nobody knows which way it is better."""
        if all(hasattr(e, "columns") for e in evaluators):
            self._check_measured(model, params, examples, evaluators)
        greater_is_better(self.metric, declared)

    def _check_measured(
        self, model: Model, params: Tree, examples: Tree, evaluators: Sequence[Evaluator]
    ) -> None:
        batch = tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), examples)
        measured = list(jax.eval_shape(model.measure, params, batch))
        names = [name for e in evaluators for name in e.columns(measured)]  # type: ignore[attr-defined]
        if self.metric not in names:
            raise HoldfastError(
                f"EarlyStopping: nothing called `{self.metric}` is measured; "
                f"{did_you_mean(self.metric, names)}",
                about=("stop",),
            )

    def kept_bytes(self, first: Tree, clients: int) -> int:
        """Bytes of memory that clients' states of the best round may take."""
        return nbytes(first) * clients // processes.count() if self.keep == "best" else 0

    def check_room(self, first: Tree, clients: int, storage: Storage) -> None:
        """Refuse to keep states of clients that may have to go to the disk: they are kept in memory.

        Runs side by side are so few that all have room.
        """
        size = self.kept_bytes(first, clients)
        if size > storage.machine_bytes:
            raise HoldfastError(
                f"EarlyStopping: the states of {clients} clients may take {size:,} bytes, and those of the "
                f"best round are kept in memory, where there is room for {storage.machine_bytes:,}; give "
                f"keep='last', or more by hf.Storage(memory=...).",
                about=("stop",),
            )

    def best(self, history: History, declared: Declared) -> tuple[int, float] | None:
        """The first round with the best value, and the value; None before there is one."""
        up = greater_is_better(self.metric, declared)
        found: tuple[int, float] | None = None
        for record in history:
            value = record.get(self.metric)
            if value is None or not math.isfinite(value):
                continue
            if found is None or (value > found[1] if up else value < found[1]):
                found = int(record["round"]), float(value)
        return found

    def why(self, history: History, declared: Declared) -> str | None:
        """Why a run ends here; None if it goes on."""
        if self.patience is None:
            return None
        best = self.best(history, declared)
        since = 0 if best is None else best[0]
        after = [r for r in history if r["round"] > since and r.get(self.metric) is not None]
        if len(after) < self.patience:
            return None
        of = f"after round {since}" if best is not None else "from the beginning"
        many = f"{len(after)} evaluation{'s' * (len(after) > 1)}"
        return f"no better {self.metric} in {many} {of}"


def noted(stop: EarlyStopping | None, state: RunState) -> RunState:
    """The state after an evaluation; with itself as the best, if it is."""
    if stop is None or stop.keep != "best":
        return state
    best = stop.best(state.history, state.history.directions)
    if best is None or best[0] != state.round:
        return state
    touched = np.fromiter(state.client_states.touched, np.int64)
    stacked = state.client_states.read(touched) if len(touched) else ()
    # Copies: to keep the states themselves would keep all that every later round overwrites.
    params, server, stacked = tree.map(
        lambda a: np.array(a), jax.device_get((state.params, state.server, stacked))
    )
    return dataclasses.replace(state, best=Kept(state.round, params, server, touched, stacked))


def kept_best(stop: EarlyStopping, start: RunState) -> Kept | None:
    """What a state to go on from has kept; refuses one whose best round was not."""
    if stop.keep != "best":
        return None
    best = stop.best(start.history, start.history.directions)
    kept = None if start.best is None else start.best.round
    if best is not None and best[0] != kept:
        raise HoldfastError(
            f"start: the best round by {stop.metric} was {best[0]}, which the state has not kept; go on "
            f"from a run with the same hf.EarlyStopping, or give keep='last'.",
            about=("start",),
        )
    return start.best


def deployed(state: RunState) -> RunState:
    """What is used in the end: the state of the best round if it is kept, or the last."""
    best = state.best
    if best is None or best.round == state.round:
        return state
    states = ClientStates(state.client_states.first, len(state.client_states), Storage())
    if len(best.touched):
        states = states.write(best.touched, best.stacked, np.ones(len(best.touched), bool))
    entries = Log(list(state.ledger.entries)[: best.round])
    return dataclasses.replace(
        state,
        round=best.round,
        params=best.params,
        server=best.server,
        client_states=states,
        ledger=Ledger(state.ledger.model_bytes, entries),
        history=state.history.until(best.round),
    )
