"""What advice is asked for: data, model and local training, and what a good method is good at."""

import dataclasses
import functools
from typing import Any, Literal, get_args

import numpy as np
from jax import tree

from holdfast import evaluate
from holdfast.cohorts import Bernoulli, Cohort, Everyone, Fixed
from holdfast.conformal.checks import same_arrays
from holdfast.core.algorithm import Algorithm
from holdfast.core.keys import host_key
from holdfast.core.local import Local
from holdfast.data.clients import Clients, check_clients
from holdfast.data.split.table import has_classes
from holdfast.data.validation import set_apart_in_turn
from holdfast.engine.experiment import Experiment
from holdfast.engine.server import Server
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.models.model import Model
from holdfast.trees import Tree, paths

Goal = Literal["quality", "worst_tenth", "rounds", "megabytes", "seconds"]
GOALS: tuple[str, ...] = get_args(Goal)
# Goals that are reached at a target; the others are how good a model is after all rounds.
TO_TARGET = ("rounds", "megabytes", "seconds")
# What of the clients' examples methods are judged by.
SHARE = 0.2
# As many different parts of the examples judge at most, one after another.
_MOST_DRAWS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """All that methods have in common in a race.

    Args:
        model: the model.
        clients: what methods train on.
        held_out: every client's own examples to judge by, which no method trains on.
        local: what clients do in a round; its step size is where the search begins.
        cohort: who takes part.
        server: what the server has of its own.
        rounds: of a run.
        goal: what is best.
        target: of the metric on held-out examples; for goals that are reached.
        megabytes: that a run may send.
        params: where all begin; the model's own unless given.
        whole: what clients have, if what is held out of it is drawn: then every draw holds out another part,
            so that about every example judges once.
        share: of it that is held out.
    """

    model: Model
    clients: Clients
    held_out: Clients
    local: Local
    cohort: Cohort
    server: Server | None
    rounds: int
    goal: Goal
    target: float | None = None
    megabytes: float | None = None
    params: Tree = None
    whole: Clients | None = None
    share: float = SHARE

    @property
    def draws(self) -> int:
        """How many different parts of clients' examples judge; one where they are given."""
        return 1 if self.whole is None else max(1, min(_MOST_DRAWS, round(1 / self.share)))

    def drawn(self, seed: int) -> "Problem":
        """The problem as a run with this seed has it: the first is that of the problem itself."""
        number = seed % self.draws
        if number == 0 or self.whole is None:
            return self
        if number not in self._drawn:
            turn = number / self.draws
            clients, held_out = set_apart_in_turn(self.whole, self.share, 0, turn)
            self._drawn[number] = dataclasses.replace(self, clients=clients, held_out=held_out)
        return self._drawn[number]

    @functools.cached_property
    def _drawn(self) -> "dict[int, Problem]":
        return {}

    @property
    def judging(self) -> int:
        """How many examples judge, in all draws."""
        return int(self.held_out.sizes.sum()) * self.draws

    @property
    def metric(self) -> str:
        """What is measured: accuracy of classes, else the loss."""
        return "accuracy" if "accuracy" in self.measured else "loss"

    @property
    def greater(self) -> bool:
        """Whether more of it is better."""
        return self.metric == "accuracy"

    @functools.cached_property
    def measured(self) -> tuple[str, ...]:
        """What the model measures."""
        import jax

        examples = tree.map(lambda a: np.asarray(a)[:1], self.held_out.examples)
        shapes = jax.eval_shape(self.model.init, host_key(0), self.clients.examples)
        return tuple(jax.eval_shape(self.model.measure, shapes, examples))

    @functools.cached_property
    def judged_by(self) -> Any:
        """All held-out examples together."""
        rows = self.held_out.order
        return tree.map(lambda a: np.asarray(a)[rows], self.held_out.examples)

    @functools.cached_property
    def able(self) -> np.ndarray:
        """Clients that can take part."""
        return np.flatnonzero(self.clients.sizes)

    @property
    def participation(self) -> float:
        """Share of the clients that take part in a round, on average over twenty rounds."""
        rng = np.random.default_rng(0)
        drawn = [len(self.cohort.draw(t, self.able, rng)) for t in range(20)]
        return float(np.mean(drawn) / len(self.able))

    @functools.cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameters."""
        import jax

        return tuple(paths(jax.eval_shape(self.model.init, host_key(0), self.clients.examples)))

    def with_participation(self, times: float) -> "Problem | None":
        """The same with so many times as many clients in a round; None where that cannot be."""
        cohort: Cohort
        if isinstance(self.cohort, Fixed):
            size = max(1, min(len(self.able), round(self.cohort.size * times)))
            if size == self.cohort.size:
                return None
            cohort = Fixed(size)
        elif isinstance(self.cohort, Bernoulli):
            cohort = Bernoulli(min(1.0, self.cohort.probability * times))
        elif isinstance(self.cohort, Everyone) and times < 1 and len(self.able) > 2:
            cohort = Fixed(max(1, round(len(self.able) * times)))
        else:
            return None
        return dataclasses.replace(self, cohort=cohort)

    def experiment(
        self,
        algorithm: Algorithm,
        local: Local,
        seed: int,
        evaluators: tuple[Any, ...] | None = None,
    ) -> Experiment:
        """A run of a method; the server's model is measured on all held-out examples unless said."""
        watch = (self._watch,) if evaluators is None else evaluators
        return Experiment(
            algorithm,
            self.model,
            self.clients,
            local,
            cohort=self.cohort,
            evaluate=watch,
            seed=seed,
            params=self.params,
            server=self.server,
        )

    @functools.cached_property
    def _watch(self) -> Any:
        return evaluate.on(self.judged_by, name="validation")


