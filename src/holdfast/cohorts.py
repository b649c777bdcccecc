"""Who takes part in a round. Only clients that have data are ever drawn."""

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from holdfast.errors import HoldfastError, brief, explain_arguments, whole_number

__all__ = [
    "Bernoulli",
    "Cohort",
    "Everyone",
    "Fixed",
    "Schedule",
    "Weighted",
    "bernoulli",
    "everyone",
    "fixed",
    "schedule",
    "weighted",
]


class Cohort(Protocol):
    """Draws the clients of a round; write your own with these.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> class InTurn:
        ...     steady = True
        ...
        ...     def check(self, able, population):
        ...         pass
        ...
        ...     def draw(self, t, able, rng):
        ...         return able[[t % len(able)]]
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> algorithm = hf.algorithms.fedavg()
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=4, cohort=InTurn())
        >>> [entry.clients for entry in run.ledger.entries]
        [(0,), (1,), (0,), (1,)]
    """

    steady: ClassVar[bool]  # whether every round has the same number of clients

    def check(self, able: np.ndarray, population: int) -> None:
        """Refuse a population it cannot draw from."""

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The clients of round `t`, out of those `able` to take a step."""


@dataclasses.dataclass(frozen=True)
class Everyone:
    """All clients in every round."""

    steady: ClassVar[bool] = True

    def check(self, able: np.ndarray, population: int) -> None:
        """Everyone is always possible."""

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return able


@dataclasses.dataclass(frozen=True)
class Fixed:
    """The same number of clients in every round, without replacement."""

    steady: ClassVar[bool] = True
    size: int

    def check(self, able: np.ndarray, population: int) -> None:
        if self.size > len(able):
            raise HoldfastError(
                f"cohort: {self.size} clients are asked for but {len(able)} of {population} have "
                f"data; ask for at most {len(able)}.",
                about=("cohort", "size"),
            )

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.sort(rng.choice(able, self.size, replace=False))


@dataclasses.dataclass(frozen=True)
class Bernoulli:
    """Each client by its own coin; redrawn if nobody came, unless a round may be empty."""

    steady: ClassVar[bool] = False
    probability: float
    # A draw on the condition that somebody came is another than the one privacy is accounted for.
    may_be_empty: bool = dataclasses.field(default=False, repr=False)

    def check(self, able: np.ndarray, population: int) -> None:
        # The chance that somebody comes, however small; below this, redrawing would hardly end.
        if (
            not self.may_be_empty
            and len(able)
            and -np.expm1(len(able) * np.log1p(-self.probability)) < 1e-6
        ):
            raise HoldfastError(
                f"cohort: with probability={self.probability} none of the {len(able)} clients with data "
                f"would come in a million draws; give a larger one.",
                about=("cohort", "probability"),
            )

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        while not (came := rng.random(len(able)) < self.probability).any():
            if self.may_be_empty:
                break
        return able[came]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Given beforehand, round by round; starts again when it is over."""

    steady: ClassVar[bool] = False
    rounds: tuple[tuple[int, ...], ...]

    def check(self, able: np.ndarray, population: int) -> None:
        for t, ids in enumerate(self.rounds):
            if len(set(ids)) != len(ids) or any(not 0 <= i < population for i in ids):
                raise HoldfastError(
                    f"cohort: round {t} of the schedule lists {list(ids)}; give distinct numbers in "
                    f"0..{population - 1}.",
                    about=("cohort", "rounds"),
                )

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.intersect1d(np.array(self.rounds[t % len(self.rounds)], np.int64), able)


