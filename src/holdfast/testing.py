"""`check(algorithm)`: what every method must satisfy, ours and yours.

>>> import holdfast as hf
>>> hf.testing.check(hf.algorithms.fedavg(), only=["types"])
Report(fedavg: 1 checks passed: types)
"""

import dataclasses
import functools
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast import cohorts
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import client_round
from holdfast.core.gathered import revert
from holdfast.core.hyper import PerClient
from holdfast.core.keys import Purpose, client_key, host_generator, round_key
from holdfast.core.local import Local
from holdfast.core.round import federated_round
from holdfast.core.round_types import (
    ClientState,
    Reply,
    RoundInputs,
    RoundResult,
    Shared,
    Slot,
    in_type,
)
from holdfast.core.rule import Need, addressed
from holdfast.core.server import (
    accept,
    announced,
    close_round,
    gathered_sums,
    open_round,
    server_view,
)
from holdfast.core.wire import OnSite
from holdfast.data.clients import Clients, Examples
from holdfast.data.partition import by
from holdfast.engine.compiled import CompiledEngine, compiled_programs
from holdfast.engine.debug import DebugEngine
from holdfast.engine.experiment import Experiment
from holdfast.engine.protocol import Placement
from holdfast.engine.server import Server
from holdfast.engine.simulate import Run, simulate
from holdfast.engine.simulation import Simulation
from holdfast.errors import HoldfastError, HoldfastWarning, RoundFailedError, did_you_mean
from holdfast.models.dense import mlp
from holdfast.models.model import Model
from holdfast.record.checkpoint import Checkpoint, from_bytes, to_bytes
from holdfast.record.ledger import Entry
from holdfast.record.state import RunState
from holdfast.trees import Tree, describe_shapes, finite, nbytes, signature

__all__ = ["CHECKS", "Case", "ConformanceError", "Report", "check"]


class ConformanceError(HoldfastError, AssertionError):
    """An algorithm that does not behave; says which checks failed and how."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What was checked."""

    name: str
    passed: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Report({self.name}: {len(self.passed)} checks passed: {', '.join(self.passed)})"


@dataclasses.dataclass(frozen=True)
class Case:
    """An experiment on a small problem of unequal clients, and how many rounds to try it for."""

    experiment: Experiment
    rounds: int = 3

    def changed(self, **changes: Any) -> "Case":
        """With another experiment."""
        return dataclasses.replace(self, experiment=dataclasses.replace(self.experiment, **changes))

    def run(self, rounds: int | None = None, checkpoint: Any = None, **changes: Any) -> Run:
        """Simulate, with some things changed."""
        case = self.changed(**changes)
        rounds = self.rounds if rounds is None else rounds
        return simulate(case.experiment, rounds=rounds, checkpoint=checkpoint)


class _Round(NamedTuple):
    """One round of a simulation, ready to run."""

    simulation: Simulation
    state: RunState
    inputs: RoundInputs
    placement: Placement

    def changed(self, order: Any = None, **slots: Any) -> "_Round":
        """With other values in its slots, or the slots in another order."""
        inputs = dataclasses.replace(self.inputs, slots=self.inputs.slots._replace(**slots))
        leaf = self.placement.leaf
        if order is not None:
            moved = (inputs.client_states, inputs.slots, leaf)
            states, moved_slots, leaf = tree.map(lambda a: np.asarray(a)[order], moved)
            inputs = dataclasses.replace(inputs, client_states=states, slots=moved_slots)
        return self._replace(inputs=inputs, placement=self.placement._replace(leaf=leaf))

    def run(self, engine: Any = None) -> RoundResult:
        """Its result, compiled unless another engine is given."""
        return (engine or CompiledEngine()).round(0, self.inputs, self.placement)


# Several checks look at the same round of a case.
@functools.lru_cache(maxsize=2)
def _next_round(case: Case, done: int) -> _Round:
    """The round after so many."""
    simulation = Simulation(case.experiment)
    state = simulation.begin()
    for _ in range(done):
        state = simulation.advance(state)
    plan = simulation.planner(state.round)
    return _Round(simulation, state, simulation.inputs(state, plan), plan.placement)


def _tiny_clients() -> Clients:
    rng = np.random.default_rng(7)
    sizes = (7, 12, 4, 9)
    x = rng.normal(size=(sum(sizes), 5)).astype(np.float32)
    y = rng.integers(0, 3, sum(sizes)).astype(np.int32)
    return by(Examples(x, y), np.repeat(np.arange(len(sizes)), sizes))


