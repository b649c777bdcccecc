"""A cohort's large states on the devices, in arrays that every round uses again."""

import functools

import jax
import numpy as np
from jax import lax, tree
from jax.sharding import NamedSharding

from holdfast import processes
from holdfast.client_states.states import ClientStates
from holdfast.core.rule import Rule
from holdfast.engine.compiled import CompiledEngine
from holdfast.engine.protocol import Engine
from holdfast.trees import Tree, nbytes

# Bytes of one state. Above, what counts is how often states are copied, and to memory that is in use
# already: the operating system clears every page of new memory, which takes longer than copying to it.
# Below, it is the number of calls.
_LARGE = 1 << 20


def in_place(engine: Engine, rule: Rule, first: Tree) -> bool:
    """Whether a round works on the states in one array, rather than from one array to another."""
    if jax.default_backend() != "cpu" or processes.count() > 1:
        return False
    return (
        isinstance(engine, CompiledEngine) and not rule.traits.prepares and nbytes(first) > _LARGE
    )


class Stacks:
    """States of a cohort along a leading axis, each device's slots on that device.

    A round takes them over and leaves the new states in their place; those are handed back.
    """

    def __init__(self, engine: Engine) -> None:
        assert isinstance(engine, CompiledEngine)
        self._split: NamedSharding = engine.split
        # Of one device nothing is said: arrays that are bound to it would be other inputs than the model
        # before the first round, and the round's program be compiled again for the second.
        several = engine.mesh.size > 1
        self._devices = list(engine.mesh.devices.flat) if several else [None]
        # For every device, its part of every leaf.
        self._spare: list[list[jax.Array]] | None = None

    def filled(self, states: ClientStates, places: np.ndarray) -> Tree:
        """The states of these clients; anything in empty slots (-1)."""
        leaves, structure = tree.flatten(states.first)
        shapes = [(len(places), *a.shape) for a in leaves]
        each, stacks = len(places) // len(self._devices), self._spare
        self._spare = None
        if stacks is None or len(stacks[0][0]) != each:
            stacks = [
                [jax.device_put(np.zeros((each, *a.shape), a.dtype), device) for a in leaves]
                for device in self._devices
            ]
        for d, (device, here) in enumerate(
            zip(self._devices, np.split(places, len(self._devices)), strict=True)
        ):
            for k in np.flatnonzero(here >= 0).tolist():
                row = jax.device_put(tree.leaves(states.look(int(here[k]))), device)
                stacks[d] = _put(stacks[d], row, k)
        if len(self._devices) == 1:
            return tree.unflatten(structure, stacks[0])
        whole = [
            jax.make_array_from_single_device_arrays(shape, self._split, list(parts))
            for shape, parts in zip(shapes, zip(*stacks, strict=True), strict=True)
        ]
        return tree.unflatten(structure, whole)

    def hand_back(self, used: Tree) -> None:
        """The states after a round, once they are stored."""
        if len(self._devices) == 1:
            self._spare = [tree.leaves(used)]
            return
        parts = [{s.device: s.data for s in a.addressable_shards} for a in tree.leaves(used)]
        self._spare = [[found[device] for found in parts] for device in self._devices]


@functools.partial(jax.jit, donate_argnums=0)
def _put(stack: Tree, row: Tree, k: int) -> Tree:
    return tree.map(lambda a, b: lax.dynamic_update_index_in_dim(a, b, k, 0), stack, row)
