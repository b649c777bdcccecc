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
from holdfast.core.rule import ClientView, addressed
from holdfast.core.server import Opened, announced
from holdfast.core.template import reply_shapes
from holdfast.core.wire import Wire
from holdfast.deploy import frame, messages
from holdfast.deploy.collect import Collected, Collector, Patience
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.messages import Version
from holdfast.deploy.replies import (
    Expected,
    Limits,
    SecondAnswerError,
    SiteRefusedError,
    far_out,
    read_refusal,
)
from holdfast.deploy.roster import Roster
from holdfast.deploy.task import Task, name_of
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

    def __post_init__(self) -> None:
        self._inner = CompiledEngine(devices=1, width=1)
        self._begun: set[int] = set()
        self._known: set[int] = set()
        self._saved: list[dict[int, Version]] = []
        self._last = Collected()
        self._far_out: tuple[int, ...] = ()
        self._setup: Setup | None = None

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
        if not self._looks_at_lengths:
            return counts
        far = np.intersect1d(np.array(self._far_out, int), ids)
        return with_details({**counts, "outlying": len(far), "outlying_clients": far})

    @property
    def _looks_at_lengths(self) -> bool:
        """Whether nothing else bounds replies. Whose is long must not show where the run is private."""
        plain = type(self.task.algorithm.mean) is Mean
        return plain and self.setup.account is None and self.limits.outlying is not None

    @property
    def leaves_out_far_ones(self) -> bool:
        """Whether a reply that is far longer than the others counts as one that did not come."""
        algorithm = self.task.algorithm
        meant = algorithm.aggregate is not None or algorithm.needs_everyone
        return self._looks_at_lengths and not meant

    # The run.

    def take_part_in(self, setup: Setup) -> None:
        """Which run sites take part in; before its first round."""
        self._setup = setup
        self._begun.clear()
        self._known.clear()

    @property
    def setup(self) -> Setup:
        """Of the run."""
        assert self._setup is not None, "take_part_in"
        return self._setup

    def say_if_unbounded(self) -> None:
        """A word where no reply is too long and that is not said to be meant."""
        bounded = self.leaves_out_far_ones or self.setup.account is not None
        if self.task.algorithm.aggregate is None and not bounded:
            log.warning(
                "deploy: within the norm that Limits allows, nothing bounds what one site can do to the "
                "model; hf.Algorithm(aggregate=hf.aggregates.NormBounded()) does, and hf.aggregates.Mean() "
                "says that this is meant."
            )

    @functools.cached_property
    def run(self) -> str:
        """The name of the run: what makes it this run."""
        return name_of(*(f"{k}: {v}" for k, v in sorted(self.setup.identity().items())))

    def saved(self, state: RunState) -> None:
        """A state is on the server's disk: what sites had before the save before it, nobody will ask for."""
        marks = {int(c): version_of(state.client_states[c]) for c in state.client_states.touched}
        self._saved = [*self._saved[-1:], marks]

    def begin(self, client: int) -> bytes:
        """The first message of the run to a site."""
        setup, task = self.setup, self.task
        return messages.Begin(
            run=self.run,
            method=self.roster.method,
            table=self.roster.table,
            algorithm=task.algorithm_digest,
            model=task.model_digest,
            local=task.local_digest,
            seed=int(setup.experiment.seed),
            client=client,
            clients=len(setup.clients),
            examples=int(setup.batches.sizes[client]),
            largest=setup.batches.largest[0],
            weight=float(setup.batches.weights[client]),
            body=Wire().pack(setup.params),
        ).pack()

    def next_message(self, client: int, data: bytes) -> bytes:
        """This message, or that which begins the run if the site has not."""
        return data if client in self._begun else self.begin(client)

    def read_begun(self, client: int, data: bytes) -> bool:
        """Take the answer to the message that begins the run, if it is one."""
        if client in self._begun:
            # Asked twice, since it was slow to begin: it has its round by now.
            if data == messages.Begun(self.run).pack():
                raise SecondAnswerError("it has said already that it has begun")
            return False
        found = frame.unpack(data, 0, 4096)
        read_refusal(found)
        if messages.Begun.read(found).run != self.run:
            raise BadMessageError("it has begun another run")
        self._begun.add(client)
        return True

    def refused_by(self, client: int, refusal: SiteRefusedError) -> None:
        """A site that does not know the run is told of it again."""
        if refusal.lost:
            self._begun.discard(client)

    def round(self, t: int, inputs: RoundInputs, placement: Placement) -> RoundResult:
        """Round `t`: open it, ask every site of the cohort, close it with the replies there are."""
        clients, steps = np.asarray(inputs.slots.client), np.asarray(inputs.slots.steps)
        marks = inputs.client_states
        first = self.setup.template.client
        opened = _opened(dataclasses.replace(inputs, client_states=ClientState((), ())), first)
        asked = _AskedRound(self, t, inputs, opened, first)
        for slot in np.flatnonzero(steps > 0):
            client = int(clients[slot])
            version = version_of(tree.map(lambda a, s=slot: a[s], marks))
            # Who took part before a restart of the server has begun; if its disk says otherwise, so will it.
            if version != messages.FIRST and client not in self._known:
                self._begun.add(client)
            self._known.add(client)
            asked.add(client, version)
        collect = Collector(self.transport, self.roster, self.patience)
        self._last = collect(t, list(asked.rounds), asked)
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

    def _looked_at(self, t: int, sizes: dict[int, float]) -> dict[int, Tree]:
        """The replies that count: not those far longer than others, where nothing else bounds them."""
        found, times = self._last.found, self.limits.outlying
        self._far_out = ()
        if times is None or not self._looks_at_lengths:
            return found
        self._far_out = far_out({client: sizes[client] for client in found}, times)
        out = self._far_out if self.leaves_out_far_ones else ()
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
        self, engine: RemoteCohort, t: int, inputs: RoundInputs, opened: Opened, first: ClientState
    ) -> None:
        self._engine, self._t, self._inputs = engine, t, inputs
        msg = addressed(opened.msg, None)
        self._body = Wire().pack((opened.x, msg, opened.said))
        self._largest = engine.limits.norm * (1.0 + float(norm(opened.x)))
        algorithm = announced(inputs.algorithm, opened.said)
        shapes = reply_shapes(algorithm, opened.x, msg, first)
        self.coded = shapes.coded
        self.unheard = () if inputs.algorithm.wire.hears_each else zeros(shapes.heard)
        self.rounds: dict[int, bytes] = {}
        self.sizes: dict[int, float] = {}  # norms of replies
        self._expected: dict[int, Expected] = {}

    def add(self, client: int, base: Version) -> None:
        """One more client, which goes on from this version of its state."""
        engine = self._engine
        oldest = engine._saved[0] if len(engine._saved) == 2 else {}
        data = messages.Round(
            run=engine.run,
            round=self._t,
            base=base,
            kept=oldest.get(client, messages.FIRST),
            body=self._body,
        ).pack()
        self.rounds[client] = data
        self._expected[client] = Expected(
            run=engine.run,
            round=self._t,
            message=frame.identity(data),
            client=client,
            examples=int(engine.setup.batches.sizes[client]),
            algorithm=self._inputs.algorithm,
            payload=engine.setup.template.payload,
            coded=self.coded,
            key=self._inputs.key,
            largest=self._largest,
        )

    def message(self, client: int) -> bytes:
        return self._engine.next_message(client, self.rounds[client])

    def read(self, client: int, data: bytes) -> Any:
        if self._engine.read_begun(client, data):
            return None
        try:
            coded, self.sizes[client] = self._expected[client].read(data)
            return coded
        except SiteRefusedError as refusal:
            self._engine.refused_by(client, refusal)
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