def _server_if_needed(algorithm: Algorithm) -> Server | None:
    if Need.SERVER_DATA not in algorithm.rule.traits.needs:
        return None
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(10, 5)).astype(np.float32), rng.integers(0, 3, 10).astype(np.int32)
    return Server(Examples(x, y), Local(learning_rate=0.05, steps=3, batch_size=4))


def check(
    algorithm: Algorithm,
    model: Model | None = None,
    clients: Clients | None = None,
    local: Local | None = None,
    server: Server | None = None,
    only: Sequence[str] | None = None,
) -> Report:
    """Check that an algorithm keeps what every method must; raises `ConformanceError` if not.

    Args:
        algorithm: `hf.algorithms.*()`, or `hf.Algorithm(YourRule(...))`.
        model: an MLP with leaves `hidden_0/bias`, `hidden_0/kernel`, `classifier/bias`,
            `classifier/kernel` unless given; give your own for rules bound to a model.
        clients: four clients of 7, 12, 4 and 9 examples unless given.
        local: two epochs in batches of 4 unless given.
        server: the server's own data or loss; ten examples if the rule needs one and none is given.
        only: names of some checks; all of `holdfast.testing.CHECKS` unless given.
    """
    case = Case(
        Experiment(
            algorithm,
            _fragile(model or mlp([4], classes=3)),
            clients or _tiny_clients(),
            local or Local(learning_rate=0.1, epochs=2, batch_size=4),
            server=server or _server_if_needed(algorithm),
        )
    )
    for name in only or ():
        if name not in CHECKS:
            raise HoldfastError(f"check: no check `{name}`; {did_you_mean(name, CHECKS)}")
    wanted = CHECKS if only is None else {name: CHECKS[name] for name in only}
    failures = []
    for name, function in wanted.items():
        try:
            function(case)
        except AssertionError as failure:
            failures.append(f"{name}: {failure}")
    if failures:
        raise ConformanceError(f"{algorithm.name} does not conform. " + " | ".join(failures))
    return Report(algorithm.name, tuple(wanted))


def _everything(state: RunState) -> Tree:
    states = [state.client_states[i] for i in range(len(state.client_states))]
    return jax.device_get((state.params, state.server, states))


def _require_same(a: Tree, b: Tree, what: str) -> None:
    for p, q in zip(tree.leaves(a), tree.leaves(b), strict=True):
        if not np.array_equal(p, q, equal_nan=True):
            off = float(np.max(np.abs(np.asarray(p, float) - np.asarray(q, float))))
            raise AssertionError(f"{what} differ by {off:.3g} where every bit must be the same")


def _require_close(a: Tree, b: Tree, what: str, tolerance: float = 2e-5) -> None:
    for p, q in zip(tree.leaves(a), tree.leaves(b), strict=True):
        p, q = np.asarray(p, float), np.asarray(q, float)
        off = float(np.max(np.abs(p - q) / (1 + np.abs(q)), initial=0))
        if not off <= tolerance:
            raise AssertionError(f"{what} differ by {off:.3g}, more than rounding")


def _check_types(case: Case) -> None:
    """Models and states keep their types through a round, in 32 and 64 bits."""
    for bits, wide in (("float32", False), ("float32", True), ("float64", True)):
        with jax.enable_x64(wide):
            _, state, inputs, _ = _next_round(_in_bits(case, bits), 0)
            # Types are known without compiling, let alone running.
            result = jax.eval_shape(federated_round, inputs)
            for what, before, after in (
                ("the model", state.params, result.x),
                ("the server's state", state.server, result.server),
                ("a client's state", inputs.client_states, result.client_states),
            ):
                if signature(before) != signature(after):
                    raise AssertionError(
                        f"{bits} with x64={wide}: {what} begins as {describe_shapes(before)} and "
                        f"ends as {describe_shapes(after)}"
                    )
            if {p.dtype for p in tree.leaves(result.x)} != {jnp.dtype(bits)}:
                raise AssertionError(f"{bits} with x64={wide}: {describe_shapes(result.x)}")


def _in_bits(case: Case, bits: str) -> Case:
    """The same problem with data of another precision."""

    def cast(examples: Any) -> Any:
        return examples._replace(x=examples.x.astype(bits))

    given = case.experiment
    clients = dataclasses.replace(given.clients, examples=cast(given.clients.examples))
    server = given.server
    if server is not None and not server.alone:
        server = dataclasses.replace(server, source=cast(server.source))
    return case.changed(clients=clients, server=server)


