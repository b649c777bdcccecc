"""FLIX as its theorems have it: from the one-shot average, with the step that its constants allow."""

import dataclasses
from typing import Any

import numpy as np
from jax import tree

from holdfast.algorithms import flix_one_shot
from holdfast.cohorts import Everyone
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Chain
from holdfast.core.hyper import PerClient
from holdfast.core.local import Local
from holdfast.core.rule import Rule
from holdfast.core.wire import Wire
from holdfast.engine.experiment import Experiment
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.flix.optima import Optima, local_optima
from holdfast.flix.theory import Constants, constants, constants_of
from holdfast.rules import Flix
from holdfast.solvers import Known
from holdfast.wires import Compressed, Diana


@explain_arguments
def by_theory(
    experiment: Experiment,
    known: Constants | None = None,
    *,
    start: bool = True,
    step: bool = True,
) -> Experiment:
    r"""A FLIX experiment that begins at $x_{\text{avg}}$, with the step size that theory gives it.

    The first round is `hf.algorithms.flix_one_shot`, with its bytes; the others are the method's own.
    The step is `hf.flix.Constants.step_size`, and replaces the learning rate: $1/L_\alpha$ for gradient
    descent, less for DCGD and DIANA. In an experiment file these are the keys `start = "average"` and
    `step = "theory"` of `[[algorithm]]`.

    Args:
        experiment: one whose algorithm is `hf.algorithms.flix`, and in which everybody takes part.
        known: constants, if they have been worked out; found on the clients unless given.
        start: whether to begin at $x_{\text{avg}}$.
        step: whether to take the step of theory, which is for one full-batch step a round.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> binary = hf.Examples(train.x, (train.y > 4).astype("int32"))
        >>> plain = hf.Experiment(
        ...     hf.algorithms.flix(0.5),
        ...     hf.models.logistic_regression(l2=0.1),
        ...     hf.data.partition.iid(binary, clients=3),
        ...     hf.Local(1.0, steps=1),
        ... )
        >>> exact = hf.flix.by_theory(plain)
        >>> print(f"{exact.local.learning_rate:.1f}, {exact.first_round.name}")
        1.4, flix, one shot

    Reference: Gasanov et al., "FLIX", AISTATS 2022, theorems 1 to 8.
    """
    own, alpha, local = check_by_theory(experiment, step)
    model, clients = experiment.model, experiment.clients
    # Found once, for the first round and for those after it.
    settings: dict[str, Any] = {"seed": experiment.seed, "params": experiment.params}
    if isinstance(own.solver, Known):
        x = tree.map(lambda leaf: leaf.values, own.solver.optima, is_leaf=_is_per_client)
        optima = Optima(x, np.full(len(clients), np.nan))
        known = known or constants(model, clients, optima, seed=experiment.seed)
    else:
        optima = local_optima(model, clients, own.solver, **settings)
        known = known or constants_of(model, clients, optima, None, experiment.seed)
    able = np.flatnonzero(clients.sizes)
    solved = _with_solver(experiment.algorithm.rule, optima.known())
    algorithm = dataclasses.replace(experiment.algorithm, rule=solved)
    changed = dataclasses.replace(experiment, algorithm=algorithm)
    values = hyper.values(alpha, len(clients))[able]
    if not values.any():
        return changed  # nothing travels, and there is nothing to solve
    if step:
        compressor, beta = _wire_of(algorithm)
        wire = algorithm.wire
        diana = isinstance(wire, Diana)
        if isinstance(wire, Diana) and known.case == "non-convex" and wire.start != "gradients":
            raise HoldfastError(
                "by_theory: the losses are not convex, and theorem 8 is of DIANA whose shifts begin at the "
                "gradients; give diana(compressor, start='gradients').",
                about=("algorithm", "by"),
            )
        size = known.step_size(values, among(compressor, able), diana, among(beta, able))
        theirs = dataclasses.replace(local, learning_rate=size)
        changed = dataclasses.replace(changed, local=theirs)
    if start:
        smoothness = np.zeros(len(clients))
        smoothness[able] = known.smoothness
        shot = flix_one_shot(alpha, PerClient(smoothness), optima.known())
        changed = dataclasses.replace(changed, first_round=shot)
    return changed


