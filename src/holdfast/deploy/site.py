"""A site's half: its own data, its own state on its own disk, and `client_round`.

A site is a function of a message and its disk: it may be another process for every message.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.keys import Purpose, host_key, round_key
from holdfast.core.round import (
    ClientState,
    Preparation,
    Reply,
    Shared,
    Slot,
    Template,
    client_round,
    in_type,
    prepare_cohort,
)
from holdfast.core.wire import Wire
from holdfast.data.clients import Clients, check_finite, count
from holdfast.deploy import frame, messages
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.messages import FIRST, Version
from holdfast.deploy.states import LostStateError, StateVersions
from holdfast.deploy.task import Task, shape_of
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.experiment import Experiment
from holdfast.engine.personal import deployed_with
from holdfast.errors import HoldfastError
from holdfast.evaluate.measuring import totals
from holdfast.record.files import write_whole
from holdfast.record.identity import digest
from holdfast.trees import Tree, float_type, nbytes

_BEGIN = "begin.message"
_DATA = "data.digest"
# Bytes of a model or broadcast, beyond which a message is not read.
_LARGEST = 1 << 36


@jax.jit
def _round_at_site(shared: Shared, state: ClientState, slot: Slot) -> Reply:
    """`client_round` as a program of its own."""
    dtype = float_type(shared.x)
    slot = in_type(slot, dtype)
    mine = hyper.of_client(shared.algorithm, slot.client, dtype)
    return client_round(shared, mine, state, slot)


_prepared = jax.jit(prepare_cohort)
_deployed = jax.jit(deployed_with)


class _RefusedError(HoldfastError):
    """Why a site does not answer, to be told to the server."""


class _LostError(_RefusedError):
    """The same, where the site has not what the server takes for granted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """One client of a deployed experiment, where its data is.

    Args:
        experiment: the experiment that is deployed, of which a site uses the algorithm, the model and the
            local steps; its clients may be any, such as those it was simulated with.
        examples: this site's own training examples.
        folder: where it keeps what it remembers between rounds; only this site writes there.
        name: what the server knows it by.
        tests: its own held-out examples, on which it measures its model; none unless given.
        algorithms: digests of the algorithms it takes part in; that of the experiment unless given.
        models: the same of models.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np, tempfile
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> experiment = hf.Experiment(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.least_squares(intercept=False),
        ...     hf.data.partition.in_order(data, clients=2),
        ...     hf.Local(learning_rate=0.1, steps=10),
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sites = [
        ...         hf.deploy.Site(experiment, mine, f"{folder}/{name}", name)
        ...         for name, mine in zip(("0", "1"), experiment.clients)
        ...     ]
        ...     run = hf.deploy.run(experiment, hf.deploy.InProcess(sites), rounds=20)
        >>> print(f"{run.params['weights'].item():.2f}")
        1.60
    """

    experiment: Experiment
    examples: Tree
    folder: str | Path
    name: str
    tests: Tree = None
    algorithms: Sequence[str] | None = None
    models: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not messages.is_name(self.name):
            raise HoldfastError(
                f"Site: name={self.name!r}; give a name of 1 to 200 characters, in one line.",
                about=("name",),
            )
        if count(self.examples) == 0:
            raise HoldfastError("Site: it has no examples; give at least one.", about=("data",))
        check_finite(self.examples, f"data of site {self.name}")
        self.experiment.model.check_examples(self.examples, "Site", ("data",))
        if self.tests is not None:
            check_finite(self.tests, f"held-out data of site {self.name}")
            self.experiment.model.check_examples(self.tests, "Site", ("tests",))

    @functools.cached_property
    def task(self) -> Task:
        """What it takes part in."""
        return Task.of(self.experiment)

    @functools.cached_property
    def _on_device(self) -> Tree:
        return jax.device_put(self.examples)

    def answer(self, data: bytes) -> bytes:
        """The answer to a message; what is wrong with one is said in the answer, never raised."""
        asked = frame.identity(data) if isinstance(data, bytes) else "0" * 32
        try:
            return self._answer(data, asked).pack()
        except _RefusedError as error:
            why, lost = str(error), isinstance(error, _LostError)
        except BadMessageError as error:
            why, lost = f"the message cannot be read: {error}", False
        return messages.Refusal(_one_line(why), asked, lost).pack()

    def _answer(self, data: bytes, asked: str) -> messages.Message:
        found = frame.unpack(data, _LARGEST)
        kind = found.header.get("kind")
        if kind == "ask":
            return self._facts(messages.Ask.read(found))
        if kind == "begin":
            return self._begin(messages.Begin.read(found), data)
        if kind == "round":
            return self._round(messages.Round.read(found), asked)
        if kind == "evaluate":
            return self._evaluate(messages.Evaluate.read(found), asked)
        raise BadMessageError("it is none that a site answers")

    def _facts(self, _: messages.Ask) -> messages.Facts:
        task = self.task
        return messages.Facts(
            name=self.name,
            examples=count(self.examples),
            shape=shape_of(self.examples),
            algorithm=task.algorithm_digest,
            model=task.model_digest,
        )

    def _begin(self, begin: messages.Begin, data: bytes) -> messages.Begun:
        self._check_allowed(begin)
        if begin.examples != count(self.examples):
            raise _RefusedError(
                f"it has {count(self.examples)} examples, and the run began with {begin.examples}"
            )
        _Taking(self, begin)  # refuses a model of other shapes
        folder = self._folder(begin.run)
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / _BEGIN
        if known.exists() and known.read_bytes() != data:
            raise _RefusedError("the run began otherwise at this site")
        mine, noted = digest(self.examples), folder / _DATA
        if noted.exists() and noted.read_text() != mine:
            raise _RefusedError("its data has changed since the run began")
        write_whole(noted, mine)
        write_whole(known, data)
        return messages.Begun(begin.run)

    def _check_allowed(self, begin: messages.Begin) -> None:
        task = self.task
        for what, said, own, allowed in (
            ("algorithm", begin.algorithm, task.algorithm_digest, self.algorithms),
            ("model", begin.model, task.model_digest, self.models),
            ("local", begin.local, task.local_digest, None),
        ):
            if said != own:
                raise _RefusedError(
                    f"the server's {what} is {said[:12]}, this site's {own[:12]}: both must have the same"
                )
            if allowed is not None and own not in allowed:
                raise _RefusedError(f"{what} {own} is not on this site's list of allowed ones")

    def _folder(self, run: str) -> Path:
        # `run` is 32 hexadecimal digits, or the message was refused.
        return Path(self.folder) / run

    def _taking(self, run: str) -> "_Taking":
        """The run as it began at this site."""
        folder = self._folder(run)
        try:
            begun = (folder / _BEGIN).read_bytes()
            noted = (folder / _DATA).read_text()
        except FileNotFoundError:
            raise _LostError("this site does not know the run") from None
        try:
            begin = messages.Begin.read(frame.unpack(begun, _LARGEST))
        except BadMessageError:
            raise _LostError("what this site knew of the run is damaged") from None
        if noted != digest(self.examples):
            raise _RefusedError("its data has changed since the run began")
        self._check_allowed(begin)
        return _Taking(self, begin)

    def _found(
        self, message: messages.Round | messages.Evaluate
    ) -> tuple["_Taking", StateVersions, ClientState]:
        """The run, and the state that a message speaks of."""
        taking = self._taking(message.run)
        states = StateVersions(self._folder(message.run))
        try:
            return taking, states, taking.state(states, message.base)
        except LostStateError as error:
            raise _LostError(str(error)) from None

    def _evaluate(self, message: messages.Evaluate, asked: str) -> messages.Measured:
        taking, _, state = self._found(message)
        sums: dict[str, list[float]] = {}
        if self.tests is not None and count(self.tests):
            model = taking.deployed(message, state)
            found = totals(self.experiment.model, model, self.tests)
            # What is not finite cannot be said, and is not counted.
            sums = {
                name: [value, count(self.tests)]
                for name, value in found.items()
                if math.isfinite(value)
            }
        return messages.Measured(message.run, asked, sums)

    def _round(self, message: messages.Round, asked: str) -> messages.Message:
        taking, states, state = self._found(message)
        reply = taking.round(message, state)
        # On the disk before the reply leaves: the server may ask for it next.
        states.write(Version(message.round + 1, asked), jax.device_get(reply.state))
        states.forget_before(message.kept)
        return messages.Reply(
            run=message.run,
            round=message.round,
            message=asked,
            examples=count(self.examples),
            finite=bool(reply.finite),
            body=taking.packed(message.round, reply),
        )