def _check_order(case: Case) -> None:
    """In which order a cohort's clients are visited does not matter."""
    given = _next_round(case, 1)
    back = np.arange(len(given.inputs.slots.client))[::-1]
    there, here = given.changed(order=back).run(), given.run()
    _require_close(there[:2], here[:2], "results of two orders")
    states = tree.map(lambda a: np.asarray(a)[back], there.client_states)
    _require_close(states, here.client_states, "client states of two orders")


def _short_round(case: Case) -> _Round:
    """The second round with one or two steps a client: what is not compiled takes its time."""
    given = _next_round(case, 1)
    steps = given.inputs.slots.steps
    few = np.minimum(steps, 1 + np.arange(len(steps)) % 2).astype(steps.dtype)
    return given.changed(steps=few)


def _check_padding(case: Case) -> None:
    """Empty slots and unused batches change nothing."""
    given = _short_round(case)
    slots = given.inputs.slots
    count = len(slots.client)
    # If one client holds all the data, there is no slot to spare.
    if count == 1:
        return
    # Of two clients, one with a step more than the other: what is not compiled takes its time.
    kept = min(2, count - 1)
    steps = np.where(np.arange(count) < kept, slots.steps, 0).astype(slots.steps.dtype)
    unused = np.full_like(slots.batches[:, :3], -1)
    emptied = given.changed(steps=steps)
    wider = emptied.changed(batches=np.concatenate([slots.batches, unused], axis=1))
    # Without compilation, so that no program is made for the one comparison.
    plain = given.changed(order=np.arange(kept)).run(DebugEngine())
    debugged, padded = wider.run(DebugEngine()), emptied.run()
    _require_close(debugged[:2], plain[:2], "results with and without padding", 1e-6)
    for states in (debugged.client_states, padded.client_states):
        present = tree.map(lambda a: np.asarray(a)[:kept], states)
        _require_close(present, plain.client_states, "client states under padding")
    _require_close(padded[:2], plain[:2], "the program with empty slots and a round without")
    both = (padded.client_states, given.inputs.client_states)
    after, before = tree.map(lambda a: np.asarray(a)[kept:], both)
    _require_same(after, before, "empty slots' client states before and after the round")


def _check_empty_client(case: Case) -> None:
    """A client without data counts as if it were not there."""
    old = case.experiment.clients
    more = Clients(old.examples, old.order, np.append(old.offsets, old.offsets[-1]))

    def extend(leaf: Any) -> Any:
        if not isinstance(leaf, PerClient):
            return leaf
        return PerClient(np.append(leaf.values, np.asarray(leaf.values)[-1]))

    wider = tree.map(
        extend, case.experiment.algorithm, is_leaf=lambda leaf: isinstance(leaf, PerClient)
    )
    with_empty = case.run(algorithm=wider, clients=more)
    _require_same(with_empty.params, case.run().params, "models with and without an empty client")


def _check_engines(case: Case) -> None:
    """Compiled together, and one client at a time without compilation: the same round."""
    given = _short_round(case)
    debugged, compiled = given.run(DebugEngine()), given.run()
    _require_close(debugged[:3], compiled[:3], "compiled and debug rounds")


@jax.jit
def _visit_all(shared: Shared, states: ClientState, slots: Slot) -> Reply:
    """Every client's round, vmapped: none sees anything of another."""

    def one(state: ClientState, slot: Slot) -> Reply:
        mine = hyper.of_client(shared.algorithm, slot.client, slot.weight.dtype)
        return client_round(shared, mine, state, slot)

    return jax.vmap(one)(states, slots)


