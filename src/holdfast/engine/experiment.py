"""One description of a run: what `simulate`, `rounds`, `sweep` and experiment files have in common."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypedDict

from holdfast.attacks import Attack
from holdfast.client_states.storage import Storage
from holdfast.cohorts import Cohort
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.engine.protocol import Engine
from holdfast.engine.server import Server
from holdfast.engine.stopping import EarlyStopping
from holdfast.errors import HoldfastError, UnknownArgumentError, did_you_mean, explain_constructor
from holdfast.evaluate.protocol import Evaluator
from holdfast.models.model import Model
from holdfast.trees import Tree


@explain_constructor
@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """A run before it runs: all that its result is a function of. A value; change a copy of it with
    `dataclasses.replace`.

    Args:
        algorithm: the method, from `hf.algorithms` or your own `hf.Algorithm(rule)`.
        model: `hf.models`, or your own `hf.Model(init, loss)`.
        clients: the population, from `hf.data.partition` or `hf.data.Clients`.
        local: what a client does in a round; of joined populations, one for all or one for each.
        cohort: who takes part, from `hf.cohorts`; everyone unless given.
        evaluate: one or several of `hf.evaluate`.
        seed: all randomness is a function of it.
        params: initial parameters; the model's own unless given.
        engine: chosen by the machine and the model unless given; `hf.DebugEngine()` says where an
            exception happened.
        server: the server's own data or loss, for methods in which it learns too.
        select: clients receive, train and return only the rows of the model's tables their data uses.
        storage: how much memory client states and examples may take, and where they go beyond it.
        first_round: another method for the first round alone; `algorithm` goes on from its model, with
            states of its own. FLIX starts at the mean of local optima so: `hf.flix.by_theory`.
        stop: when the run ends early and which round is kept: `hf.EarlyStopping("validation_accuracy",
            patience=10)`.
        attack: clients that lie, from `hf.attacks`, to find out what a method stands; in simulations alone.

    Example:
        >>> import dataclasses
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> plain = hf.Experiment(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.least_squares(intercept=False),
        ...     hf.data.partition.in_order(data, clients=2),
        ...     hf.Local(learning_rate=0.1, steps=10),
        ... )
        >>> corrected = dataclasses.replace(plain, algorithm=hf.algorithms.scaffold())
        >>> for experiment in (plain, corrected):
        ...     print(f"{hf.simulate(experiment, rounds=20).params['weights'].item():.2f}")
        1.60
        1.80
    """

    algorithm: Algorithm
    model: Model
    clients: Clients
    local: Local | tuple[Local, ...]
    cohort: Cohort | None = None
    evaluate: Evaluator | Sequence[Evaluator] | None = None
    seed: int = 0
    params: Tree = None
    engine: Engine | None = None
    server: Server | None = None
    select: bool = False
    storage: Storage | None = None
    first_round: Algorithm | None = None
    stop: EarlyStopping | None = None
    attack: Attack | None = None

    def __repr__(self) -> str:
        name = getattr(self.algorithm, "name", "?")
        return f"Experiment({name}, {self.model}, {self.clients}, seed {self.seed})"


class Settings(TypedDict, total=False):
    """The same, as the keyword arguments of functions that also take an `Experiment`."""

    cohort: Cohort | None
    evaluate: Evaluator | Sequence[Evaluator] | None
    seed: int
    params: Tree
    engine: Engine | None
    server: Server | None
    select: bool
    storage: Storage | None
    first_round: Algorithm | None
    stop: EarlyStopping | None
    attack: Attack | None


def described(
    caller: str,
    algorithm: Algorithm | Experiment,
    model: Model | None,
    clients: Clients | None,
    local: Local | tuple[Local, ...] | None,
    settings: Settings,
    also: Sequence[str] = (),
) -> Experiment:
    """The experiment that a function was given, as a whole or as plain arguments."""
    known = [*Settings.__annotations__, *also]
    for word in settings:
        if word not in known:
            hint = did_you_mean(word, ["algorithm", "model", "clients", "local", *known])
            raise UnknownArgumentError(f"{caller}: unknown argument `{word}`; {hint}")
    plain: dict[str, Any] = {"model": model, "clients": clients, "local": local}
    if isinstance(algorithm, Experiment):
        twice = [name for name, value in plain.items() if value is not None] + list(settings)
        if twice:
            raise HoldfastError(
                f"{caller}: an Experiment and `{twice[0]}` are given; change a copy of the experiment "
                f"by dataclasses.replace(experiment, {twice[0]}=...)."
            )
        return algorithm
    missing = [name for name, value in plain.items() if value is None]
    if missing:
        raise HoldfastError(
            f"{caller}: `{missing[0]}` is missing; give algorithm, model, clients and local, or an "
            f"hf.Experiment."
        )
    return Experiment(algorithm, **plain, **settings)
