"""Two ways to run the one round: compiled, or step by step with exceptions that say where."""

import dataclasses
from typing import Any

import jax

from holdfast.places import debugging
from holdfast.round import Outcome, federated_round, prepare_cohort
from holdfast.trees import Tree

_programs: list[str] = []  # the algorithm of every round compiled in this process


def _noted_round(**given: Any) -> Outcome:
    _programs.append(given["algorithm"].name)  # runs while tracing only, once per program
    return federated_round(**given)


_compiled_round = jax.jit(_noted_round, static_argnames=("model", "central_loss", "around"))
_compiled_preparation = jax.jit(prepare_cohort, static_argnames="model")


def compiled_programs() -> int:
    """How many rounds have been compiled in this process."""
    return len(_programs)


@dataclasses.dataclass(frozen=True)
class Engine:
    """A whole round is one compiled program; new numbers, cohorts and seeds compile nothing anew."""

    def prepare(self, t: int, **given: Any) -> Tree:
        """Clients' work before their first round."""
        return _compiled_preparation(**given)

    def round(self, t: int, **given: Any) -> Outcome:
        """One round."""
        return _compiled_round(**given)

    def slots(self, clients: int, steady: bool) -> int:
        """Places in the compiled program: powers of two where cohorts vary, so that few are compiled."""
        return clients if steady else 1 << max(0, clients - 1).bit_length()


@dataclasses.dataclass(frozen=True)
class DebugEngine:
    """The same round without compilation, one client after another.

    Stops at the first exception and at the first number that is not finite, with a `DebugError`
    that says the round, client, step and batch (rows of the data; -1 is padding).
    """

    def prepare(self, t: int, **given: Any) -> Tree:
        """Clients' work before their first round."""
        with jax.disable_jit(), debugging(round=t):
            return prepare_cohort(**given)

    def round(self, t: int, **given: Any) -> Outcome:
        """One round."""
        with jax.disable_jit(), debugging(round=t):
            return federated_round(**given)

    def slots(self, clients: int, steady: bool) -> int:
        """No empty places."""
        return clients