def _check_bytes(case: Case) -> None:
    """Clients reached only through bytes, side by side, give the same round; the ledger counts them."""
    given = _next_round(case, 1)
    simulation, state, inputs, _ = given
    compiled = given.run()
    algorithm, key = inputs.algorithm, inputs.key
    at = server_view(inputs)
    client = tree.map(lambda a: a[0], inputs.client_states)
    _, wire_state, mean_state = inputs.server
    opened = open_round(algorithm, at, wire_state, client, key, mean_state=mean_state)
    broadcast, so_far = (opened.x, addressed(opened.msg, None), opened.said), opened.aggregate
    x, msg, said = tree.map(jnp.asarray, from_bytes(to_bytes(broadcast), broadcast))
    algorithm = announced(algorithm, said)
    dtype = so_far.weight.dtype
    slots = in_type(inputs.slots, dtype)
    shared = Shared(inputs.model, algorithm, inputs.steps, x, msg, inputs.examples, key)
    replies = _visit_all(shared, inputs.client_states, slots)
    entry = simulation.advance(state).ledger.entries[-1]
    judged = []
    for i in range(len(slots.client)):
        reply, slot, old = tree.map(
            lambda a, i=i: jnp.asarray(np.asarray(a)[i]),
            (jax.device_get(replies), slots, inputs.client_states),
        )
        mine = hyper.of_client(algorithm, int(slot.client), dtype)
        data = mine.wire.pack(reply.coded)
        wire_key = client_key(key, slot.client, Purpose.WIRE)
        payload = simulation.setup.template.payload
        back = tree.map(jnp.asarray, mine.wire.unpack(data, payload, wire_key))
        place = entry.clients.index(int(slot.client))
        _require_counted(entry, place, algorithm, data, broadcast, mine.wire.receive(back))
        so_far, _, one = accept(mine, so_far, reply._replace(coded=back), old, slot)
        judged.append(one)
    seen = tree.map(lambda *several: jnp.stack(several), *judged)
    if algorithm.mean.gathers:
        so_far, seen = gathered_sums(algorithm, so_far, seen, slots)
    states = revert(seen.accepted, replies.state, inputs.client_states)
    what = "client states side by side and in one program"
    _require_close(states, compiled.client_states, what)
    at = at._replace(state=opened.server.rule)
    remote = close_round(
        inputs.algorithm,
        at,
        opened.server.wire,
        so_far,
        inputs.population,
        mean_state,
        seen,
        inputs.noise_key,
    )
    _require_close(remote, compiled[:2], "rounds through bytes and in one program")


def _require_counted(
    entry: Entry, place: int, algorithm: Algorithm, data: bytes, broadcast: Tree, received: Tree
) -> None:
    """The ledger's figures for one client are what travelled to and from it."""
    down, up = (n if isinstance(n, int) else n[place] for n in (entry.down, entry.up))
    if (down, up) == (0, 0):
        silent = all(not np.any(leaf) for leaf in tree.leaves(received))
        if not (silent or isinstance(algorithm.wire, OnSite)):
            raise AssertionError(
                "the ledger says that nothing travelled, and the reply is not zero"
            )
        return
    sent = down if algorithm.wire.replicates else nbytes(broadcast)  # a change, not the whole
    if (down, up) != (sent, len(data)):
        raise AssertionError(
            f"the ledger says {down} bytes down and {up} up; {sent} and {len(data)} travelled"
        )


def _check_resume(case: Case) -> None:
    """Saved, loaded and gone on with, a run ends in the same bits as without interruption."""
    whole = case.run(rounds=4)
    with tempfile.TemporaryDirectory() as folder:
        case.run(rounds=2, checkpoint=Checkpoint(folder, every=1))
        resumed = case.run(rounds=4, checkpoint=Checkpoint(folder, every=1))
    _require_same(_everything(resumed.state), _everything(whole.state), "resumed and whole runs")
    if resumed.ledger != whole.ledger:
        raise AssertionError("the ledger of the resumed run is another")


def _numbers(algorithm: Algorithm) -> Iterator[tuple[str, Algorithm]]:
    """Each hyper-parameter's name, and the algorithm with it changed."""
    now = hyper.at_round(algorithm, 0)
    leaves, definition = jax.tree_util.tree_flatten_with_path(now)
    for i, (path, value) in enumerate(leaves):
        changed = [v for _, v in leaves]
        # It stays inside (0, 1), as decay rates must, and counts stay whole.
        counts = np.asarray(value, float) > 1
        counts &= np.asarray(value) == np.floor(value)
        changed[i] = jnp.where(counts, np.ceil(np.asarray(value) * 0.5), value * 0.5 + 0.01)
        yield jax.tree_util.keystr(path), tree.unflatten(definition, changed)


def _check_recompilation(case: Case) -> None:
    """New values of hyper-parameters and step sizes compile nothing."""
    case.run(rounds=2)
    before = compiled_programs()
    for _, changed in _numbers(case.experiment.algorithm):
        case.run(rounds=2, algorithm=changed)
    local = case.experiment.local
    assert isinstance(local, Local)
    slower = dataclasses.replace(local, learning_rate=0.07)
    case.run(rounds=2, local=slower, seed=5)
    if compiled_programs() != before:
        raise AssertionError("another value, step size or seed compiled another program")


