"""The compiled engine: a whole round is one program, spread over devices."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import processes
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import Preparation, prepare_cohort
from holdfast.core.mean import Judged
from holdfast.core.round import Exchange, VisitCohort, federated_round
from holdfast.core.round_types import ClientState, Reply, RoundInputs, RoundResult, Shared, Slot
from holdfast.core.server import Aggregate
from holdfast.engine.heap import give_back_after_compiling
from holdfast.engine.layout import LEAVES, Execution, SlotLayout
from holdfast.engine.protocol import Placement
from holdfast.errors import HoldfastError
from holdfast.trees import Tree

_AXIS = "clients"
_WIDTH_ON_ACCELERATORS = 16
_WIDTH_OF_TINY_STEPS = 32
Cohort = tuple[ClientState, Slot]
Visited = tuple[Aggregate, tuple[ClientState, Judged]]


def _spread(
    mesh: Mesh,
    execution: Execution,
    leaf: jax.Array,
    exchange: Exchange,
    empty: Aggregate,
    cohort: Cohort,
    shared: Shared,
) -> Visited:
    """Visit every client on its device; add up along the tree, so that bits do not depend on devices."""
    devices = mesh.size
    each = max(LEAVES, devices) // devices

    def on_device(cohort: Cohort, leaf: jax.Array, shared: Shared) -> Visited:
        first = lax.axis_index(_AXIS) * each if devices > 1 else 0
        if execution.width == 1:
            visit = functools.partial(exchange.present, shared)
            nothing = exchange.unseen(shared, empty)
            halves, out = _leaf_by_leaf(
                visit, empty, nothing, cohort, leaf - first, each, 1 + (devices == 1)
            )
        else:
            sums = tree.map(lambda s: jnp.zeros((each, *s.shape), s.dtype), empty)
            at_work = (cohort, leaf - first)
            chunks = tree.map(lambda a: a.reshape(-1, execution.width, *a.shape[1:]), at_work)
            together = functools.partial(_together, exchange, execution.uniform, shared)
            halves, out = lax.scan(together, sums, chunks)
            out = tree.map(lambda a: a.reshape(-1, *a.shape[2:]), out)
            while tree.leaves(halves)[0].shape[0] > (2 if devices == 1 else 1):
                halves = tree.map(lambda s: s[0::2] + s[1::2], halves)
        half, other = (tree.map(lambda s, k=k: s[k], halves) for k in (0, -1))
        for level in range(devices.bit_length() - 1):
            across = [(i, i ^ (1 << level)) for i in range(devices)]
            half = half if level == 0 else tree.map(jnp.add, half, other)
            other = tree.map(lambda s, a=across: lax.ppermute(s, _AXIS, a), half)
        total = _add_apart(half, other)
        return total, out

    if devices == 1:
        return on_device(cohort, leaf, shared)
    whole: Any = PartitionSpec()
    split: Any = PartitionSpec(_AXIS)
    examples = split if execution.examples_apart else whole
    specs = Shared(shared.model, whole, whole, whole, whole, examples, whole, whole)
    total, (states, judged) = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(split, split, specs),
        out_specs=(whole, split),
        check_vma=False,
    )(cohort, leaf, shared)
    # Replies that are kept until all are there are looked at by every device in the same way.
    held = lax.with_sharding_constraint(judged.held, NamedSharding(mesh, PartitionSpec()))
    return total, (states, judged._replace(held=held))


def _add_apart(half: Aggregate, other: Aggregate) -> Aggregate:
    """The sum of two halves, in a loop of its own that turns once.

    The compiler does not know that it does, and fuses nothing across a loop. Fused with the additions
    before it, which are others on other numbers of devices, the server's step is rounded in other ways:
    which of two products an addition takes in is up to what stands beside them. FedAdam's bits told
    the devices (a barrier would not do: for CPUs it is taken out before operations are fused).
    """
    once = (half.heads >= 0).astype(jnp.int32)
    total: Aggregate = lax.fori_loop(
        0, once, lambda _, halves: (tree.map(jnp.add, *halves), halves[1]), (half, other)
    )[0]
    return total


def _leaf_by_leaf(
    visit: Callable[..., Any],
    empty: Aggregate,
    nothing: Judged,
    cohort: Cohort,
    leaf: jax.Array,
    each: int,
    tops: int,
) -> Visited:
    """Visit clients one by one, those of a leaf together, and no empty slot.

    New states are written where the old ones were. Two sums become one as soon as both are there, as in a
    binary counter, so that few of them are in memory; returned are the last `tops`.
    """
    states, slots = cohort
    leaf = jnp.where(slots.steps > 0, leaf, each)
    order = jnp.argsort(leaf)
    ends = jnp.cumsum(jnp.sum(leaf[None] == jnp.arange(each, dtype=leaf.dtype)[:, None], axis=1))
    levels = (each // tops).bit_length() - 1
    sums = tree.map(lambda s: jnp.zeros((levels + tops, *s.shape), s.dtype), empty)

    def one(k: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        so_far, states, judged = carry
        i = order[k]
        mine, slot = (
            tree.map(lambda a: lax.dynamic_index_in_dim(a, i, keepdims=False), u)
            for u in (states, slots)
        )
        so_far, (mine, own) = visit(so_far, mine, slot)
        states, judged = tree.map(
            lambda a, b: lax.dynamic_update_index_in_dim(a, b, i, 0),
            (states, judged),
            (mine, own),
        )
        return so_far, states, judged

    def of_leaf(j: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        sums, begin, states, judged = carry
        fresh = tree.map(lambda s: jnp.zeros(s.shape, s.dtype), empty)
        so_far, states, judged = lax.fori_loop(begin, ends[j], one, (fresh, states, judged))

        def is_right(here: tuple[Any, Aggregate]) -> jax.Array:
            level = here[0]
            return (level < levels) & ((j >> level) & 1 == 1)

        def with_left(here: tuple[Any, Aggregate]) -> tuple[Any, Aggregate]:
            level, right = here
            return level + 1, tree.map(lambda s, r: s[level] + r, sums, right)

        level, so_far = lax.while_loop(is_right, with_left, (jnp.zeros_like(j), so_far))
        place = jnp.where(level == levels, levels + (j >> levels), level)
        sums = tree.map(lambda a, b: lax.dynamic_update_index_in_dim(a, b, place, 0), sums, so_far)
        return sums, ends[j], states, judged

    nobody = tree.map(lambda a: jnp.broadcast_to(a, (len(leaf), *a.shape)), nothing)
    begin = (sums, jnp.zeros((), ends.dtype), states, nobody)
    sums, _, states, judged = lax.fori_loop(0, each, of_leaf, begin)
    return tree.map(lambda s: s[levels:], sums), (states, judged)


def _into_leaf(
    add: Callable[..., Any], sums: Tree, here: tuple[Tree, jax.Array]
) -> tuple[Tree, Tree]:
    """Add one client's reply to the sum of its leaf."""
    client, k = here
    mine = tree.map(lambda s: lax.dynamic_index_in_dim(s, k, keepdims=False), sums)
    mine, out = add(mine, client)
    sums = tree.map(lambda s, m: lax.dynamic_update_index_in_dim(s, m, k, 0), sums, mine)
    return sums, out


