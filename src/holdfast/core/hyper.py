"""Hyper-parameters that vary: over rounds (a schedule) or over clients (`PerClient`).

Rules never see either: schedules become numbers before the round, `PerClient` before the client.
"""

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import tree
from jax.typing import DTypeLike

from holdfast.core.struct import Struct
from holdfast.errors import About, HoldfastError
from holdfast.trees import Number, Tree

T = TypeVar("T")
# From the round to a number; every optax schedule is one.
Schedule: TypeAlias = Callable[[int], Any]


class PerClient(Struct):
    """One value per client, in the order of the population; a rule sees its client's number.

    Instead of values it takes a function of a client's examples, asked once when the run begins.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> only_the_second = hf.PerClient([0.0, 10.0])
        >>> the_fewer_the_more = hf.PerClient(lambda mine: 10.0 / len(mine.y))
        >>> for mu in (0.0, only_the_second, the_fewer_the_more):
        ...     run = hf.simulate(hf.algorithms.fedprox(mu), model, clients, local, rounds=30)
        ...     print(f"{run.params['weights'].item():.2f}")
        1.60
        1.30
        1.76
    """

    values: Any


# What a hyper-parameter may be given as; numbers of numpy and JAX are floats here. To mypy it is Any,
# for rules compute with the number that it has become, and a union would need a cast in every formula.
# The union stays readable at run time: experiment files take what it says (config/schema.py).
Hyper: TypeAlias = Annotated[Any, float | Schedule | PerClient]


class Range(NamedTuple):
    """What a hyper-parameter may be. A class has `ranges`, by the names of its fields."""

    least: float
    most: float = math.inf
    whole: bool = False
    open: bool = False  # `least` itself is not allowed

    def __str__(self) -> str:
        kind = "whole numbers" if self.whole else "numbers"
        if self.most < math.inf:
            return f"{kind} in {'(' if self.open else '['}{self.least:g}, {self.most:g}]"
        return f"{kind} above {self.least:g}" if self.open else f"{kind} of at least {self.least:g}"

    def holds(self, values: np.ndarray) -> bool:
        """Whether all of them may be."""
        above = values > self.least if self.open else values >= self.least
        fits = above & (values <= self.most) & np.isfinite(values)
        return bool((fits & (values == np.floor(values)) if self.whole else fits).all())


