"""A population: clients with examples of their own, any number each."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jax import tree

from holdfast.data.grouped import Grouped, OfPopulation, Populations
from holdfast.data.preprocessing import Preprocessing
from holdfast.errors import About, HoldfastError, brief, did_you_mean
from holdfast.trees import Tree, paths


class Examples(NamedTuple):
    """Inputs and labels, one row per example."""

    x: Any
    y: Any


def count(examples: Tree) -> int:
    """Number of examples; refuses arrays that disagree about it."""
    arrays = dict(zip(paths(examples), tree.leaves(examples), strict=True))
    single = [name for name, a in arrays.items() if isinstance(a, str) or np.ndim(a) == 0]
    if single:
        raise HoldfastError(
            f"data: {single[0] or 'it'} is {arrays[single[0]]!r} and no array; give arrays with a row "
            f"per example, such as hf.Examples(x, y).",
            about=("data",),
        )
    sizes = {name: len(a) for name, a in arrays.items()}
    if not sizes:
        raise HoldfastError(
            "data: no arrays were given; give at least one, with a row per example.",
            about=("data",),
        )
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {n} rows" for name, n in sizes.items())
        raise HoldfastError(
            f"data: {listed}; give every array one row per example.", about=("data",)
        )
    return next(iter(sizes.values()))


def check_finite(examples: Tree, what: str, about: About = ("data",)) -> None:
    """Refuse NaN and infinity, naming the first place."""
    for name, a in zip(paths(examples), tree.leaves(examples), strict=True):
        a = np.asarray(a)
        if np.issubdtype(a.dtype, np.inexact) and not _all_finite(a):
            row = int(np.argwhere(~np.isfinite(a))[0][0])
            kind = "NaN" if np.isnan(a).any() else "infinity"
            raise HoldfastError(
                f"{what}: {name} contains {kind}, first in row {row}; clean or impute the data first.",
                about=about,
            )


def _all_finite(a: np.ndarray) -> bool:
    # What is not finite makes the sum so too. That is the cheaper look, and takes no memory; a sum of
    # finite numbers may overflow, which the other tells.
    with np.errstate(all="ignore"):
        return bool(np.isfinite(a.sum()) or np.isfinite(a).all())


def concatenated(of: str, parts: Sequence[Tree]) -> Tree:
    """Examples one behind another; refuses fields and shapes that differ."""
    for part in parts:
        count(part)
    # Of each part how it is made up, and the shape of each of its fields.
    made = [(tree.structure(part), [np.shape(a)[1:] for a in tree.leaves(part)]) for part in parts]
    other = next((part for part, one in zip(parts, made, strict=True) if one != made[0]), None)
    if other is not None:
        raise HoldfastError(
            f"{of}: examples with {_fields(parts[0])} beside some with {_fields(other)}; give all the "
            f"same fields and shapes.",
            about=("data",),
        )
    return tree.map(lambda *a: np.concatenate([np.asarray(p) for p in a]), *parts)


def _fields(examples: Tree) -> str:
    shapes = zip(paths(examples), tree.leaves(examples), strict=True)
    return ", ".join(f"{name or 'values'} {np.shape(a)[1:]}" for name, a in shapes)


def _whole_numbers(given: Any, of: str, argument: str) -> np.ndarray:
    numbers = np.asarray(given)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise HoldfastError(
            f"{of}: {argument} are of type {numbers.dtype}; give whole numbers.", about=(argument,)
        )
    return numbers.astype(np.int64).reshape(-1)


@dataclasses.dataclass(frozen=True, eq=False)
class Clients:
    """Examples and whose they are. Client i owns rows `order[offsets[i]:offsets[i + 1]]`.

    Flat arrays, not objects: a million clients are two arrays of integers.
    """

    # Whether their examples are here; of those elsewhere, one row stands for all.
    here: ClassVar[bool] = True
    examples: Tree
    order: np.ndarray
    offsets: np.ndarray
    # Whose clients they are, if `join` put several populations together.
    populations: Populations | None = None
    # What people call them, one name per client, where the data says so; no result depends on it.
    names: tuple[str, ...] | None = None
    # How their examples came of a table: part of what makes a run this run, since new rows go that way.
    preprocessing: Preprocessing | None = None

    def __post_init__(self) -> None:
        n = count(self.examples)
        if len(self) == 0:
            raise HoldfastError(
                "Clients: the population is empty; give at least one client.", about=("partition",)
            )
        if isinstance(self.examples, Grouped) and self.populations is None:
            raise HoldfastError(
                "Clients: the examples are of several populations but nothing says which client is of which; "
                "change the populations before hf.join puts them together.",
                about=("clients",),
            )
        if self.names is not None and len(set(self.names)) != len(self):
            raise HoldfastError(
                f"Clients: {len(set(self.names))} different names for {len(self)} clients; give each one of "
                f"its own.",
                about=("names",),
            )
        down = self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any()
        if down or self.offsets[-1] != len(self.order):
            raise HoldfastError(
                f"Clients: offsets must rise from 0 to the {len(self.order)} rows of order; build it by "
                f"hf.Clients.from_rows.",
                about=("partition",),
            )
        if len(self.order) and not (self.order.min() >= 0 and self.order.max() < n):
            raise HoldfastError(
                f"Clients: rows must lie in 0..{n - 1}; check the partition.", about=("partition",)
            )

    @property
    def contents(self) -> tuple[Tree, np.ndarray, np.ndarray]:
        """The arrays that make this population this population, for a checksum."""
        return self.examples, self.order, self.offsets

    @classmethod
    def from_rows(cls, examples: Tree, rows: Sequence[Any]) -> "Clients":
        """From one array of row numbers per client."""
        if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
            raise HoldfastError(
                f"Clients.from_rows: rows={brief(rows)}; give one list of row numbers for each client, such "
                f"as [[0, 1], [2]].",
                about=("rows",),
            )
        parts = [_whole_numbers(r, "Clients.from_rows", "rows") for r in rows]
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in parts], dtype=np.int64)])
        order = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return cls(examples, order, offsets)

    @classmethod
    def from_datasets(cls, datasets: Sequence[Tree]) -> "Clients":
        """From one data set per client."""
        listed = isinstance(datasets, Sequence) and not hasattr(datasets, "_fields")
        if not listed or isinstance(datasets, str):
            raise HoldfastError(
                f"Clients: datasets is a {type(datasets).__name__}; give a list with one data set for each "
                f"client, such as [hf.Examples(x, y), ...].",
                about=("partition",),
            )
        if not datasets:
            raise HoldfastError(
                "Clients: the population is empty; give at least one client.", about=("partition",)
            )
        examples = concatenated("Clients.from_datasets", datasets)
        offsets = np.concatenate([[0], np.cumsum([count(d) for d in datasets], dtype=np.int64)])
        return cls(examples, np.arange(offsets[-1]), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Tree:
        """One client's examples."""
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} of {len(self)}")

        def own(examples: Tree) -> Tree:
            return tree.map(lambda a: np.asarray(a)[self.rows(client)], examples)

        if self.populations is None:
            return own(self.examples)
        population = int(self.populations.of[client])
        return OfPopulation(own(self.examples.of(population)), population)

    def __iter__(self) -> Iterator[Tree]:
        return (self[i] for i in range(len(self)))

    @property
    def sizes(self) -> np.ndarray:
        """Number of examples of each client."""
        return np.diff(self.offsets)

    def name(self, client: int) -> str:
        """What people call a client: its name where the data has one, else its number."""
        return str(client) if self.names is None else self.names[client]

    def number(self, client: int | str) -> int:
        """The number of a client, which may be given by its name; refuses one that is not there.

        Example:
            >>> import holdfast as hf
            >>> x, y = [[0.0], [1.0], [2.0]], [0, 1, 1]
            >>> data = hf.data.from_arrays(x, y, client=["basel", "bern", "bern"], test_share=0.0)
            >>> clients, _ = data.natural()
            >>> clients.number("bern"), clients.name(0)
            (1, 'basel')
        """
        if isinstance(client, str):
            names = self.names if self.names is not None else [str(i) for i in range(len(self))]
            if client not in names:
                raise HoldfastError(
                    f"no client is called `{client}`; {did_you_mean(client, names)}",
                    about=("client",),
                )
            return names.index(client)
        whole = isinstance(client, int | np.integer) and not isinstance(client, bool)
        if not whole or not 0 <= client < len(self):
            raise HoldfastError(
                f"client={client!r}; give a number in 0..{len(self) - 1}"
                f"{', or a name' if self.names is not None else ''}.",
                about=("client",),
            )
        return int(client)

    def rows(self, client: int) -> np.ndarray:
        """Rows of `examples` that one client owns."""
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def subset(self, ids: Any) -> "Clients":
        """Some of the clients as a population of their own; the examples are shared, not copied.

        Args:
            ids: their numbers, in any order; or one truth value per client.

        Example:
            >>> import holdfast as hf
            >>> train, test = hf.data.digits()
            >>> clients = hf.data.partition.by(train, train.y)
            >>> [set(part.y.tolist()) for part in clients.subset([7, 3])]
            [{7}, {3}]
            >>> len(clients.subset(clients.sizes > 140))
            8
        """
        chosen = self._numbers(ids)
        sizes = self.sizes[chosen]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], sizes)
        populations = self.populations
        if populations is not None:
            populations = dataclasses.replace(populations, of=populations.of[chosen])
        names = None if self.names is None else tuple(self.names[i] for i in chosen)
        return dataclasses.replace(
            self, order=self.order[places], offsets=offsets, populations=populations, names=names
        )

    def _numbers(self, ids: Any) -> np.ndarray:
        listed = hasattr(ids, "__array__") or not hasattr(ids, "__iter__")
        given = np.asarray(ids if listed else list(ids))
        if given.dtype == bool and given.shape == (len(self),):
            return np.flatnonzero(given)
        truth = given.dtype == bool
        numbers = (
            given.reshape(-1).astype(np.int64)
            if truth
            else _whole_numbers(given, "Clients.subset", "ids")
        )
        wrong = numbers[(numbers < 0) | (numbers >= len(self))]
        if given.dtype == bool or len(wrong):
            what = f"client {wrong[0]}" if len(wrong) else f"{given.size} truth values"
            raise HoldfastError(
                f"Clients.subset: {what} of {len(self)} clients; give numbers in "
                f"0..{len(self) - 1}, or one truth value per client.",
                about=("ids",),
            )
        return numbers

    def pooled(self) -> "Clients":
        """Everybody's examples as one client: what centralised training sees."""
        populations = self.populations
        if populations is not None and len(populations) > 1:
            raise HoldfastError(
                "Clients.pooled: the clients are of several populations, each with a loss of its own; pool "
                "one population's, or train on all of them without pooling.",
                about=("clients",),
            )
        if populations is not None:
            populations = dataclasses.replace(populations, of=populations.of[:1])
        return dataclasses.replace(
            self, offsets=np.array([0, len(self.order)]), populations=populations, names=None
        )

    def __repr__(self) -> str:
        sizes = self.sizes
        return f"Clients({len(self)} with {sizes.min()} to {sizes.max()} examples, {sizes.sum()} in all)"

    def _repr_html_(self) -> str:
        from holdfast.data.look import clients_as_html  # which counts the labels of clients

        return clients_as_html(self)


def check_clients(of: str, clients: Any, joined: bool = True) -> None:
    """Refuse what is no population, and several populations where they cannot be."""
    if not isinstance(clients, Clients):
        raise HoldfastError(
            f"{of}: {type(clients).__name__} is no population; give hf.Clients, such as one of "
            f"hf.data.partition.",
            about=("clients",),
        )
    if clients.populations is not None and not joined:
        raise HoldfastError(
            f"{of}: clients are of several populations; take one of them, before hf.join.",
            about=("clients",),
        )