def _together(
    exchange: Exchange,
    uniform: bool,
    shared: Shared,
    sums: Tree,
    chunk: tuple[Cohort, jax.Array],
) -> tuple[Tree, Tree]:
    """Several clients at a time, until the last of them is done; their replies one by one."""
    (states, slots), leaf = chunk
    # Along which axis of its fields; None: the field is one for all of the chunk.
    axes: dict[str, Any] = dict.fromkeys(Slot._fields, 0)
    together = slots
    if uniform:
        # One bound for all: with one each, every step would select whose numbers still change. An
        # empty slot then runs along, and is not accepted.
        together, axes["steps"] = slots._replace(steps=jnp.max(slots.steps)), None
    dtype = sums.heads.dtype

    def mine(slot: Slot) -> Algorithm:
        return hyper.of_client(shared.algorithm, slot.client, dtype)

    def reply(state: ClientState, slot: Slot) -> Reply:
        return exchange.reply(shared, mine(slot), state, slot)

    replies = jax.vmap(reply, in_axes=(0, Slot(**axes)))(states, together)

    def add(so_far: Aggregate, client: tuple[Reply, ClientState, Slot]) -> Visited:
        so_far, state, judged = exchange.accept(mine(client[2]), so_far, *client)
        return so_far, (state, judged)

    return lax.scan(functools.partial(_into_leaf, add), sums, ((replies, states, slots), leaf))


