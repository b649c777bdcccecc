"""What every client remembers between rounds. A value: writing gives new rows and leaves the old."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.round import Sides


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a population, of which those never touched are all the first row and cost nothing."""

    first: Sides
    clients: int
    touched: Mapping[int, Sides] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    def __repr__(self) -> str:
        return f"Rows({self.clients} clients, {len(self.touched)} of them touched)"

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: int) -> Sides:
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} of {self.clients}")
        return self.touched.get(client, self.first)

    def stack(self, places: np.ndarray) -> Sides:
        """The rows of a cohort along a leading axis; empty places (-1) hold the first row."""
        chosen = [self.first if i < 0 else self[int(i)] for i in places]
        return tree.map(lambda *leaves: np.stack(leaves), *chosen)

    def write(self, places: np.ndarray, stacked: Any, accepted: np.ndarray) -> "Rows":
        """With the rows of the accepted clients replaced."""
        host = jax.device_get(stacked)
        # A copy, not a view: a view would keep the rows of the whole cohort alive.
        new = {
            int(i): tree.map(lambda a, slot=slot: np.array(a[slot]), host)
            for slot, i in enumerate(places)
            if accepted[slot]
        }
        return dataclasses.replace(self, touched=MappingProxyType({**self.touched, **new}))
