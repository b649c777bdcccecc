"""The engine whose clients are elsewhere: it sends, collects and closes the round that everybody runs."""

import dataclasses
import functools
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree
from jax.sharding import Mesh

from holdfast.core.algorithm import Algorithm
from holdfast.core.client import Preparation
from holdfast.core.local import Steps
from holdfast.core.mean import Mean
from holdfast.core.round import finished_round, opened_round
from holdfast.core.round_types import ClientState, Reply, RoundInputs, RoundResult, Shared, Slot
from holdfast.core.rule import ClientView
from holdfast.core.server import Opened, announced
from holdfast.core.template import reply_shapes
from holdfast.deploy import frame, messages
from holdfast.deploy.broadcast import Broadcast
from holdfast.deploy.changes import Changes
from holdfast.deploy.collect import Collected, Collector, Patience
from holdfast.deploy.messages import Version
from holdfast.deploy.replies import Expected, Limits, SiteRefusedError, far_out
from holdfast.deploy.roster import Roster
from holdfast.deploy.session import Session
from holdfast.deploy.task import FIRST_ROUND, Task
from holdfast.deploy.transport import Transport
from holdfast.engine.compiled import CompiledEngine, along_tree
from holdfast.engine.layout import Execution, SlotLayout
from holdfast.engine.protocol import Bits, Placement
from holdfast.engine.setup import Setup
from holdfast.record.history import Record, with_details
from holdfast.record.state import RunState
from holdfast.trees import Tree, float_type, norm, zeros

log = logging.getLogger("holdfast.deploy")
_LEFT_OUT = (
    "it is left out. If it is honest, give aggregate=hf.aggregates.NormBounded(), or a larger "
    "hf.deploy.Limits(outlying=...)"
)
_NAME = 16  # bytes of a message's name

_opened = jax.jit(opened_round)


def _as_received(
    unheard: Tree, shared: Shared, mine: Algorithm, arrived: ClientState, slot: Slot
) -> Reply:
    """A reply that has come: what the server makes of it, from what travelled alone.

    `unheard` stands for what is heard where the wire tells only a mean of replies.
    """
    coded, is_there = arrived.rule, arrived.wire
    # The server knows what a client's step sizes add up to, as `solve` does.
    assert isinstance(shared.steps, Steps)
    path = shared.steps.learning_rate * slot.steps.astype(float_type(shared.x))
    at = ClientView(shared.x, shared.msg, None, None, slot.weight, path)  # type: ignore[arg-type]
    heard = unheard
    if mine.wire.hears_each:
        delta, upload = mine.mean.take(mine.wire.receive(coded))[0]
        heard = mine.rule.hear(delta, upload, at)
    return Reply(coded, heard, arrived, path, is_there)


@functools.partial(jax.jit, static_argnames=("mesh", "execution"))
def _closed(
    mesh: Mesh,
    execution: Execution,
    leaf: jax.Array,
    inputs: RoundInputs,
    opened: Opened,
    unheard: Tree,
) -> RoundResult:
    reply = functools.partial(_as_received, unheard)
    result = finished_round(inputs, opened, reply, along_tree(mesh, execution, leaf))
    # What came in their place goes no further.
    return result._replace(client_states=ClientState((), ()))