def along_tree(mesh: Mesh, execution: Execution, leaf: jax.Array) -> VisitCohort:
    """The way through a cohort on these devices, with sums along the tree."""
    return functools.partial(_spread, mesh, execution, leaf)


def _spread_round(
    mesh: Mesh, execution: Execution, leaf: jax.Array, inputs: RoundInputs
) -> RoundResult:
    result = federated_round(inputs, along_tree(mesh, execution, leaf))
    if mesh.size == 1:
        return result
    # Every process must know whose reply was accepted.
    whole = NamedSharding(mesh, PartitionSpec())
    known = lax.with_sharding_constraint((result.accepted, result.seen), whole)
    return result._replace(accepted=known[0], seen=known[1])


_compiled_round = jax.jit(_spread_round, static_argnames=("mesh", "execution"))


@functools.partial(jax.jit, static_argnames=("mesh", "execution"), donate_argnames="states")
def _compiled_in_place(
    mesh: Mesh, execution: Execution, leaf: jax.Array, states: ClientState, inputs: RoundInputs
) -> RoundResult:
    inputs = dataclasses.replace(inputs, client_states=states)
    return _spread_round(mesh, execution, leaf, inputs)


_compiled_preparation = jax.jit(prepare_cohort)


def compiled_programs() -> int:
    """How many rounds have been compiled in this process, in any shapes and on any devices."""
    programs: Any = (_compiled_round, _compiled_in_place)
    return sum(int(program._cache_size()) for program in programs)


def _compiled_preparations() -> int:
    return int(_compiled_preparation._cache_size())  # type: ignore[attr-defined]


class CompileTime:
    """The seconds that calls took in which a program was compiled: they return once it runs."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Around a call of an engine."""
        known, began = compiled_programs() + _compiled_preparations(), time.perf_counter()
        yield
        if compiled_programs() + _compiled_preparations() > known:
            self.seconds += time.perf_counter() - began


@functools.lru_cache(maxsize=8)
def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), (_AXIS,))