def _structs_in(thing: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A struct and every one in its fields, with the names that lead there."""
    if isinstance(thing, tuple | list):
        for inside in thing:
            yield from _structs_in(inside, path)
    if isinstance(thing, Struct) and dataclasses.is_dataclass(thing):
        yield path, thing
        for field in dataclasses.fields(thing):
            yield from _structs_in(getattr(thing, field.name), (*path, field.name))


def check_ranges(thing: Any, when: str = "", above: About = ()) -> None:
    """Refuse hyper-parameters outside their ranges, as far as they are numbers already."""
    for path, part in _structs_in(thing):
        for name, allowed in getattr(part, "ranges", {}).items():
            value = getattr(part, name)
            absent = value is None and _may_be_none(part, name)
            if absent or callable(value) or isinstance(value, jax.core.Tracer):
                continue
            given = value.values if _is_per_client(value) else value
            if callable(given) or isinstance(given, jax.core.Tracer):
                continue
            owner = type(part).__name__
            about = (*above, *(path if path[:1] == ("wire",) else ()), name)
            several = isinstance(given, list | tuple) or np.ndim(given) > 0
            if several and not _is_per_client(value):
                raise HoldfastError(
                    f"{owner}: {name}={_brief(given)}; give a number, or hf.PerClient of one for each "
                    f"client.",
                    about=about,
                )
            try:
                number = not isinstance(given, str | bool | None)
                fits = number and allowed.holds(np.asarray(given, float))
            except (TypeError, ValueError, OverflowError):
                fits = False
            if not fits:
                raise HoldfastError(
                    f"{owner}: {name}={_brief(given)}{when}; give {allowed}.", about=about
                )


def _may_be_none(part: Any, name: str) -> bool:
    return next(field.default is None for field in dataclasses.fields(part) if field.name == name)


def _brief(given: Any) -> str:
    """A value as a message shows it: a number as a number, not with its type."""
    scalar = isinstance(given, np.generic) or getattr(given, "ndim", None) == 0
    text = repr(given.item() if scalar else given).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_zero(value: Hyper) -> bool:
    """Whether this is the number 0, known before the run."""
    return isinstance(value, numbers.Real) and value == 0


def _is_per_client(leaf: Any) -> bool:
    return isinstance(leaf, PerClient)


def at_round(thing: T, t: int) -> T:
    """Replace schedules by their value in round `t` and plain numbers by floats."""

    def number(leaf: Any) -> Any:
        value = leaf(t) if callable(leaf) else leaf
        scalar = isinstance(value, numbers.Real) or getattr(value, "ndim", None) == 0
        return float(value) if scalar else value

    def resolve(leaf: Any) -> Any:
        if not _is_per_client(leaf):
            return number(leaf)
        values = jnp.asarray(leaf.values)
        whole = not jnp.issubdtype(values.dtype, jnp.floating)
        return PerClient(values.astype(float) if whole else values)

    return tree.map(resolve, thing, is_leaf=_is_per_client)


def of_population(thing: T, clients: Iterable[Tree]) -> T:
    """Ask every `PerClient` that is a function for its values."""

    def resolve(leaf: Any) -> Any:
        if not (_is_per_client(leaf) and callable(leaf.values)):
            return leaf
        return PerClient(np.array([float(leaf.values(mine)) for mine in clients]))

    return tree.map(resolve, thing, is_leaf=_is_per_client)


def varies(thing: Any) -> bool:
    """Whether anything in it differs between clients."""
    return any(map(_is_per_client, tree.leaves(thing, is_leaf=_is_per_client)))


def scheduled(thing: Any) -> bool:
    """Whether anything in it differs between rounds."""
    return any(map(callable, tree.leaves(thing, is_leaf=_is_per_client)))


def values(number: Hyper, clients: int) -> np.ndarray:
    """A number as one value for each client, on the host."""
    given = number.values if _is_per_client(number) else number
    return np.broadcast_to(np.asarray(given, float), (clients,))


def of_client(thing: T, client: Number, dtype: DTypeLike) -> T:
    """Replace every `PerClient` by the value of one client, in the type of the model."""

    def resolve(leaf: Any) -> Any:
        return leaf.values[client].astype(dtype) if _is_per_client(leaf) else leaf

    return tree.map(resolve, thing, is_leaf=_is_per_client)


def check_population(thing: Any, clients: int, owner: str) -> None:
    """Refuse a `PerClient` of another length than the population."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(thing, is_leaf=_is_per_client)[0]:
        if _is_per_client(leaf) and len(leaf.values) != clients:
            raise HoldfastError(
                f"{owner}: a PerClient has {len(leaf.values)} values for {clients} clients; "
                f"give one value per client.",
                about=("algorithm", *_argument(path)),
            )


def _argument(path: Any) -> tuple[str, ...]:
    """The argument of an algorithm that a hyper-parameter came from: its name, after that of the wire."""
    names = [str(getattr(key, "name", getattr(key, "key", ""))) for key in path]
    return tuple(names) if names[:1] == ["wire"] else tuple(names[-1:])


def constant(value: float) -> Schedule:
    """The same value in every round.

    Args:
        value: that value.

    Example:
        >>> import holdfast as hf
        >>> rate = hf.schedules.constant(0.1)
        >>> [round(float(rate(t)), 4) for t in (0, 10, 1000)]
        [0.1, 0.1, 0.1]
    """
    return optax.constant_schedule(value)


def exponential(value: float, decay: float) -> Schedule:
    r"""Decays by a factor a round, as in the papers' tables.

    $$ v_t = v\, d^t $$

    Args:
        value: $v$, that of the first round.
        decay: $d$, such as 0.998.

    Example:
        >>> import holdfast as hf
        >>> rate = hf.schedules.exponential(0.1, decay=0.998)
        >>> [round(float(rate(t)), 4) for t in (0, 1, 10, 100, 1000)]
        [0.1, 0.0998, 0.098, 0.0819, 0.0135]
    """
    return functools.partial(_exponential, value, decay)


def _exponential(value: float, decay: float, t: int) -> float:
    return value * decay**t


def cosine(value: float, rounds: int, end: float = 0.0) -> Schedule:
    r"""Half a cosine from `value` down to `end` over `rounds` rounds.

    $$ v_t = e + \tfrac{v - e}{2} \big(1 + \cos(\pi t / T)\big) \text{ for } t \le T $$

    Args:
        value: $v$, in the first round.
        rounds: $T$, until the end is reached.
        end: $e$, from then on.

    Example:
        >>> import holdfast as hf
        >>> rate = hf.schedules.cosine(0.1, rounds=100, end=0.01)
        >>> [round(float(rate(t)), 4) for t in (0, 25, 50, 75, 100, 200)]
        [0.1, 0.0868, 0.055, 0.0232, 0.01, 0.01]
    """
    return optax.cosine_decay_schedule(value, rounds, alpha=end / value)


def multi_step(value: float, rounds: list[int], factor: float = 0.1) -> Schedule:
    """A value that is multiplied by `factor` at each of the given rounds.

    Args:
        value: in the first round.
        rounds: from which on it is multiplied once more.
        factor: by what.

    Example:
        >>> import holdfast as hf
        >>> rate = hf.schedules.multi_step(0.1, rounds=[50, 75])
        >>> [round(float(rate(t)), 4) for t in (0, 49, 50, 74, 75)]
        [0.1, 0.1, 0.01, 0.01, 0.001]
    """
    return functools.partial(_multi_step, value, tuple(rounds), factor)


def _multi_step(value: float, rounds: tuple[int, ...], factor: float, t: int) -> float:
    return value * factor ** sum(t >= r for r in rounds)