def _check_hyper_parameters(case: Case) -> None:
    """Every hyper-parameter has an effect."""
    plain = _everything(case.run(rounds=4).state)
    for name, changed in _numbers(case.experiment.algorithm):
        other = _everything(case.run(rounds=4, algorithm=changed).state)
        pairs = zip(tree.leaves(plain), tree.leaves(other), strict=True)
        if all(np.array_equal(p, q) for p, q in pairs):
            raise AssertionError(f"{name} changes nothing")


_SICK = 1.0e9  # an input that no healthy example has


@functools.lru_cache(maxsize=16)
def _fragile(model: Model) -> Model:
    """The same model, whose loss is NaN on sick examples; all checks use it, to compile it once."""

    def loss(params: Tree, batch: Tree, key: jax.Array) -> jax.Array:
        losses = model.losses(params, batch, key)
        sick = jnp.any(batch.x.reshape(batch.x.shape[0], -1) == _SICK, axis=1)
        return losses * jnp.where(sick, jnp.nan, 1.0)  # a product: the gradient is NaN too

    return dataclasses.replace(model, loss=loss)


def _check_poison(case: Case) -> None:
    """A client whose numbers are not finite is left out: as if it had not replied. Where that would tell of
    its data, it replies with what is finite."""
    given = case.experiment
    x = np.array(given.clients.examples.x)
    x[given.clients.rows(1)] = _SICK
    sick = dataclasses.replace(given.clients, examples=given.clients.examples._replace(x=x))
    case = case.changed(clients=sick)
    # If one client holds all the data, none is left.
    if given.algorithm.regroup is not None:
        try:
            case.run()
        except RoundFailedError:
            return
        raise AssertionError("a round without one finite reply goes on")
    assert isinstance(given.local, Local)
    if given.algorithm.wire.always_finite or given.local.private is not None:
        run = case.run()
        kept = (run.params, run.client_states[1])
        if any(run.history["left_out"]) or not bool(finite(kept)):
            raise AssertionError(
                f"a poisoned client was left out in {list(run.history['left_out'])}, or was not harmless"
            )
        return
    healthy = [i for i in range(len(sick)) if i != 1]
    with warnings.catch_warnings():
        # A sick client cannot prepare, and says so.
        warnings.simplefilter("ignore", HoldfastWarning)
        if given.algorithm.wire.fixed_mean:
            # Its cohorts are drawn in ways that are accounted for, so one round is compared.
            poisoned = without = case.run()
            whole = _next_round(case, 0)
            absent = np.where(whole.inputs.slots.client == 1, 0, whole.inputs.slots.steps)
            alone = whole.changed(steps=absent.astype(np.int32))
            _require_close(
                whole.run().x, alone.run().x, "rounds with a poisoned and an absent client"
            )
        elif given.algorithm.needs_everyone:
            poisoned = without = case.run()
        else:
            poisoned = case.run(cohort=cohorts.schedule([[*healthy, 1]]))
            without = case.run(cohort=cohorts.schedule([healthy]))
    _require_close(poisoned.params, without.params, "models with a poisoned and an absent client")
    if not all(np.isfinite(leaf).all() for leaf in tree.leaves(jax.device_get(poisoned.params))):
        raise AssertionError("a poisoned client made the model not finite")
    states = poisoned.client_states
    _require_same(states[1], states.first, "a rejected client's states")
    if list(poisoned.history["left_out"]) != [1] * case.rounds:
        raise AssertionError(f"left_out is {list(poisoned.history['left_out'])}, not 1 each round")


def _check_repeat(case: Case) -> None:
    """The same arguments give the same bits, and another seed gives others."""
    first, second = case.run(), case.run()
    _require_same(_everything(first.state), _everything(second.state), "two runs of one seed")
    key = round_key(0, 1)
    draws = [host_generator(Purpose.ORDER, 0, 1, i).integers(1 << 30) for i in (0, 1)]
    keys = [jax.random.key_data(client_key(key, jnp.int32(i), Purpose.LOSS)) for i in (0, 1)]
    if draws[0] == draws[1] or np.array_equal(keys[0], keys[1]):
        raise AssertionError("two clients share random numbers")


CHECKS: dict[str, Callable[[Case], None]] = {
    "types": _check_types,
    "repeat": _check_repeat,
    "order": _check_order,
    "padding": _check_padding,
    "empty client": _check_empty_client,
    "engines": _check_engines,
    "bytes": _check_bytes,
    "resume": _check_resume,
    "recompilation": _check_recompilation,
    "hyper-parameters": _check_hyper_parameters,
    "poison": _check_poison,
}