@dataclasses.dataclass(frozen=True)
class CompiledEngine:
    """A whole round is one compiled program; new numbers, cohorts and seeds compile nothing anew.

    Args:
        devices: how many to spread a cohort over, a power of two; as many as there are unless given,
            up to 8. With the same width, results do not depend on it, to the bit.
        width: clients that a device works on at a time, at most as many as it has. Unless given, 1 on a
            CPU, where each takes just its own number of steps (but up to 32, whatever the devices, where
            steps are tiny and clients alike), and 16 on accelerators. Results depend on it by rounding.
    """

    devices: int | None = None
    width: int | None = None

    def __post_init__(self) -> None:
        n = self.devices
        if self.width is not None and self.width < 1:
            raise HoldfastError(
                f"Engine: width={self.width}; give a whole number of at least 1, or leave it out.",
                about=("width",),
            )
        if n is not None and (n < 1 or n & (n - 1) or n > len(jax.devices())):
            raise HoldfastError(
                f"Engine: devices={n}, and JAX has {len(jax.devices())}; give a power of two of at most "
                f"that many. A CPU is one device unless jax.config.update('jax_num_cpu_devices', n) "
                f"says otherwise before JAX starts.",
                about=("devices",),
            )

    @functools.cached_property
    def mesh(self) -> Mesh:
        """The devices, of all processes."""
        if self.devices is not None:
            return _mesh(self.devices)
        there = len(jax.devices())
        if processes.count() == 1:
            return _mesh(1 << (min(there, LEAVES).bit_length() - 1))
        if there & (there - 1):
            raise HoldfastError(
                f"Engine: {processes.count()} processes have {there} devices in all; run 2, 4, 8, ... "
                f"processes with as many devices each."
            )
        return _mesh(there)

    @property
    def local_devices(self) -> int:
        """How many of them are this process's."""
        return self.mesh.size // processes.count()

    def here(self, slots: int) -> slice:
        """The part of the slots that is on this process's devices."""
        each = slots // processes.count()
        return slice(processes.rank() * each, (processes.rank() + 1) * each)

    @property
    def split(self) -> NamedSharding:
        """How arrays lie of which every device has a part."""
        return NamedSharding(self.mesh, PartitionSpec(_AXIS))

    def everywhere(self, arrays: Tree) -> Tree:
        """Arrays that every device has."""
        if self.mesh.size == 1:
            return jax.device_put(arrays)
        whole = NamedSharding(self.mesh, PartitionSpec())
        if processes.count() == 1:
            return jax.device_put(arrays, whole)

        def one(a: Any) -> jax.Array:
            copies = [jax.device_put(a, device) for device in self.mesh.local_devices]
            return jax.make_array_from_single_device_arrays(np.shape(a), whole, copies)

        return tree.map(one, arrays)

    def _apart(self, arrays: Tree) -> Tree:
        """Arrays of which every device has a part; given is this process's."""
        if processes.count() == 1:
            return jax.device_put(arrays, self.split)
        return tree.map(
            lambda a: jax.make_array_from_process_local_data(self.split, np.asarray(a)), arrays
        )

    def prepare(self, t: int, inputs: Preparation) -> Tree:
        """Clients' work before their first round."""
        return _compiled_preparation(inputs)

    def round(self, t: int, inputs: RoundInputs, placement: Placement) -> RoundResult:
        """One round."""
        leaf, execution = placement
        give_back_after_compiling()
        if self.mesh.size == 1:
            return self._run(execution, leaf, inputs)
        states, slots, leaf = self._apart((inputs.client_states, inputs.slots, leaf))
        x, server = self.everywhere((inputs.x, inputs.server))
        # What a wire has of the server's state was left on one device by the round before.
        algorithm = tree.map(
            lambda a: self.everywhere(a) if isinstance(a, jax.Array) else a, inputs.algorithm
        )
        apart = execution.examples_apart
        examples = self._apart(inputs.examples) if apart else inputs.examples
        inputs = dataclasses.replace(
            inputs,
            algorithm=algorithm,
            x=x,
            server=server,
            client_states=states,
            slots=slots,
            examples=examples,
        )
        result = self._run(execution, leaf, inputs)
        # One copy of what all devices have: evaluating it on each would be the same work twice.
        x, server = tree.map(lambda a: a.addressable_data(0), (result.x, result.server))
        return result._replace(x=x, server=server)

    def _run(self, execution: Execution, leaf: Any, inputs: RoundInputs) -> RoundResult:
        if not execution.in_place:
            return _compiled_round(self.mesh, execution, leaf, inputs)
        # Apart from the other inputs, since only they are used up.
        states, nothing = inputs.client_states, ClientState((), ())
        rest = dataclasses.replace(inputs, client_states=nothing)
        return _compiled_in_place(self.mesh, execution, leaf, states, rest)

    def layout(self, clients: int, steady: bool, uniform: bool, tiny: bool) -> SlotLayout:
        """Slots of the program: powers of two where cohorts vary, so that few are compiled.

        `tiny` says that a step is mostly overhead, which clients with the same work can share.
        """
        slots = clients if steady else 1 << max(0, clients - 1).bit_length()
        devices = self.mesh.size
        if self.width is None and jax.default_backend() == "cpu":
            # Not cut to what a device has: the bits of a run should not tell how many there were.
            width = min(_WIDTH_OF_TINY_STEPS, slots) if tiny and uniform else 1
        else:
            width = min(self.width or _WIDTH_ON_ACCELERATORS, -(-slots // devices))
        return SlotLayout(slots, uniform, devices, max(LEAVES, devices), width)
