"""At the end of a run every site writes the model it would use to its own disk; nothing of it travels."""

import logging

import jax

from holdfast.core import hyper
from holdfast.core.wire import Wire
from holdfast.deploy import frame, messages
from holdfast.deploy.cohort import RemoteCohort, version_of
from holdfast.deploy.collect import Collector
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.replies import SiteRefusedError, read_refusal
from holdfast.engine.personal import deployed_message
from holdfast.evaluate.protocol import EvaluationView

log = logging.getLogger("holdfast.deploy")
_message = jax.jit(deployed_message)


def keep_models(engine: RemoteCohort, view: EvaluationView) -> list[int]:
    """Have all sites that can be reached write their models; the clients that did."""
    clients = list(range(len(view.state.client_states)))
    engine.roster.look()
    there = [c for c in clients if engine.roster.address(c) is not None]
    asked = _AskedToKeep(engine, view)
    collect = Collector(engine.transport, engine.roster, engine.patience)
    kept = list(collect(view.state.round - 1, there, asked).found) if there else []
    for client in sorted(set(clients) - set(kept)):
        name = engine.roster.names[client]
        log.warning(
            "deploy: site %s has not written its model; submit the run again once it is there", name
        )
    return kept


class _AskedToKeep:
    """What sites are told at the end."""

    def __init__(self, engine: RemoteCohort, view: EvaluationView) -> None:
        state = view.state
        now = hyper.at_round(engine.whole.algorithm, state.round)
        body = Wire().pack((state.params, _message(now, state.params, state.server.rule)))
        self._session = engine.whole
        self._asked = {
            client: messages.Keep(
                run=engine.run,
                round=state.round,
                base=version_of(state.client_states[client]),
                body=body,
            ).pack()
            for client in range(len(state.client_states))
        }

    def message(self, client: int) -> bytes:
        return self._session.next_message(client, self._asked[client])

    def read(self, client: int, data: bytes) -> object:
        if self._session.read_begun(client, data):
            return None
        found = frame.unpack(data, 0, 4096)
        try:
            read_refusal(found)
        except SiteRefusedError as refusal:
            self._session.refused_by(client, refusal)
            raise
        if messages.Kept.read(found).message != frame.identity(self._asked[client]):
            raise BadMessageError("it answers another message")
        return True