@dataclasses.dataclass(eq=False)
class RemoteCohort:
    """Clients are sites, reached by a transport. What they remember and their examples stay with them.

    Of a client's state the server keeps which one it is: the round and the message it answered.
    """

    transport: Transport
    task: Task
    roster: Roster
    patience: Patience
    limits: Limits
    changes: Changes

    def __post_init__(self) -> None:
        self._inner = CompiledEngine(devices=1, width=1)
        # By client its state in the save, and in the best round that the save keeps.
        self._saved: list[tuple[dict[int, Version], dict[int, Version]]] = []
        self._last = Collected()
        self._bits: dict[int, int] = {}
        self._far_out: tuple[int, ...] = ()
        self._whole: Session | None = None
        self._first: Session | None = None
        # Of the first round, which a mask is chosen by before it counts: what was asked and came.
        self._chosen_by: _AskedRound | None = None

    # What any engine does.

    @property
    def local_devices(self) -> int:
        """The server's own device."""
        return 1

    def layout(self, clients: int, steady: bool, uniform: bool, tiny: bool) -> SlotLayout:
        """As a simulation on one device, a client at a time: so that sums are the same."""
        return self._inner.layout(clients, steady, uniform, tiny)

    def here(self, slots: int) -> slice:
        """There is one server."""
        return slice(0, slots)

    def everywhere(self, arrays: Tree) -> Tree:
        """There is one device."""
        return jax.device_put(arrays)

    def prepare(self, t: int, inputs: Preparation) -> Tree:
        """Sites do that themselves."""
        return inputs.states

    # What an engine does whose clients are elsewhere.

    @property
    def mark(self) -> ClientState:
        """What is kept here of a client before its first round."""
        return ClientState(np.zeros((), np.int32), np.zeros(_NAME, np.uint8))

    def counted(self, ids: np.ndarray, down: Bits, up: Bits) -> tuple[Bits, Bits]:
        """Bits of who was reached, and of who replied."""
        last, everyone = self._last, set(ids.tolist())
        if self._latest.algorithm.wire.replicates:
            # Who takes part again is sent what it has missed since the last reply that was accepted.
            down = tuple(self._bits.get(i, 0) for i in ids.tolist())
        if last.asked >= everyone and last.found.keys() >= everyone:
            return down, up
        downs = down if isinstance(down, tuple) else (down,) * len(ids)
        ups = up if isinstance(up, tuple) else (up,) * len(ids)
        return (
            tuple(b if i in last.asked else 0 for i, b in zip(ids.tolist(), downs, strict=True)),
            tuple(b if i in last.found else 0 for i, b in zip(ids.tolist(), ups, strict=True)),
        )

    def facts(self, ids: np.ndarray) -> Record:
        """What happened on the way, for the history."""
        last = self._last
        waited = set(ids.tolist()) - last.found.keys() - last.refused.keys()
        counts = {"stragglers": len(waited), "refused": last.bad, "stray": last.stray}
        if not self._looks_at_lengths(self._latest):
            return counts
        far = np.intersect1d(np.array(self._far_out, int), ids)
        return with_details({**counts, "outlying": len(far), "outlying_clients": far})

    def _looks_at_lengths(self, session: Session) -> bool:
        """Whether nothing else bounds replies. Whose is long must not show where the run is private."""
        plain = type(session.algorithm.mean) is Mean
        return plain and session.setup.account is None and self.limits.outlying is not None

    def leaves_out_far_ones(self, session: Session) -> bool:
        """Whether a reply that is far longer than the others counts as one that did not come."""
        algorithm = session.algorithm
        meant = algorithm.aggregate is not None or algorithm.needs_everyone
        return self._looks_at_lengths(session) and not meant

    # The run.

    def take_part_in(self, setup: Setup) -> None:
        """Which run sites take part in; before its first round. A run that chooses a mask is told of twice:
        for its first round, and again with its mask."""
        if setup.opening is not None and self._first is None:
            self._first = Session(setup, self.task, self.roster, FIRST_ROUND)
        self._whole = self._latest = Session(setup, self.task, self.roster)

    @property
    def whole(self) -> Session:
        """The run as sites know it."""
        assert self._whole is not None, "take_part_in"
        return self._whole

    def session(self, t: int) -> Session:
        """What round `t`, from 0, is of: the run, or its first round where another method takes that."""
        return self._first if t == 0 and self._first is not None else self.whole

    @property
    def setup(self) -> Setup:
        """Of the run."""
        return self.whole.setup

    def say_if_unbounded(self) -> None:
        """A word where no reply is too long and that is not said to be meant."""
        bounded = self.leaves_out_far_ones(self.whole) or self.setup.account is not None
        if self.whole.algorithm.aggregate is None and not bounded:
            log.warning(
                "deploy: within the norm that Limits allows, nothing bounds what one site can do to the "
                "model; hf.Algorithm(aggregate=hf.aggregates.NormBounded()) does, and hf.aggregates.Mean() "
                "says that this is meant."
            )

    @property
    def run(self) -> str:
        """The name of the run: what makes it this run."""
        return self.whole.run

    def saved(self, state: RunState) -> None:
        """A state is on the server's disk: what sites had before the save before it, nobody will ask for."""
        marks = {int(c): version_of(state.client_states[c]) for c in state.client_states.touched}
        best: dict[int, Version] = {}
        if state.best is not None:
            for k, client in enumerate(state.best.touched):
                mark = tree.map(lambda a, k=k: a[k], state.best.stacked)
                best[int(client)] = version_of(mark)
        self._saved = [*self._saved[-1:], (marks, best)]

    def round(self, t: int, inputs: RoundInputs, placement: Placement) -> RoundResult:
        """Round `t`: open it, ask every site of the cohort, close it with the replies there are."""
        session = self._latest = self.session(t)
        clients, steps = np.asarray(inputs.slots.client), np.asarray(inputs.slots.steps)
        marks = inputs.client_states
        first = session.setup.template.client
        opened = _opened(dataclasses.replace(inputs, client_states=ClientState((), ())), first)
        asked = _AskedRound(self, session, t, inputs, opened, first)
        for slot in np.flatnonzero(steps > 0):
            client = int(clients[slot])
            version = version_of(tree.map(lambda a, s=slot: a[s], marks))
            session.asked(client, version)
            asked.add(client, version)
        if session is self._first:
            asked = self._asked_once(t, asked)
        else:
            self._last = self._collect(t, asked)
        self._bits = asked.bits
        counted = self._looked_at(t, asked.sizes)
        states = _stacked(clients, steps, counted, asked.coded)
        result = _closed(
            self._inner.mesh,
            placement.execution,
            placement.leaf,
            dataclasses.replace(inputs, client_states=states, examples=()),
            opened,
            asked.unheard,
        )
        names = [frame.identity(asked.rounds[c]) if c in asked.rounds else "" for c in clients]
        return result._replace(client_states=_marked(marks, t + 1, names))

    def _collect(self, t: int, asked: "_AskedRound") -> Collected:
        return Collector(self.transport, self.roster, self.patience)(t, list(asked.rounds), asked)

    def _asked_once(self, t: int, asked: "_AskedRound") -> "_AskedRound":
        """A first round that a mask was chosen by is the run's first round too: nobody is asked again."""
        before = self._chosen_by
        if before is None or before.rounds != asked.rounds:
            self._last, self._chosen_by = self._collect(t, asked), asked
            return asked
        self._chosen_by = None
        asked.sizes = before.sizes
        return asked

    def _looked_at(self, t: int, sizes: dict[int, float]) -> dict[int, Tree]:
        """The replies that count: not those far longer than others, where nothing else bounds them."""
        found, times = self._last.found, self.limits.outlying
        self._far_out = ()
        if times is None or not self._looks_at_lengths(self._latest):
            return found
        self._far_out = far_out({client: sizes[client] for client in found}, times)
        out = self._far_out if self.leaves_out_far_ones(self._latest) else ()
        for client in self._far_out:
            log.warning(
                "round %d, site %s: its reply has norm %.3g, over %g times the median of the others'; %s",
                t + 1,
                self.roster.names[client],
                sizes[client],
                times,
                _LEFT_OUT if out else "it counts all the same",
            )
        return {client: reply for client, reply in found.items() if client not in out}