def problem(
    model: Model,
    clients: Clients,
    local: Local,
    *,
    held_out: Clients | float | None,
    cohort: Cohort | None,
    server: Server | None,
    rounds: int,
    goal: str | None,
    target: float | None,
    megabytes: float | None,
    params: Tree = None,
) -> Problem:
    """What is given, checked and with examples set apart; refuses what no advice can be given on."""
    check_clients("advise", clients)
    if clients.populations is not None:
        raise HoldfastError(
            "advise: several populations are joined, whose models and losses differ, so that there is no one "
            "measure to rank methods by; ask for each population on its own.",
            about=("clients",),
        )
    able = int((clients.sizes > 0).sum())
    if able < 2:
        raise HoldfastError(
            f"advise: {able} client has data, and with fewer than two there is nothing to federate; give at "
            f"least two, or train with hf.algorithms.centralised().",
            about=("clients",),
        )
    if not isinstance(local, Local):
        raise HoldfastError(
            f"advise: local is a {type(local).__name__}; give one hf.Local for all clients.",
            about=("local",),
        )
    if getattr(clients.examples, "y", None) is None:
        raise HoldfastError(
            "advise: the examples have no labels `y`; give hf.Examples(x, y), so that models can be judged.",
            about=("clients",),
        )
    if goal is None:
        goal = "quality" if target is None else "rounds"
    if goal not in GOALS:
        raise HoldfastError(
            f"advise: goal={goal!r}; {did_you_mean(str(goal), GOALS)}", about=("goal",)
        )
    if goal in TO_TARGET and target is None:
        raise HoldfastError(
            f"advise: goal={goal!r} counts until a target is reached, and there is none; give target=0.9, or "
            f"goal='quality'.",
            about=("target",),
        )
    if not (held_out is None or isinstance(held_out, float | Clients)):
        raise HoldfastError(
            f"advise: held_out={held_out!r}; give a share such as 0.2, or every client's own examples as "
            f"hf.Clients.",
            about=("held_out",),
        )
    _check_untrained(clients, held_out, server)
    whole, share = None, SHARE
    if held_out is None or isinstance(held_out, float):
        whole, share = clients, SHARE if held_out is None else held_out
        clients, held_out = set_apart_in_turn(whole, share, 0, 0.0)
    elif len(held_out) != len(clients):
        raise HoldfastError(
            f"advise: held_out has {len(held_out)} clients and the population {len(clients)}; give every "
            f"client its own, if only an empty one.",
            about=("held_out",),
        )
    if not held_out.sizes.any():
        raise HoldfastError(
            "advise: no client has a held-out example to judge methods by; give held_out=0.2.",
            about=("held_out",),
        )
    found = Problem(
        model,
        clients,
        held_out,
        local,
        Everyone() if cohort is None else cohort,
        server,
        rounds,
        goal,  # type: ignore[arg-type]
        target,
        megabytes,
        params,
        whole,
        share,
    )
    found.cohort.check(found.able, len(clients))
    return found


def _check_untrained(
    clients: Clients, held_out: Clients | float | None, server: Server | None
) -> None:
    """Refuse to judge by examples that are trained on; copies of them cannot be told from others."""
    apart = held_out if isinstance(held_out, Clients) else None
    judged_by = clients.examples if apart is None else apart.examples
    own = None if server is None or server.alone else server.source
    trained = 0
    if apart is not None and same_arrays(apart.examples, clients.examples):
        trained = len(np.intersect1d(apart.order, clients.order))
    if trained or (own is not None and same_arrays(judged_by, own)):
        who = "clients" if trained else "the server"
        raise HoldfastError(
            f"advise: examples to judge by are trained on by {who}; give others, such as by "
            f"hf.data.set_apart before anything else.",
            about=("held_out",),
        )


def is_classified(problem: Problem) -> bool:
    """Whether labels are classes."""
    return has_classes(problem.clients)
