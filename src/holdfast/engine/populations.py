"""More than one federation: populations of clients, each with its own loss, cohort and local training."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from holdfast.cohorts import Cohort, Everyone
from holdfast.core.local import Local
from holdfast.data.clients import Clients, count
from holdfast.data.grouped import OfPopulation, Populations, group
from holdfast.data.preprocessing import Preprocessing
from holdfast.engine.joined_model import joined_model, table_roles
from holdfast.errors import HoldfastError, did_you_mean, explain_constructor
from holdfast.models.model import Model
from holdfast.trees import Tree


@explain_constructor
@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """Clients that share a loss and take part by a rule of their own.

    Args:
        clients: its clients; other populations may have examples of other fields and shapes.
        model: its loss and metrics; all populations train the same parameters.
        cohort: who of it takes part in a round; everyone unless given.
        weight: $w_p$, of its mean loss in the objective.
        name: what messages and measurements call it; its number unless given.
        local: how its clients train; give it for all populations, or for none and `simulate(local=...)`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> def wanting(optimum, clients):
        ...     data = hf.Examples(np.ones((clients, 1)), np.full(clients, optimum))
        ...     return hf.data.partition.in_order(data, clients)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> # One client of the second population comes at a time, and counts for three quarters.
        >>> few = hf.Population(wanting(1.0, 2), model)
        >>> many = hf.Population(wanting(2.0, 6), model, cohort=hf.cohorts.fixed(1), weight=3.0)
        >>> both = hf.join([few, many])
        >>> run = hf.simulate(hf.algorithms.fedavg(), **both, local=local, rounds=20)
        >>> [entry.clients for entry in run.ledger.entries[:3]]
        [(0, 1, 7), (0, 1, 6), (0, 1, 5)]
        >>> print(f"{run.params['weights'].item():.2f}")
        1.75
    """

    clients: Clients
    model: Model
    cohort: Cohort = dataclasses.field(default_factory=Everyone)
    weight: float = 1.0
    name: str | None = None
    local: Local | None = None

    def __post_init__(self) -> None:
        expected = (("clients", Clients), ("model", Model), ("local", Local | None))
        for name, kind in expected:
            if not isinstance(getattr(self, name), kind):
                wanted = getattr(kind, "__name__", "Local")
                raise HoldfastError(
                    f"Population: {name} is a {type(getattr(self, name)).__name__}; give a {wanted}.",
                    about=(name,),
                )
        if not (self.weight > 0 and np.isfinite(self.weight)):
            raise HoldfastError(
                f"Population: weight={self.weight}; give a number above 0.", about=("weight",)
            )


@dataclasses.dataclass(frozen=True)
class JoinedCohort:
    """Each population draws its own clients; they are numbered one population after another."""

    steady: ClassVar[bool] = False
    cohorts: tuple[Any, ...]
    starts: tuple[int, ...]  # number of the first client of each population, and of all

    @property
    def everyone(self) -> bool:
        """Whether all clients take part in every round."""
        return all(isinstance(cohort, Everyone) for cohort in self.cohorts)

    def _parts(self, able: np.ndarray) -> list[np.ndarray]:
        ends = zip(self.starts[:-1], self.starts[1:], strict=True)
        return [able[(able >= a) & (able < b)] - a for a, b in ends]

    def check(self, able: np.ndarray, population: int) -> None:
        if population != self.starts[-1]:
            raise HoldfastError(
                f"cohort: it is that of {self.starts[-1]} joined clients, and there are {population}; give "
                f"what hf.join returned, or a cohort of these clients.",
                about=("cohort",),
            )
        sizes = np.diff(self.starts)
        for cohort, part, size in zip(self.cohorts, self._parts(able), sizes, strict=True):
            cohort.check(part, int(size))

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        parts = zip(self.cohorts, self._parts(able), self.starts[:-1], strict=True)
        return np.concatenate([cohort.draw(t, part, rng) + start for cohort, part, start in parts])


@dataclasses.dataclass(frozen=True, eq=False)
class Joined:
    """Several populations as one: `simulate(algorithm, **joined, ...)` takes what it has."""

    model: Model
    clients: Clients
    cohort: JoinedCohort
    local: tuple[Local, ...] | None  # one per population, if they have their own

    def keys(self) -> Iterator[str]:
        """The arguments of `simulate` that it has."""
        return iter(("model", "clients", "cohort") + (("local",) if self.local else ()))

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def _asdict(self) -> Mapping[str, Any]:
        return dict(self)

    def number(self, population: str | int) -> int:
        """The number of a population, by its name."""
        names = self._populations.names
        if population in names:
            return names.index(str(population))
        if isinstance(population, int) and 0 <= population < len(names):
            return population
        hint = did_you_mean(str(population), names)
        raise HoldfastError(f"join: no population `{population}`; {hint}", about=("population",))

    @property
    def _populations(self) -> Populations:
        assert self.clients.populations is not None
        return self.clients.populations

    def of(self, population: str | int, examples: Tree) -> OfPopulation:
        """Examples that say whose loss and metrics they are for: a test set, or the server's data.

        Args:
            population: the population's name or number.
            examples: like its own.

        Example:
            >>> import holdfast as hf
            >>> train, test = hf.data.digits()
            >>> clients = hf.data.partition.iid(train, clients=4)
            >>> model = hf.models.softmax_regression(10)
            >>> both = hf.join([hf.Population(clients, model, name=name) for name in ("a", "b")])
            >>> tested = hf.evaluate.on(both.of("a", test), name="a")
            >>> local = hf.Local(0.1, steps=1)
            >>> run = hf.simulate(hf.algorithms.fedavg(), **both, local=local, rounds=1, evaluate=tested)
            >>> [name for name in run.history.columns if name.startswith("a_")]
            ['a_loss', 'a_accuracy']
        """
        count(examples)
        return OfPopulation(examples, self.number(population))

    def tests(self, tests: Sequence[Clients]) -> Clients:
        """Every client's own test examples, given those of each population, for `evaluate.personal`."""
        if len(tests) != len(self._populations):
            raise HoldfastError(
                f"join: {len(tests)} sets of test examples for {len(self._populations)} populations; "
                f"give one hf.Clients each.",
                about=("tests",),
            )
        starts = np.diff(self.cohort.starts)
        for name, part, size in zip(self._populations.names, tests, starts, strict=True):
            if len(part) != size:
                raise HoldfastError(
                    f"join: {len(part)} clients of {name} have test examples, and it has {size}; give every "
                    f"client its own, if only an empty one.",
                    about=("tests",),
                )
        return _joined_clients(tests, [{} for _ in tests], self._populations)