class _AskedRound:
    """What sites are asked in one round: to begin, if they have not, and for their reply."""

    def __init__(
        self,
        engine: RemoteCohort,
        session: Session,
        t: int,
        inputs: RoundInputs,
        opened: Opened,
        first: ClientState,
    ) -> None:
        self._engine, self._session, self._t, self._inputs = engine, session, t, inputs
        self._broadcast = Broadcast(session.algorithm, t, opened, engine.changes)
        msg = self._broadcast.broadcast[1]
        self._largest = engine.limits.norm * (1.0 + float(norm(opened.x)))
        algorithm = announced(inputs.algorithm, opened.said)
        shapes = reply_shapes(algorithm, opened.x, msg, first)
        self.coded = shapes.coded
        self.unheard = () if inputs.algorithm.wire.hears_each else zeros(shapes.heard)
        self.rounds: dict[int, bytes] = {}
        self.sizes: dict[int, float] = {}  # norms of replies
        self.bits: dict[int, int] = {}  # of what was sent, as the wire counts them
        self._expected: dict[int, Expected] = {}
        self._based: dict[int, Version] = {}

    def add(self, client: int, base: Version, whole: bool = False) -> None:
        """One more client, which goes on from this version of its state; it is sent what changed since the
        copy of the model that it has of then, if the wire does that, or the whole."""
        engine, session = self._engine, self._session
        oldest, best = engine._saved[0] if len(engine._saved) == 2 else ({}, {})
        self._based[client] = base
        sent = self._broadcast.to(base, whole)
        self.bits[client] = sent.bits
        data = messages.Round(
            run=session.run,
            round=self._t,
            base=base,
            kept=oldest.get(client, messages.FIRST),
            best=best.get(client, messages.FIRST),
            changes=sent.changes,
            copy=self._broadcast.copy,
            body=sent.body,
        ).pack()
        self.rounds[client] = data
        self._expected[client] = Expected(
            run=session.run,
            round=self._t,
            message=frame.identity(data),
            client=client,
            examples=int(session.setup.batches.sizes[client]),
            algorithm=self._inputs.algorithm,
            payload=session.setup.template.payload,
            coded=self.coded,
            key=self._inputs.key,
            largest=self._largest,
        )

    def message(self, client: int) -> bytes:
        return self._session.next_message(client, self.rounds[client])

    def read(self, client: int, data: bytes) -> Any:
        if self._session.read_begun(client, data):
            return None
        try:
            coded, self.sizes[client] = self._expected[client].read(data)
            return coded
        except SiteRefusedError as refusal:
            self._session.refused_by(client, refusal)
            if refusal.lost:
                self.add(client, self._based[client], whole=True)
            raise


