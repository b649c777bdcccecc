"""Who takes part in a round. Only clients that have data are ever drawn."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from holdfast.errors import HoldfastError, explain_arguments

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
    """Draws the clients of a round; write your own with these."""

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
    """Each client by its own coin; redrawn only if nobody came."""

    steady: ClassVar[bool] = False
    probability: float

    def check(self, able: np.ndarray, population: int) -> None:
        """A coin can be tossed for any population."""

    def draw(self, t: int, able: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        while not (came := rng.random(len(able)) < self.probability).any():
            pass
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
    """Full participation."""
    return Everyone()


@explain_arguments
def fixed(size: int) -> Fixed:
    """The same number of clients in every round, uniformly without replacement.

    Args:
        size: clients a round.
    """
    return Fixed(_size(size))


@explain_arguments
def bernoulli(probability: float) -> Bernoulli:
    """Each client takes part by a coin of its own; redrawn only if nobody came.

    Args:
        probability: that a client takes part, in (0, 1].
    """
    if not 0 < probability <= 1:
        raise HoldfastError(
            f"cohort: probability={probability}; give a number in (0, 1].", about=("probability",)
        )
    return Bernoulli(float(probability))


@explain_arguments
def schedule(rounds: Sequence[Sequence[int]]) -> Schedule:
    """Cohorts given beforehand, repeated when over.

    Args:
        rounds: one list of clients for each round.
    """
    if not len(rounds):
        raise HoldfastError(
            "cohort: the schedule is empty; give at least one round.", about=("rounds",)
        )
    return Schedule(tuple(tuple(int(i) for i in ids) for ids in rounds))


@explain_arguments
def weighted(size: int, weights: Sequence[float] | np.ndarray) -> Weighted:
    """Some clients a round without replacement, some more likely than others.

    Args:
        size: clients a round.
        weights: one number per client, to which its chance is proportional; 0 is never drawn.
    """
    values = np.asarray(weights, float)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any():
        raise HoldfastError(
            "cohort: weights must be one finite number of at least 0 per client.",
            about=("weights",),
        )
    return Weighted(_size(size), tuple(values.tolist()))


def _size(size: int) -> int:
    if not isinstance(size, int | np.integer) or size < 1:
        raise HoldfastError(
            f"cohort: size={size!r}; give a whole number of at least 1.", about=("size",)
        )
    return int(size)