def join(populations: Sequence[Population]) -> Joined:
    r"""Train one model on several federations.

    $$ \min_x \sum_p w_p F_p(x), \qquad F_p = \frac{1}{N_p} \sum_{i \in p} f_i^p $$

    Deltas are averaged within each population and then over populations by weight; control variates
    and other things heard count each client by $w_p / N_p$, so that corrections stay exact whatever
    the sizes and participation rates. A population of which nobody takes part in a round is left out of
    that round's average.

    Without a loss at the server only the ratios of the weights matter. With one, the objective is
    $w_f \sum_p w_p F_p + w_c f_c$: clients' losses are multiplied by $\sum_p w_p$ in methods in which
    the server learns, so that weights of populations and of the server are on one scale. Two halves
    of a population with weight 0.5 each, or one population with weight 1, are the same run.

    The parameters begin as the first population's model begins them. A test set and the server's data
    say whose they are by `joined.of(name, examples)`; they need not where all populations have the same
    model. Fields that only some populations have are stored for all clients, with zeros.

    Args:
        populations: one or several of `hf.Population`.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> phones, speakers = (hf.data.partition.iid(train, clients=n, seed=n) for n in (4, 6))
        >>> model = hf.models.softmax_regression(10)
        >>> both = hf.join(
        ...     [
        ...         hf.Population(phones, model, name="phones", local=hf.Local(0.1, epochs=2)),
        ...         hf.Population(
        ...             speakers, model, weight=2.0, name="speakers", local=hf.Local(0.05, steps=1)
        ...         ),
        ...     ]
        ... )
        >>> run = hf.simulate(hf.algorithms.scaffold(), **both, rounds=1)
        >>> len(run.client_states)
        10
    """
    if not populations:
        raise HoldfastError(
            "join: no populations are given; give at least one.", about=("populations",)
        )
    names = _names(populations)
    models = tuple(p.model for p in populations)
    foreign = [m.name for m in models if m.engine is not None]
    if foreign:
        raise HoldfastError(
            f"join: another framework computes {foreign[0]}, and of joined populations one program has all "
            f"models; use models of JAX's.",
            about=("model",),
        )
    sizes = [len(p.clients) for p in populations]
    described = Populations(
        np.repeat(np.arange(len(sizes)), sizes).astype(np.int32),
        tuple(float(p.weight) for p in populations),
        names,
    )
    parts = [p.clients for p in populations]
    clients = _joined_clients(parts, [table_roles(m) for m in models], described)
    return Joined(
        joined_model(models, names, clients.examples.whose),
        clients,
        JoinedCohort(
            tuple(p.cohort for p in populations), (0, *(int(n) for n in np.cumsum(sizes)))
        ),
        _locals(populations, names),
    )