def _stacked(
    clients: np.ndarray, steps: np.ndarray, found: dict[int, Tree], like: Tree
) -> ClientState:
    """What came for every slot of the program, and whether it did; zeros where nothing came."""
    there = np.array([s > 0 and int(c) in found for c, s in zip(clients, steps, strict=True)])
    leaves = [
        tree.leaves(found[int(c)]) if ok else None for c, ok in zip(clients, there, strict=True)
    ]

    def of_leaf(k: int, shape: Any) -> np.ndarray:
        out = np.zeros((len(clients), *shape.shape), shape.dtype)
        for slot, own in enumerate(leaves):
            if own is not None:
                out[slot] = own[k]
        return out

    shapes, definition = tree.flatten(like)
    coded = tree.unflatten(definition, [of_leaf(k, shape) for k, shape in enumerate(shapes)])
    return ClientState(coded, jnp.asarray(there))


def version_of(mark: ClientState) -> Version:
    """Which state a client has, from what the server keeps of it."""
    t = int(mark.rule)
    return Version(t, np.asarray(mark.wire, np.uint8).tobytes().hex() if t else "")


def _marked(marks: ClientState, t: int, names: list[str]) -> ClientState:
    """The marks of clients whose replies to these messages of a round are accepted."""
    raw = [bytes.fromhex(name or "00" * _NAME) for name in names]
    wire = np.frombuffer(b"".join(raw), np.uint8).reshape(len(names), _NAME)
    return ClientState(np.full(len(names), t, np.asarray(marks.rule).dtype), wire)
