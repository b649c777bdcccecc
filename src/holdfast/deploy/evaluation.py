"""Evaluation where the data is: sites send sums and counts, the server their means."""

import dataclasses
from typing import Any

import jax
import numpy as np

from holdfast.core import hyper
from holdfast.core.wire import Wire
from holdfast.deploy import frame, messages
from holdfast.deploy.cohort import RemoteCohort, version_of
from holdfast.deploy.collect import Collector
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.replies import SiteRefusedError, read_refusal
from holdfast.engine.personal import deployed_message
from holdfast.errors import HoldfastError
from holdfast.evaluate.evaluators import Personal
from holdfast.evaluate.protocol import EvaluationView, Evaluator
from holdfast.metrics.metric import Directions
from holdfast.models.model import Model
from holdfast.trees import Tree

_MOST_HEADER = 1 << 16
_message = jax.jit(deployed_message)


def at_sites(evaluator: Any, engine: RemoteCohort) -> Evaluator:
    """`hf.evaluate.personal` as sites work it out, on their own held-out examples; others as they are."""
    if not isinstance(evaluator, Personal):
        found: Evaluator = evaluator
        return found
    if evaluator.metrics or evaluator.latest:
        raise HoldfastError(
            "deploy: evaluate.personal with metrics of a whole set, or of the latest models, is for "
            "simulations only so far; leave `metrics` and `latest` out.",
            about=("evaluate",),
        )
    return PersonalAtSites(evaluator.every, evaluator.name, evaluator.adapt, engine, evaluator)


@dataclasses.dataclass(frozen=True)
class PersonalAtSites:
    """Each site's own model on its own held-out examples: the mean over sites and over the worst tenth."""

    every: int
    name: str
    adapt: Any
    engine: RemoteCohort = dataclasses.field(repr=False)
    simulated: Personal = dataclasses.field(repr=False)
    keeps_last_models = False

    @property
    def directions(self) -> Directions:
        """As in a simulation."""
        return self.simulated.directions

    def columns(self, measured: list[str]) -> list[str]:
        """As in a simulation."""
        return self.simulated.columns(measured)

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """There is nothing here to check: sites look at their own examples."""

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        asked = _AskedEvaluation(self.engine, view)
        engine = self.engine
        clients = list(range(len(view.state.client_states)))
        found = Collector(engine.transport, engine.roster, engine.patience)(
            view.state.round - 1, clients, asked
        )
        measured = [found.found[c] for c in clients if found.found.get(c)]
        return self.simulated.of_clients(view, measured) if measured else {}


class _AskedEvaluation:
    """What sites are asked to measure."""

    def __init__(self, engine: RemoteCohort, view: EvaluationView) -> None:
        setup, state = engine.setup, view.state
        now = hyper.at_round(setup.algorithm, state.round)
        msg = _message(now, state.params, state.server.rule)
        body = Wire().pack((state.params, msg))
        self._engine = engine
        self._asked: dict[int, bytes] = {
            client: messages.Evaluate(
                run=engine.run,
                round=state.round,
                base=version_of(state.client_states[client]),
                body=body,
            ).pack()
            for client in range(len(state.client_states))
        }

    def message(self, client: int) -> bytes:
        return self._engine.next_message(client, self._asked[client])

    def read(self, client: int, data: bytes) -> Any:
        if self._engine.read_begun(client, data):
            return None
        found = frame.unpack(data, 0, _MOST_HEADER)
        try:
            read_refusal(found)
        except SiteRefusedError as refusal:
            self._engine.refused_by(client, refusal)
            raise
        measured = messages.Measured.read(found)
        if measured.message != frame.identity(self._asked[client]):
            raise BadMessageError("it answers another message")
        if any(n < 1 for _, n in measured.sums.values()):
            raise BadMessageError("it measured on no examples")
        return {name: float(np.float64(total) / n) for name, (total, n) in measured.sums.items()}