def _names(populations: Sequence[Population]) -> tuple[str, ...]:
    names = tuple(str(i) if p.name is None else p.name for i, p in enumerate(populations))
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise HoldfastError(
            f"join: two populations are called `{twice[0]}`; give one another name.",
            about=("populations",),
        )
    return names


def _locals(populations: Sequence[Population], names: Sequence[str]) -> tuple[Local, ...] | None:
    given = [p.local for p in populations]
    found = tuple(local for local in given if local is not None)
    if found and len(found) < len(given):
        without = names[given.index(None)]
        raise HoldfastError(
            f"join: some populations have a local of their own and {without} has none; give all of them one, "
            f"or none and simulate(local=...).",
            about=("populations",),
        )
    return found or None


def _joined_clients(
    parts: Sequence[Clients], roles: Sequence[Any], populations: Populations
) -> Clients:
    for name, part in zip(populations.names, parts, strict=True):
        if part.populations is not None:
            raise HoldfastError(
                f"join: the clients of {name} are several populations already; give all of them to one "
                f"hf.join.",
                about=("populations",),
            )
    rows = [count(c.examples) for c in parts]
    shifts = np.concatenate([[0], np.cumsum(rows)[:-1]])
    order = np.concatenate([c.order + s for c, s in zip(parts, shifts, strict=True)])
    lengths = np.concatenate([c.sizes for c in parts])
    examples = group([c.examples for c in parts], roles)
    return Clients(
        examples,
        order,
        np.concatenate([[0], np.cumsum(lengths)]),
        populations,
        _client_names(parts, populations.names),
        _preprocessing(parts, populations.names),
    )


def _client_names(parts: Sequence[Clients], names: Sequence[str]) -> tuple[str, ...] | None:
    """What clients are called, after their population; none where no population names its own."""
    if all(part.names is None for part in parts):
        return None
    both = zip(names, parts, strict=True)
    return tuple(f"{name}/{part.name(i)}" for name, part in both for i in range(len(part)))


def _preprocessing(parts: Sequence[Clients], names: Sequence[str]) -> Preprocessing | None:
    """How examples came of tables; refuses populations whose tables were fitted each by itself."""
    found = [
        (name, part.preprocessing)
        for name, part in zip(names, parts, strict=True)
        if part.preprocessing is not None and not part.preprocessing.is_plain
    ]
    for name, made in found[1:]:
        if made != found[0][1]:
            raise HoldfastError(
                f"join: the tables of {found[0][0]} and {name} were scaled and encoded each by itself, and "
                f"one model is to be trained on both; fit one and give it to the other by "
                f'hf.data.table(..., preprocessing=data.preprocessing), or say scale = "none".',
                about=("populations",),
            )
    return found[0][1] if found else None
