"""Client states in host memory."""

import math
import mmap
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.client_states.store import Index
from holdfast.trees import Tree, nbytes

_BLOCK_BYTES = 1 << 24
_LARGE = 1 << 20  # bytes of a state; above, each has a block of its own
_SMALL = 4096  # bytes; below, copying twice is cheaper than a loop in Python
Block = list[np.ndarray]  # an array for each leaf


class MemoryStore:
    """States in blocks that are never moved, so that growing copies nothing.

    A large state has a block of its own, which `keep` hands out instead of a copy; the next write takes
    another one.
    """

    def __init__(self, first: Tree, clients: int) -> None:
        self.state_bytes = nbytes(first)
        self._leaves, self._structure = tree.flatten(first)
        self._large = self.state_bytes > _LARGE
        self._per_block = 1 if self._large else max(1, _BLOCK_BYTES // max(1, self.state_bytes))
        self._blocks: list[Block] = []
        self._spare: list[Block] = []  # memory that is in use already is written to much faster
        self._index = Index(clients)

    def __len__(self) -> int:
        return len(self._index)

    def ids(self) -> np.ndarray:
        return self._index.ids()

    def has(self, ids: np.ndarray) -> np.ndarray:
        return self._index.of(ids) >= 0

    def read(self, ids: np.ndarray) -> Tree:
        indices = self._index.of(ids)
        leaves = [np.empty((len(ids), *a.shape), a.dtype) for a in self._leaves]
        for block, here in self._by_block(indices):
            for k, (first, out) in enumerate(zip(self._leaves, leaves, strict=True)):
                if block < 0:
                    out[here] = first
                else:
                    _copy(out, here, self._blocks[block][k], indices[here] % self._per_block)
        return tree.unflatten(self._structure, leaves)

    def look(self, client: int) -> Tree:
        """One client's state where it lies, until the next write."""
        index = int(self._index.of(np.array([client]))[0])
        if index < 0:
            return tree.unflatten(self._structure, self._leaves)
        block, place = divmod(index, self._per_block)
        return tree.unflatten(self._structure, [a[place] for a in self._blocks[block]])

    def write(self, ids: np.ndarray, states: Tree, positions: np.ndarray) -> None:
        indices = self._index.make(ids)
        while self._index.taken > len(self._blocks) * self._per_block:
            self._blocks.append(self._block())
        for k, leaf in enumerate(tree.leaves(states)):
            for begin, part in _parts(leaf):
                inside = (positions >= begin) & (positions < begin + len(part))
                for block, here in self._by_block(indices[inside]):
                    mine, source = indices[inside][here], positions[inside][here] - begin
                    _copy(self._blocks[block][k], mine % self._per_block, part, source)

    def drop(self, ids: np.ndarray) -> None:
        self._index.drop(ids)

    def keep(self, ids: np.ndarray) -> "Kept | None":
        """The states of these clients, which are about to be written, as they are; None if small."""
        if not self._large:
            return None
        indices = self._index.of(ids).tolist()
        kept = Kept([self._blocks[i] for i in indices], self._structure, self._spare)
        for i in indices:
            self._blocks[i] = self._block()
        return kept

    def _block(self) -> Block:
        if self._spare:
            return self._spare.pop()
        return [_mapped((self._per_block, *a.shape), a.dtype, self._large) for a in self._leaves]

    def _by_block(self, indices: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        blocks = indices // self._per_block  # -1 for who has no state
        for block in np.unique(blocks).tolist():
            yield block, np.flatnonzero(blocks == block)


class Kept:
    """Large states that the store has no more; their memory is the store's again when nobody has them."""

    def __init__(self, blocks: list[Block], structure: Any, spare: list[Block]) -> None:
        self._blocks, self._structure, self._spare = blocks, structure, spare

    def read(self, positions: np.ndarray) -> Tree:
        """Copies of those at these positions, along a leading axis."""
        some = [self._blocks[i] for i in positions.tolist()]
        leaves = [np.concatenate(parts) for parts in zip(*some, strict=True)]
        return tree.unflatten(self._structure, leaves)

    def __del__(self) -> None:
        self._spare.extend(self._blocks)


def _mapped(shape: tuple[int, ...], dtype: np.dtype[Any], at_once: bool = False) -> np.ndarray:
    """Memory of the operating system's, which has it back when states move to disk: malloc would keep it."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    # All pages together: one by one, as they are written to, costs half as much again.
    populated = getattr(mmap, "MAP_POPULATE", 0) if at_once else 0
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | populated)
    return np.frombuffer(block, dtype).reshape(shape)


def _parts(leaf: Any) -> list[tuple[int, np.ndarray]]:
    """What is on each device, and where it begins; putting it together would be one more copy."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_replicated:
        return [(0, np.asarray(leaf))]
    return [(s.index[0].start or 0, np.asarray(s.data)) for s in leaf.addressable_shards]


def _copy(to: np.ndarray, there: np.ndarray, source: np.ndarray, here: np.ndarray) -> None:
    """to[there] = source[here], without a copy in between where states are large."""
    if source[:1].nbytes < _SMALL:
        to[there] = source[here]
        return
    for i, j in zip(there.tolist(), here.tolist(), strict=True):
        to[i] = source[j]
