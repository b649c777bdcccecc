"""Examples on their way to the devices: all at once, or each cohort's a round ahead."""

import dataclasses
import functools
from typing import Any, Protocol

import jax
import numpy as np
from jax import tree

from holdfast.core.round_types import Slot
from holdfast.data.clients import Clients, check_finite
from holdfast.data.read_only import aligned, closed, copied, usable
from holdfast.engine.batches import BatchPlanner
from holdfast.trees import Tree

# Rows; a multiple of as many bytes is one of XLA's alignment, whatever a row has.
_PIECE = 64


def settled(examples: Tree) -> Tree:
    """Examples that stay as they are, whatever becomes of the arrays that were given.

    On a CPU JAX uses an array where it is, on all devices, if it begins at a multiple of 64 bytes; others it
    copies for each. So these do, and nobody can write to them: the given ones if that is so, else one
    copy. An accelerator has its own.
    """
    if jax.default_backend() != "cpu":
        return examples

    def one(a: Any) -> Any:
        if isinstance(a, jax.Array):
            return a
        a = np.asarray(a)
        dtype = jax.dtypes.canonicalize_dtype(a.dtype)
        return a if usable(a) and a.dtype == dtype else copied(a, dtype)

    return tree.map(one, examples)


class Feed(Protocol):
    """Slots and the examples they name."""

    @property
    def apart(self) -> bool:
        """Whether every device has examples of its own."""

    def __call__(
        self, planner: BatchPlanner, t: int, clients: np.ndarray, devices: int
    ) -> tuple[Slot, Tree]:
        """Of the clients in these slots (-1: none), which lie in equal parts on so many devices."""


@dataclasses.dataclass(frozen=True)
class Resident:
    """All examples are on every device."""

    examples: Tree
    apart: bool = False

    def __call__(
        self, planner: BatchPlanner, t: int, clients: np.ndarray, devices: int
    ) -> tuple[Slot, Tree]:
        return planner.slots(t, clients), self.examples


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """Examples are where the clients are, who know which of them they take: slots name none."""

    apart: bool = False

    def __call__(
        self, planner: BatchPlanner, t: int, clients: np.ndarray, devices: int
    ) -> tuple[Slot, Tree]:
        return planner.slots_without_rows(clients), ()


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Only a cohort's examples are on the devices, each client's where it is at work.

    The clients' arrays may be memory-mapped files: only the rows of a cohort are read.
    """

    clients: Clients
    apart: bool = True

    @functools.cached_property
    def _largest_first(self) -> np.ndarray:
        return np.cumsum(np.sort(self.clients.sizes)[::-1])

    def capacity(self, slots: int) -> int:
        """Examples that so many clients have at most, whoever they are: shapes must not vary."""
        return int(self._largest_first[min(slots, len(self.clients)) - 1])

    def __call__(
        self, planner: BatchPlanner, t: int, clients: np.ndarray, devices: int
    ) -> tuple[Slot, Tree]:
        each = len(clients) // devices
        # In whole pieces, so that every device's part begins where XLA can use it.
        room = -(-self.capacity(each) // _PIECE) * _PIECE
        sizes = np.where(clients < 0, 0, planner.sizes[clients]).reshape(devices, each)
        begin = np.cumsum(sizes, axis=1) - sizes
        taken = [
            np.concatenate(
                [self.clients.rows(i) for i in part if i >= 0] or [np.zeros(0, np.int64)]
            )
            for part in clients.reshape(devices, each)
        ]

        def gather(a: Any) -> np.ndarray:
            a = np.asarray(a)  # it may be one of JAX's
            out = aligned((devices * room, *a.shape[1:]), a.dtype)
            for here, rows in zip(np.split(out, devices), taken, strict=True):
                np.take(a, rows, axis=0, out=here[: len(rows)], mode="clip")
                here[len(rows) :] = 0
            return closed(out)

        examples = tree.map(gather, self.clients.examples)
        check_finite(examples, f"data of round {t + 1}")
        return planner.slots(t, clients, begin.reshape(-1)), examples