def check_by_theory(experiment: Experiment, step: bool = True) -> tuple[Flix, Any, Local]:
    """Refuse what `by_theory` cannot do, before it looks for optima: its rule, alpha and local steps."""
    own = _flix_of(experiment.algorithm.rule)
    if own is None:
        raise HoldfastError(
            f"by_theory: {experiment.algorithm.name} is not FLIX; give hf.algorithms.flix(alpha, by=...).",
            about=("algorithm",),
        )
    if not isinstance(experiment.cohort, Everyone | None):
        raise HoldfastError(
            f"by_theory: x_avg and the step are those of all clients, and the cohort is "
            f"{type(experiment.cohort).__name__}; let everyone take part.",
            about=("cohort",),
        )
    if experiment.clients.populations is not None:
        raise HoldfastError(
            "by_theory: the clients are joined populations with weights of their own, and the paper's "
            "constants are of one mean over all clients; give one population.",
            about=("clients",),
        )
    local = experiment.local
    assert isinstance(local, Local)  # one for each population otherwise
    if step:
        _check_descent(experiment.algorithm, local)
    alpha = hyper.of_population(own, experiment.clients).alpha
    if callable(alpha):
        raise HoldfastError(
            "by_theory: alpha changes over rounds, and so does the objective; give a number, or one per "
            "client.",
            about=("algorithm", "alpha"),
        )
    return own, alpha, local


def among(thing: Any, able: np.ndarray) -> Any:
    """The same with the values of these clients only, where it has one per client."""

    def some(leaf: Any) -> Any:
        return PerClient(np.asarray(leaf.values)[able]) if _is_per_client(leaf) else leaf

    return tree.map(some, thing, is_leaf=_is_per_client)


def _is_per_client(leaf: Any) -> bool:
    return isinstance(leaf, PerClient)


def _flix_of(rule: Rule) -> Flix | None:
    rules = rule.rules if isinstance(rule, Chain) else (rule,)
    return next((r for r in rules if isinstance(r, Flix)), None)


def _with_solver(rule: Rule, solver: Known) -> Rule:
    if isinstance(rule, Chain):
        return Chain(tuple(_with_solver(r, solver) for r in rule.rules))
    return dataclasses.replace(rule, solver=solver) if isinstance(rule, Flix) else rule


def _wire_of(algorithm: Algorithm) -> tuple[Any, Any]:
    wire = algorithm.wire
    return getattr(wire, "compressor", None), getattr(wire, "beta", None)


def _check_descent(algorithm: Algorithm, local: Local) -> None:
    """Refuse what theory has no step for: all but gradient descent, DCGD and DIANA."""
    odd = [
        name
        for name in ("clip", "weight_decay", "momentum", "optimizer")
        if getattr(local, name) is not None
    ]
    if not isinstance(algorithm.rule, Flix) or type(algorithm.wire) not in (
        Wire,
        Compressed,
        Diana,
    ):
        raise HoldfastError(
            f"by_theory: the paper has steps for gradient descent, DCGD and DIANA, not for "
            f"{algorithm.name}; give hf.algorithms.flix(alpha, by=...) one of these, or step=False.",
            about=("algorithm", "by"),
        )
    if algorithm.weighting != "uniform":
        raise HoldfastError(
            f"by_theory: the FLIX objective is the plain mean of clients, and weighting is "
            f"{algorithm.weighting!r}; give weighting='uniform', or step=False.",
            about=("algorithm", "weighting"),
        )
    if local.steps != 1 or local.batch_size is not None or odd:
        what = f"with {odd[0]}" if odd else f"steps={local.steps}, batch_size={local.batch_size}"
        raise HoldfastError(
            f"by_theory: the step of theory is for one plain full-batch step a round, and Local is "
            f"{what}; give hf.Local(learning_rate, steps=1), or step=False.",
            about=("local", odd[0] if odd else "steps"),
        )
