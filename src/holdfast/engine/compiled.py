"""Two ways to run the one round: compiled, or step by step with exceptions that say where."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import processes
from holdfast.core.debug import debugging
from holdfast.core.round import (
    Outcome,
    Reply,
    Sides,
    Told,
    Visit,
    Work,
    federated_round,
    prepare_cohort,
)
from holdfast.engine.layout import LEAVES, Layout, Way
from holdfast.errors import HoldfastError
from holdfast.trees import Tree

_AXIS = "clients"
_WIDTH_ON_ACCELERATORS = 16
_WIDTH_OF_TINY_STEPS = 32
_PLAINLY = Way()


def _spread(
    mesh: Mesh, way: Way, leaf: jax.Array, visit: Visit, sums: Tree, slots: Tree, told: Told
) -> tuple[Tree, Tree]:
    """Visit every client on its device; add up along the tree, so that bits do not depend on devices."""
    devices = mesh.size
    each = max(LEAVES, devices) // devices

    def on_device(slots: Tree, leaf: jax.Array, told: Told) -> tuple[Tree, Tree]:
        first = lax.axis_index(_AXIS) * each if devices > 1 else 0
        stacked = tree.map(lambda s: jnp.zeros((each, *s.shape), s.dtype), sums)
        at_work = (slots, leaf - first)
        if way.width == 1:
            one = functools.partial(_into_leaf, lambda sums, slot: visit(sums, slot, told))
            stacked, out = lax.scan(one, stacked, at_work)
        else:
            chunks = tree.map(lambda a: a.reshape(-1, way.width, *a.shape[1:]), at_work)
            together = functools.partial(_together, visit, way.even, told)
            stacked, out = lax.scan(together, stacked, chunks)
            out = tree.map(lambda a: a.reshape(-1, *a.shape[2:]), out)
        while tree.leaves(stacked)[0].shape[0] > 1:
            stacked = tree.map(lambda s: s[0::2] + s[1::2], stacked)
        total = tree.map(lambda s: s[0], stacked)
        for level in range(devices.bit_length() - 1):
            across = [(i, i ^ (1 << level)) for i in range(devices)]
            total = tree.map(lambda s, a=across: s + lax.ppermute(s, _AXIS, a), total)
        return total, out

    if devices == 1:
        return on_device(slots, leaf, told)
    shared: Any = PartitionSpec()
    split: Any = PartitionSpec(_AXIS)
    everybody = Told(shared, shared, shared, shared, split if way.apart else shared, shared)
    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(split, split, everybody),
        out_specs=(shared, split),
        check_vma=False,
    )(slots, leaf, told)


def _into_leaf(
    add: Callable[..., Any], stacked: Tree, here: tuple[Tree, jax.Array]
) -> tuple[Tree, Tree]:
    """Add one client's reply to the sum of its leaf."""
    slot, k = here
    mine = tree.map(lambda s: lax.dynamic_index_in_dim(s, k, keepdims=False), stacked)
    mine, out = add(mine, slot)
    stacked = tree.map(lambda s, m: lax.dynamic_update_index_in_dim(s, m, k, 0), stacked, mine)
    return stacked, out


def _together(
    visit: Visit, even: bool, told: Told, stacked: Tree, chunk: tuple[Tree, jax.Array]
) -> tuple[Tree, Tree]:
    """Several clients at a time, until the last of them is done; their replies one by one."""
    (rows, work), leaf = chunk
    together, along = work, Work(*(0 for _ in Work._fields))
    if even:
        # One bound for all: with one each, every step would select whose numbers still change. An
        # empty place then runs along, and is not accepted.
        together, along = work._replace(count=jnp.max(work.count)), along._replace(count=None)
    reply = jax.vmap(lambda row, slot: visit.reply(row, slot, told), in_axes=(0, along))
    replies = reply(rows, together)

    def add(mine: Tree, slot: tuple[Reply, Sides, Work]) -> tuple[Tree, Tree]:
        return visit.accept(mine, *slot, told)

    return lax.scan(functools.partial(_into_leaf, add), stacked, ((replies, rows, work), leaf))