@dataclasses.dataclass(frozen=True)
class Weighted:
    """A fixed number of clients without replacement, some more likely than others."""

    steady: ClassVar[bool] = True
    size: int
    weights: tuple[float, ...]

    def check(self, able: np.ndarray, population: int) -> None:
        if len(self.weights) != population:
            raise HoldfastError(
                f"cohort: {len(self.weights)} weights for {population} clients; give one each.",
                about=("cohort", "weights"),
            )
        possible = int((np.asarray(self.weights)[able] > 0).sum())
        if self.size > possible:
            raise HoldfastError(
                f"cohort: {self.size} clients are asked for but only {possible} have data and a "
                f"weight above 0; ask for at most {possible}.",
                about=("cohort", "size"),
            )

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        p = np.asarray(self.weights)[able]
        return np.sort(rng.choice(able, self.size, replace=False, p=p / p.sum()))


@explain_arguments
def everyone() -> Everyone:
    """Full participation.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> hf.cohorts.everyone().draw(0, np.arange(5), np.random.default_rng(0))
        array([0, 1, 2, 3, 4])
    """
    return Everyone()


@explain_arguments
def fixed(size: int) -> Fixed:
    """The same number of clients in every round, uniformly without replacement.

    Args:
        size: clients a round.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> cohort, rng = hf.cohorts.fixed(3), np.random.default_rng(0)
        >>> for t in range(3):
        ...     print(cohort.draw(t, np.arange(10), rng))
        [5 6 9]
        [0 8 9]
        [5 8 9]
    """
    return Fixed(_size(size))


@explain_arguments
def bernoulli(probability: float) -> Bernoulli:
    """Each client takes part by a coin of its own; redrawn only if nobody came.

    Args:
        probability: that a client takes part, in (0, 1].

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> cohort, rng = hf.cohorts.bernoulli(0.3), np.random.default_rng(0)
        >>> for t in range(3):
        ...     print(cohort.draw(t, np.arange(10), rng))
        [1 2 3]
        [1 3 5 8]
        [0 1]
    """
    number = isinstance(probability, numbers.Real) and not isinstance(probability, bool)
    if not number or not 0 < probability <= 1:
        raise HoldfastError(
            f"cohort: probability={probability!r}; give a number in (0, 1].", about=("probability",)
        )
    return Bernoulli(float(probability))


@explain_arguments
def schedule(rounds: Sequence[Sequence[int]]) -> Schedule:
    """Cohorts given beforehand, repeated when over.

    Args:
        rounds: one list of clients for each round.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> cohort, rng = hf.cohorts.schedule([[0, 1], [2]]), np.random.default_rng(0)
        >>> for t in range(4):
        ...     print(cohort.draw(t, np.arange(4), rng))
        [0 1]
        [2]
        [0 1]
        [2]
    """
    try:
        drawn = [np.asarray(ids) for ids in rounds]
    except (TypeError, ValueError):
        drawn = [np.asarray(None)]
    if any(ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu") for ids in drawn):
        raise HoldfastError(
            f"cohort: rounds={brief(rounds)}; give one list of whole numbers for each round, such as "
            f"[[0, 1], [2]].",
            about=("rounds",),
        )
    if not drawn:
        raise HoldfastError(
            "cohort: the schedule is empty; give at least one round.", about=("rounds",)
        )
    return Schedule(tuple(tuple(ids.astype(int).tolist()) for ids in drawn))


@explain_arguments
def weighted(size: int, weights: Sequence[float] | np.ndarray) -> Weighted:
    """Some clients a round without replacement, some more likely than others.

    Args:
        size: clients a round.
        weights: one number per client, to which its chance is proportional; 0 is never drawn.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> cohort, rng = hf.cohorts.weighted(2, [1, 1, 8, 0]), np.random.default_rng(0)
        >>> drawn = np.concatenate([cohort.draw(t, np.arange(4), rng) for t in range(1000)])
        >>> np.bincount(drawn, minlength=4)
        array([513, 509, 978,   0])
    """
    try:
        values = np.asarray(weights, float)
    except (TypeError, ValueError):
        values = np.asarray(math.nan)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise HoldfastError(
            "cohort: weights must be one finite number of at least 0 per client.",
            about=("weights",),
        )
    return Weighted(_size(size), tuple(values.tolist()))


def _size(size: int) -> int:
    return whole_number("cohort", "size", size)
