"""The host's part of a round: which rows of the data each client of the cohort sees, in which order."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.core.keys import HostStreams, Purpose
from holdfast.core.local import Local
from holdfast.core.round_types import Slot
from holdfast.data.clients import Clients


def _batches_per_pass(local: Local, sizes: np.ndarray, batch: np.ndarray) -> np.ndarray:
    full, rest = np.divmod(sizes, batch)
    short = rest > 0
    # A client with less than one batch keeps what it has.
    if local.last_batch == "drop":
        short = short & (full == 0)
    return full + short


@dataclasses.dataclass(frozen=True)
class BatchPlanner:
    """Lays out the work of a cohort in arrays whose shapes do not depend on the cohort."""

    clients: Clients
    local: Local | tuple[Local, ...]  # one for all clients, or one for each population
    seed: int
    purpose: Purpose = Purpose.ORDER

    @functools.cached_property
    def _streams(self) -> HostStreams:
        return HostStreams(self.purpose, self.seed)

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Examples of each client."""
        return self.clients.sizes

    @functools.cached_property
    def _locals(self) -> list[tuple[Local, Any]]:
        """Each local training there is, and whose it is."""
        if isinstance(self.local, Local):
            return [(self.local, slice(None))]
        populations = self.clients.populations
        assert populations is not None
        return [(local, populations.of == p) for p, local in enumerate(self.local)]

    def _per_client(self, of: Callable[[Local, np.ndarray, np.ndarray], Any]) -> np.ndarray:
        """A whole number for each client, from its local training, its size and its batch size."""
        found = np.zeros(len(self.sizes), np.int64)
        for local, mine in self._locals:
            sizes = self.sizes[mine]
            # Never more than the largest client has.
            largest = int(sizes.max(initial=0))
            batch = max(1, min(local.batch_size or largest, largest))
            found[mine] = of(local, sizes, np.full(len(sizes), batch))
        return found

    @functools.cached_property
    def batch_sizes(self) -> np.ndarray:
        """Examples in a step of each client."""
        return self._per_client(lambda local, sizes, batch: batch)

    @functools.cached_property
    def batch_size(self) -> int:
        """Examples in the largest step; never more than the largest client has."""
        return int(self.batch_sizes.max())

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """Steps each client takes in a round; 0 only for clients without data."""

        def of(local: Local, sizes: np.ndarray, batch: np.ndarray) -> np.ndarray:
            if local.steps is not None:
                return np.where(sizes > 0, local.steps, 0)
            return _batches_per_pass(local, sizes, batch) * (local.epochs or 1)

        return self._per_client(of)

    @functools.cached_property
    def _per_pass(self) -> np.ndarray:
        return self._per_client(_batches_per_pass)

    @functools.cached_property
    def passes(self) -> np.ndarray:
        """How often a round may come to one example of each client: passes over its data, begun ones too."""
        return -(-self.steps // np.maximum(self._per_pass, 1))

    @functools.cached_property
    def _shuffled(self) -> np.ndarray:
        return self._per_client(lambda local, sizes, batch: local.shuffle).astype(bool)

    @functools.cached_property
    def processed(self) -> np.ndarray:
        """Examples each client goes through in a round, every pass counted."""
        per_pass = np.maximum(self._per_pass, 1)
        of_pass = np.minimum(self.sizes, per_pass * self.batch_sizes)
        passes, rest = np.divmod(self.steps, per_pass)
        return passes * of_pass + np.minimum(rest * self.batch_sizes, of_pass)

    @functools.cached_property
    def mean_processed(self) -> float:
        """Mean number of examples that clients with data go through in a round."""
        return float(self.processed[self.able].mean())

    @functools.cached_property
    def mean_size(self) -> float:
        """Mean number of examples of the clients that have any."""
        return float(self.sizes[self.able].mean())

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """n_i / mean(n) of each client, 0 for clients without data."""
        return self.sizes / self.mean_size

    @functools.cached_property
    def able(self) -> np.ndarray:
        """Clients that can take part: those with data."""
        return np.flatnonzero(self.sizes > 0)

    @functools.cached_property
    def largest(self) -> tuple[int, int]:
        """The most examples and the most steps of a client."""
        return int(self.sizes.max()), int(self.steps.max())

    @functools.cached_property
    def uniform(self) -> bool:
        """Whether all clients have the same work."""
        return bool(self.steps[self.able].min() == self.largest[1])

    def slots(self, t: int, clients: np.ndarray, begin: np.ndarray | None = None) -> Slot:
        """The slots of round `t` for these clients; -1 is an empty one.

        Batches name rows of the whole data; or, if it is said where the rows of each slot begin,
        rows of the examples that were gathered for this cohort. Weights are the planner's of rounds.
        """
        batch, (most_rows, most_steps) = self.batch_size, self.largest
        slots, taken = len(clients), clients >= 0
        sizes, steps = (np.where(taken, a[clients], 0) for a in (self.sizes, self.steps))
        rows = np.full((slots, most_steps, batch), -1, np.int32)
        all_rows = np.full((slots, -(-most_rows // batch) * batch), -1, np.int32)
        for slot in np.flatnonzero(taken):
            client, size, count = int(clients[slot]), int(sizes[slot]), int(steps[slot])
            first = None if begin is None else int(begin[slot])
            mine = self.clients.rows(client) if first is None else np.arange(first, first + size)
            all_rows[slot, :size] = mine
            own = self._order(t, client, mine, count)
            rows[slot, :count, : own.shape[1]] = own
        pages = all_rows.reshape(slots, -1, batch)
        return self.slots_without_rows(clients)._replace(batches=rows, pages=pages)

    def slots_without_rows(self, clients: np.ndarray) -> Slot:
        """The same where clients know themselves which of their rows they take."""
        taken = clients >= 0
        sizes, steps = (np.where(taken, a[clients], 0) for a in (self.sizes, self.steps))
        none = np.zeros((len(clients), 0, self.batch_size), np.int32)
        return Slot(
            client=np.maximum(clients, 0).astype(np.int32),
            weight=sizes / self.mean_size,
            steps=steps.astype(np.int32),
            batches=none,
            pages=none,
            page_count=(-(-sizes // self.batch_size)).astype(np.int32),
            population=self._population(clients),
        )

    def _population(self, clients: np.ndarray) -> np.ndarray | None:
        populations = self.clients.populations
        if populations is None or len(populations) == 1:
            return None
        return populations.of[np.maximum(clients, 0)]

    def _order(self, t: int, client: int, mine: np.ndarray, steps: int) -> np.ndarray:
        """Batches of one client: passes over its rows, each in a fresh order, cut after `steps`."""
        batch, per_pass = int(self.batch_sizes[client]), int(self._per_pass[client])
        out = np.full((-(-steps // per_pass), per_pass * batch), -1, np.int32)
        taken = min(len(mine), per_pass * batch)
        # Within one batch there is no order.
        if not self._shuffled[client] or len(mine) <= batch:
            out[:, :taken] = mine[:taken]
        else:
            passes = np.empty((len(out), len(mine)), mine.dtype)
            passes[:] = mine
            self._streams.at(t, client).permuted(passes, axis=1, out=passes)
            out[:, :taken] = passes[:, :taken]
        return out.reshape(-1, batch)[:steps]