class _Taking:
    """A site's part in one run."""

    def __init__(self, site: Site, begin: messages.Begin) -> None:
        self.site, self.begin, self.task = site, begin, site.task
        key = host_key(begin.seed, Purpose.INIT)
        shapes = jax.eval_shape(self.task.model.init, key, site.examples)
        self.first = _numbers(begin.body, shapes, "the model")
        self.template: Template = self.task.template(self.first)

    @functools.cached_property
    def _planner(self) -> BatchPlanner:
        """Batches of this client among clients the largest of which is as large as it is said to be."""
        mine, begin = count(self.site.examples), self.begin
        other = max(begin.largest, mine)
        sizes = np.zeros(begin.client + 2, np.int64)
        sizes[begin.client :] = mine, other
        rows = np.concatenate([np.arange(mine), np.zeros(other, np.int64)])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        clients = Clients(self.site.examples, rows, offsets)
        return BatchPlanner(clients, self.task.local, begin.seed)

    def _slots(self, t: int) -> Slot:
        slots = self._planner.slots(t, np.array([self.begin.client]))
        return slots._replace(weight=np.array([self.begin.weight]))

    def state(self, states: StateVersions, version: Version) -> ClientState:
        """The state to go on from: a version on the disk, or the first."""
        if version != FIRST or version in states:
            return states.read(version, self.template.client)
        first = self.template.client
        if not self.task.algorithm.rule.traits.prepares:
            return first
        inputs = Preparation(
            model=self.task.model,
            rule=hyper.at_round(self.task.algorithm, 0).rule,
            x=self.first,
            states=tree.map(lambda a: jnp.asarray(a)[None], first.rule),
            slots=self._slots(0),
            examples=self.site._on_device,
            fresh=jnp.asarray(np.ones(1, bool)),
            key=host_key(self.begin.seed, Purpose.PREPARE),
        )
        found = jax.device_get(_prepared(inputs))
        prepared = first._replace(rule=tree.map(lambda a: a[0], found))
        states.write(FIRST, jax.device_get(prepared))
        return prepared

    def round(self, message: messages.Round, state: ClientState) -> Reply:
        """`client_round` with what the message brought."""
        t = message.round
        x, msg = _numbers(message.body, self.template.broadcast, "the broadcast")
        now = hyper.at_round(self.task.algorithm, t)
        steps = self.task.local.at(t, x)
        key = round_key(self.begin.seed, t)
        shared = Shared(self.task.model, now, steps, x, msg, self.site._on_device, key)
        slot = tree.map(lambda a: a[0], self._slots(t))
        return _round_at_site(shared, tree.map(jnp.asarray, state), slot)

    def deployed(self, message: messages.Evaluate, state: ClientState) -> Tree:
        """The model this site would use, of the server's and what it remembers."""
        x, msg = _numbers(message.body, self.template.broadcast, "the broadcast")
        now = hyper.at_round(self.task.algorithm, message.round)
        client = np.int32(self.begin.client)
        return _deployed(now, x, msg, tree.map(jnp.asarray, state.rule), client)

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


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
