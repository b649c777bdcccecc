"""A site's part in one run: its state, its half of a round, and the model it would use."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.client import Preparation, client_round, prepare_cohort
from holdfast.core.keys import Purpose, host_key, round_key
from holdfast.core.local import Local
from holdfast.core.round_types import ClientState, Reply, Shared, Slot, in_type
from holdfast.core.server import announced
from holdfast.core.template import Template
from holdfast.core.wire import Wire
from holdfast.data.clients import Clients, count
from holdfast.deploy import frame, messages
from holdfast.deploy.broadcast import lengths
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.messages import FIRST, Version
from holdfast.deploy.states import LostStateError, StateVersions
from holdfast.deploy.task import Task
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.feeds import Resident
from holdfast.engine.personal import adapted, deployed_with
from holdfast.models.model import Model
from holdfast.torch import rounds as by_torch
from holdfast.trees import Tree, float_type, nbytes

# Which models an evaluation is of.
SERVER, OWN, BOTH = "server", "own", "server and own"
MODELS = (SERVER, OWN, BOTH)
# On which examples.
TEST, VALIDATION = "test", "validation"
SETS = (TEST, VALIDATION, f"{TEST} {VALIDATION}")


@jax.jit
def _round_at_site(shared: Shared, state: ClientState, slot: Slot) -> Reply:
    """`client_round` as a program of its own."""
    dtype = float_type(shared.x)
    slot = in_type(slot, dtype)
    mine = hyper.of_client(shared.algorithm, slot.client, dtype)
    return client_round(shared, mine, state, slot)


@jax.jit
def _followed(wire: Wire, copy: Tree, change: Tree) -> Tree:
    return wire.follow(copy, change)


_prepared = jax.jit(prepare_cohort)
_deployed = jax.jit(deployed_with)


class Taking:
    """A site's part in one run."""

    def __init__(
        self,
        begin: messages.Begin,
        task: Task,
        examples: Tree,
        on_device: Tree,
        by: Model | None = None,
    ) -> None:
        self.begin, self.examples = begin, examples
        self.task = task.part(begin.part, begin.mask)
        self._on_device = on_device
        # By which model it trains: another framework's may stand in for the experiment's own.
        self._model = task.model if by is None else by
        key = host_key(begin.seed, Purpose.INIT)
        shapes = jax.eval_shape(self.task.model.init, key, examples)
        self.first = _numbers(begin.body, shapes, "the model")
        parameters = len(tree.leaves(self.first))
        if begin.mask and len(begin.mask) != parameters:
            raise BadMessageError(f"its mask is not one of {parameters} parameters")
        self.template: Template = self.task.template(self.first)

    @functools.cached_property
    def _planner(self) -> BatchPlanner:
        return self._planned(self.task.local)

    def _planned(self, local: Local, purpose: Purpose = Purpose.ORDER) -> BatchPlanner:
        """Batches of this client among clients the largest of which is as large as it is said to be."""
        mine, begin = count(self.examples), self.begin
        other = max(begin.largest, mine)
        sizes = np.zeros(begin.client + 2, np.int64)
        sizes[begin.client :] = mine, other
        rows = np.concatenate([np.arange(mine), np.zeros(other, np.int64)])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        clients = Clients(self.examples, rows, offsets)
        return BatchPlanner(clients, local, begin.seed, purpose)

    def _slots(self, t: int) -> Slot:
        slots = self._planner.slots(t, np.array([self.begin.client]))
        return slots._replace(weight=np.array([self.begin.weight]))

    def state(self, states: StateVersions, version: Version) -> ClientState:
        """The state to go on from: a version on the disk, or the first."""
        first = self.template.client
        if version != FIRST:
            kept = states.read(version, self.kept(first, self.template.broadcast))
            state: ClientState = kept[0] if self._copies else kept
            return state
        if version in states:
            found: ClientState = states.read(version, first)
            return found
        if not self.task.algorithm.rule.traits.prepares:
            return first
        inputs = Preparation(
            model=self._model,
            rule=hyper.at_round(self.task.algorithm, 0).rule,
            x=self.first,
            states=tree.map(lambda a: jnp.asarray(a)[None], first.rule),
            slots=self._slots(0),
            examples=self._on_device,
            fresh=jnp.asarray(np.ones(1, bool)),
            key=host_key(self.begin.seed, Purpose.PREPARE),
        )
        made = jax.device_get(self._prepare(inputs))
        prepared = first._replace(rule=tree.map(lambda a: a[0], made))
        states.write(FIRST, jax.device_get(prepared))
        return prepared

    @property
    def _prepare(self) -> Callable[[Preparation], Tree]:
        return _prepared if self._model.engine is None else by_torch.prepare

    @property
    def _copies(self) -> bool:
        """Whether a broadcast says what changed, so that the site has a copy of the one before."""
        return self.task.algorithm.wire.replicates

    def kept(self, state: ClientState, received: Tree) -> Tree:
        """What is kept of a version: the state, and the copy of the broadcast if there is one."""
        return (state, received[:2]) if self._copies else state

    def received(self, message: messages.Round, states: StateVersions) -> Tree:
        """Model, message, and what is said of how replies become one."""
        broadcast, said = self.template.broadcast, self.template.said
        if not message.changes:
            return _numbers(message.body, (*broadcast, said), "the broadcast")
        base, algorithm = message.base, self.task.algorithm
        rounds = range(base.round, message.round + 1)
        if not self._copies or base == FIRST or len(rounds) != message.changes:
            raise BadMessageError("it says what changed since a copy that is not here")
        ends = np.cumsum([0, *lengths(algorithm.wire, broadcast, rounds)])
        own = self.template.client, broadcast
        copy = tree.map(jnp.asarray, states.read(base, own)[1])
        for t, begin, end in zip(rounds, ends[:-1], ends[1:], strict=True):
            wire = hyper.at_round(algorithm.wire, t)
            key = jax.random.fold_in(round_key(self.begin.seed, t), Purpose.DOWNLINK)
            try:
                change = wire.unpack_change(message.body[begin:end], broadcast, key)
            # Bits that no compressor writes; one of somebody's own may raise anything of them.
            except Exception as error:
                raise BadMessageError(f"the wire cannot read it: {type(error).__name__}") from None
            copy = _followed(wire, copy, tree.map(jnp.asarray, change))
        if frame.identity(Wire().pack(copy)) != message.copy:
            raise LostStateError("the copy of the model at this site is not the server's")
        return (*copy, _numbers(message.body[ends[-1] :], said, "what is said"))

    def round(self, t: int, received: Tree, state: ClientState) -> Reply:
        """`client_round` with what a message brought."""
        x, msg, said = received
        now = announced(hyper.at_round(self.task.algorithm, t), said)
        steps = self.task.local.at(t, x)
        key = round_key(self.begin.seed, t)
        shared = Shared(self._model, now, steps, x, msg, self._on_device, key)
        slot = tree.map(lambda a: a[0], self._slots(t))
        if self._model.engine is None:
            return _round_at_site(shared, tree.map(jnp.asarray, state), slot)
        mine = hyper.of_client(now, slot.client, float_type(x))
        plain = tree.map(np.asarray, in_type(slot, float_type(x)))
        return by_torch.round_by(self._model)(shared, mine, tree.map(np.asarray, state), plain)

    def models(self, message: messages.Evaluate, state: ClientState) -> dict[str, Tree]:
        """The models that are to be measured, by the word for each."""
        found = {}
        if message.models != OWN:
            found[SERVER] = _numbers(message.body, self.template.broadcast, "the broadcast")[0]
        if message.models != SERVER:
            found[OWN] = self.deployed(message, state)
        return found

    def deployed(self, message: messages.Evaluate | messages.Keep, state: ClientState) -> Tree:
        """The model this site would use, of the server's and what it remembers."""
        x, msg = _numbers(message.body, self.template.broadcast, "the broadcast")
        now = hyper.at_round(self.task.algorithm, message.round)
        client = np.int32(self.begin.client)
        found = _deployed(now, x, msg, tree.map(jnp.asarray, state.rule), client)
        return found if self.task.adapt is None else self._adapted(message.round, found)

    def _adapted(self, t: int, params: Tree) -> Tree:
        """A model after the site's own local steps, outside any round."""
        local = self.task.adapt
        assert local is not None
        steps, batches = local.at(t, params), self._planned(local, Purpose.ADAPT)
        feed = Resident(self._on_device)
        seed, client = self.begin.seed, self.begin.client
        return adapted(self._model, steps, feed, batches, seed, params, client)

    def packed(self, t: int, reply: Reply) -> bytes:
        """The reply's numbers as the wire sends them."""
        now = hyper.at_round(self.task.algorithm, t)
        mine = hyper.of_client(now.wire, self.begin.client, float_type(self.first))
        return mine.pack(reply.coded)


def _numbers(body: bytes, like: Tree, what: str) -> Tree:
    """Arrays of these shapes; refuses another number of bytes, and numbers that are not finite."""
    if len(body) != nbytes(like):
        raise BadMessageError(f"{what} has {len(body)} bytes, and {nbytes(like)} were expected")
    found: Any = Wire().unpack(body, like, None)  # type: ignore[arg-type]
    for a in tree.leaves(found):
        if jnp.issubdtype(a.dtype, jnp.inexact) and not np.isfinite(a.astype(np.float64)).all():
            raise BadMessageError(f"{what} has numbers that are not finite")
    return tree.map(jnp.asarray, found)