def _spread_round(mesh: Mesh, way: Way, leaf: jax.Array, **given: Any) -> Outcome:
    cohort = functools.partial(_spread, mesh, way, leaf)
    outcome = federated_round(**given, cohort=cohort)
    if mesh.size == 1:
        return outcome
    # Every process must know whose reply was accepted.
    whole = NamedSharding(mesh, PartitionSpec())
    accepted = lax.with_sharding_constraint(outcome.accepted, whole)
    return outcome._replace(accepted=accepted)


_compiled_round = jax.jit(
    _spread_round,
    static_argnames=("mesh", "way", "model", "central_loss", "around"),
)
_compiled_preparation = jax.jit(prepare_cohort, static_argnames="model")


def compiled_programs() -> int:
    """How many rounds have been compiled in this process, in any shapes and on any devices."""
    return int(_compiled_round._cache_size())  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=8)
def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), (_AXIS,))


@dataclasses.dataclass(frozen=True)
class Engine:
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

    def here(self, places: np.ndarray) -> slice:
        """The part of a cohort's places that is on this process's devices."""
        each = len(places) // processes.count()
        return slice(processes.rank() * each, (processes.rank() + 1) * each)

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
        split = NamedSharding(self.mesh, PartitionSpec(_AXIS))
        if processes.count() == 1:
            return jax.device_put(arrays, split)
        return tree.map(
            lambda a: jax.make_array_from_process_local_data(split, np.asarray(a)), arrays
        )

    def prepare(self, t: int, **given: Any) -> Tree:
        """Clients' work before their first round."""
        return _compiled_preparation(**given)

    def round(
        self,
        t: int,
        leaf: np.ndarray | None = None,
        way: Way = _PLAINLY,
        **given: Any,
    ) -> Outcome:
        """One round."""
        slots = len(given["work"].client)
        leaf = np.zeros(slots, np.int32) if leaf is None else leaf
        if self.mesh.size == 1:
            return _compiled_round(mesh=self.mesh, way=way, leaf=leaf, **given)
        moved = (given["rows"], given["work"], leaf)
        given["rows"], given["work"], leaf = self._apart(moved)
        if way.apart:
            given["examples"] = self._apart(given["examples"])
        given["x"], given["server"] = self.everywhere((given["x"], given["server"]))
        out = _compiled_round(mesh=self.mesh, way=way, leaf=leaf, **given)
        # One copy of what all devices have: evaluating it on each would be the same work twice.
        x, server = tree.map(lambda a: a.addressable_data(0), (out.x, out.server))
        return out._replace(x=x, server=server)

    def layout(self, clients: int, steady: bool, uniform: bool, tiny: bool) -> Layout:
        """Places in the program: powers of two where cohorts vary, so that few are compiled.

        `tiny` says that a step is mostly overhead, which clients with the same work can share.
        """
        slots = clients if steady else 1 << max(0, clients - 1).bit_length()
        devices = self.mesh.size
        if self.width is None and jax.default_backend() == "cpu":
            # Not cut to what a device has: the bits of a run should not tell how many there were.
            width = min(_WIDTH_OF_TINY_STEPS, slots) if tiny and uniform else 1
        else:
            width = min(self.width or _WIDTH_ON_ACCELERATORS, -(-slots // devices))
        return Layout(slots, uniform, devices, max(LEAVES, devices), width)


@dataclasses.dataclass(frozen=True)
class DebugEngine:
    """The same round without compilation, one client after another.

    Stops at the first exception and at the first number that is not finite, with a `DebugError`
    that says the round, client, step and batch (rows of the data; -1 is padding).
    """

    local_devices = 1

    def here(self, places: np.ndarray) -> slice:
        """There is one process."""
        return slice(None)

    def everywhere(self, arrays: Tree) -> Tree:
        """There is one device."""
        return jax.device_put(arrays)

    def prepare(self, t: int, **given: Any) -> Tree:
        """Clients' work before their first round."""
        with jax.disable_jit(), debugging(round=t):
            return prepare_cohort(**given)

    def round(
        self,
        t: int,
        leaf: np.ndarray | None = None,
        way: Way = _PLAINLY,
        **given: Any,
    ) -> Outcome:
        """One round."""
        with jax.disable_jit(), debugging(round=t):
            return federated_round(**given)

    def layout(self, clients: int, steady: bool, uniform: bool, tiny: bool) -> Layout:
        """No empty places."""
        return Layout(clients, uniform=True)
