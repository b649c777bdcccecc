"""Examples of several populations in one set of arrays: what `join` stores, and losses take apart."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import tree

from holdfast.core.struct import Struct, static
from holdfast.trees import Tree, flatten, paths


class Whose(NamedTuple):
    """Which columns are one population's, in the order of its examples' leaves."""

    columns: tuple[str, ...]
    structure: Any

    def column(self, field: str) -> str:
        """The column of a field, by its path in the population's own examples."""
        numbered = self.structure.unflatten(range(len(self.columns)))
        return dict(zip(paths(numbered), self.columns, strict=True))[field]


class Grouped(Struct):
    """Rows of several populations. A column that a population does not have is zero in its rows."""

    columns: dict[str, Any]
    group: Any  # the number of the population, per row
    whose: tuple[Whose, ...] = static()

    def of(self, population: int) -> Tree:
        """The same rows as examples of one population, which are meaningful only where they are its own."""
        names, structure = self.whose[population]
        return structure.unflatten([self.columns[name] for name in names])

    def __getattr__(self, name: str) -> Any:
        columns = vars(self).get("columns", {})
        if name not in columns:
            raise AttributeError(name)
        return columns[name]

    def _replace(self, **columns: Any) -> "Grouped":
        """With other columns, as of a named tuple."""
        return dataclasses.replace(self, columns=self.columns | columns)


class OfPopulation(Struct):
    """Examples that say whose they are: a test set, the server's data, or one client's."""

    examples: Any
    population: int = static()

    def __getattr__(self, name: str) -> Any:
        if "examples" not in vars(self):
            raise AttributeError(name)
        return getattr(self.examples, name)


@dataclasses.dataclass(frozen=True, eq=False)
class Populations:
    """Which client is of which population, and how much each population counts in the objective."""

    of: np.ndarray  # the number of each client's population
    weights: tuple[float, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def total(self) -> float:
        """The sum of the weights: of all clients' losses together in the objective."""
        return float(sum(self.weights))


def group(parts: Sequence[Tree], roles: Sequence[Mapping[str, Any]]) -> Grouped:
    """Examples of several populations, one after the other.

    Fields of the same name, shape and type share a column, if they have the same role: one that holds
    row numbers of a table must not share its column with one that holds labels.
    """
    kinds: dict[str, Any] = {}
    stored: dict[str, dict[int, np.ndarray]] = {}
    whose = []
    for p, (part, role) in enumerate(zip(parts, roles, strict=True)):
        leaves, structure = flatten(part)
        names = []
        for name, leaf in zip(paths(part), map(np.asarray, leaves), strict=True):
            kind = (name, leaf.shape[1:], leaf.dtype, role.get(name))
            alike = [column for column, known in kinds.items() if known == kind]
            column = alike[0] if alike else f"{name}_{p}" if name in kinds else name
            kinds[column] = kind
            stored.setdefault(column, {})[p] = leaf
            names.append(column)
        whose.append(Whose(tuple(names), structure))
    sizes = [len(tree.leaves(part)[0]) for part in parts]

    def whole(name: str) -> np.ndarray:
        _, shape, dtype, _ = kinds[name]
        own = stored[name]
        absent = (np.zeros((n, *shape), dtype) for n in sizes)
        return np.concatenate([own.get(p, zeros) for p, zeros in enumerate(absent)])

    group = np.repeat(np.arange(len(parts)), sizes).astype(np.int32)
    return Grouped({name: whole(name) for name in kinds}, group, tuple(whose))
