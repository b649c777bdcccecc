"""Client states on their way between two processes: as many as move, and nothing else."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import lax, tree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from holdfast import processes
from holdfast.trees import Tree

_AXIS = "pair"


def swapped(partner: int, mine: Tree, outgoing: int, incoming: int) -> Tree:
    """The partner's states for this process's. Both call it, and nobody else; both know the numbers.

    Args:
        partner: the other process.
        mine: states along a leading axis, as many as are sent.
        outgoing: how many this process sends.
        incoming: how many the partner sends.
    """
    pair = sorted((processes.rank(), partner))
    first = pair[0] == processes.rank()
    there, back = (outgoing, incoming) if first else (incoming, outgoing)
    like = tree.map(np.asarray, mine)
    found: list[Tree] = []
    for begin, size, (gives, takes) in _parts(there, back):
        sends, receives = (gives, takes) if first else (takes, gives)
        part = tree.map(
            lambda a, b=begin, s=size, has=sends: (
                a[b : b + s] if has else np.zeros((s, *a.shape[1:]), a.dtype)
            ),
            like,
        )
        program, split = _program(pair[0], pair[1], gives, takes)
        given = tree.map(lambda a, s=split: jax.make_array_from_process_local_data(s, a), part)
        got = tree.map(lambda a: np.asarray(a.addressable_data(0)), program(given))
        if receives:
            found.append(got)
    if not found:
        return tree.map(lambda a: a[:0], like)
    return tree.map(lambda *parts: np.concatenate(parts), *found)


def _parts(there: int, back: int) -> Iterator[tuple[int, int, tuple[bool, bool]]]:
    """Where each part begins, how many states it has, and whether the first and the second process send.

    Parts are powers of two, so that few programs are compiled and nothing is sent that nobody needs.
    """
    both = min(there, back)
    for begin, end, who in (
        (0, both, (True, True)),
        (both, there, (True, False)),
        (both, back, (False, True)),
    ):
        while begin < end:
            size = 1 << ((end - begin).bit_length() - 1)
            yield begin, size, who
            begin += size


@functools.lru_cache(maxsize=256)
def _program(first: int, second: int, gives: bool, takes: bool) -> tuple[Any, NamedSharding]:
    """One function for all rounds, so that it is compiled once for a shape."""
    homes = {d.process_index: d for d in reversed(jax.devices())}
    mesh = Mesh(np.array([homes[first], homes[second]]), (_AXIS,))
    ways = [way for way, used in (((0, 1), gives), ((1, 0), takes)) if used]
    split: Any = PartitionSpec(_AXIS)

    def exchange(states: Tree) -> Tree:
        return tree.map(lambda a: lax.ppermute(a, _AXIS, ways), states)

    spread = jax.shard_map(exchange, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    return jax.jit(spread), NamedSharding(mesh, split)
