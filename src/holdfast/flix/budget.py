"""A personal model within a communication budget."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import tree

from holdfast.algorithms import dcgd, flix
from holdfast.algorithms import diana as diana_of
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.diagnose.curvature import Curvature
from holdfast.engine.experiment import Experiment
from holdfast.engine.simulate import Run, simulate
from holdfast.errors import HoldfastError, HoldfastWarning, explain_arguments
from holdfast.evaluate import Evaluator
from holdfast.flix.optima import Optima, local_optima
from holdfast.flix.start import among, by_theory
from holdfast.flix.theory import Constants, check_rounds, constants, constants_of
from holdfast.models.model import Model
from holdfast.record.state import RunState
from holdfast.trees import float_type, nbytes
from holdfast.wires import Compressor


@dataclasses.dataclass(frozen=True, eq=False)
class Personalised:
    """What a budget bought, and the constants that decided it."""

    alpha: float  # how much of the global model everybody uses
    rounds: int  # how many rounds that took, of those affordable
    accuracy: float  # the error that is guaranteed if the constants are exact
    constants: Constants
    run: Run  # `run.personal(i)` are the models

    def __repr__(self) -> str:
        return (
            f"Personalised(alpha={self.alpha:.4g} in {self.rounds} rounds, "
            f"{self.run.ledger.total:,} bytes, error at most {self.accuracy:.3g}, {self.constants})"
        )


@explain_arguments
def personalise(
    model: Model,
    clients: Clients,
    accuracy: float,
    *,
    rounds: int | None = None,
    megabytes: float | None = None,
    compressor: Compressor | None = None,
    diana: bool = False,
    optima: Optima | None = None,
    curvature: Curvature | None = None,
    evaluate: Evaluator | Sequence[Evaluator] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Personalised:
    r"""Personal models that a communication budget can pay for.

    Finds the local optima, takes the largest $\alpha$ whose FLIX problem can be solved to `accuracy`
    within the budget, and solves it: one round for $x_{\text{avg}}$, the others for gradient descent
    from there with step $1/L_\alpha$, or for DCGD or DIANA with theirs. With a generous budget $\alpha$
    is 1, the global model; with none it is 0, every client's own. Gradient descent ends sooner
    where the mean gradient proves it: $\|\nabla\tilde f(x)\|^2 / (2\mu_\alpha) \le$ `accuracy`. (Compressed
    gradients prove nothing, so DCGD and DIANA take all rounds that theory asks for.)

    Args:
        model: a strongly convex model, such as one with an `l2`. For one whose constants are estimates
            (`hf.diagnose.curvature`) nothing is guaranteed, and a warning says so.
        clients: the population; everybody takes part in every round.
        accuracy: $\epsilon$, how far above its minimum the FLIX objective may end, with a compressor
            in expectation.
        rounds: the budget in rounds.
        megabytes: or in millions of bytes, of all clients together, down and up.
        compressor: what gradients go through, an unbiased one of `hf.wires`; nothing unless given.
        diana: with a compressor, DIANA instead of DCGD, whose error stays above a floor.
        optima: local optima, if they are known (`hf.flix.local_optima`).
        curvature: smoothness and convexity, if they are known (`hf.diagnose.curvature`).
        evaluate: one or several of `hf.evaluate`.
        seed: all randomness is a function of it.
        progress: a progress bar; unless given, only where someone is looking.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> binary = hf.Examples(train.x, (train.y > 4).astype("int32"))
        >>> clients = hf.data.partition.iid(binary, clients=3)
        >>> model = hf.models.logistic_regression(l2=0.1)
        >>> found = hf.flix.personalise(model, clients, accuracy=1e-2, rounds=5)
        >>> found.accuracy <= 1e-2
        True

    Reference: Gasanov et al., "FLIX", AISTATS 2022, section 3.1.
    """
    _check_budget(rounds, megabytes)
    # What was found here needs no second look.
    known_optima = local_optima(model, clients, seed=seed) if optima is None else optima
    find = constants_of if optima is None else constants
    known = find(model, clients, known_optima, curvature, seed=seed)
    if not known.exact:
        warnings.warn(
            f"personalise: the constants of {model.name} are estimates ({known}), so the accuracy is not "
            f"guaranteed; give a curvature that you know, or take a linear model.",
            HoldfastWarning,
            stacklevel=3,
        )
    by = _method(compressor, diana)
    if rounds is None:
        assert megabytes is not None
        rounds = _affordable(clients, megabytes, known_optima, by)
    # Constants are of clients that have data.
    how = (among(compressor, np.flatnonzero(clients.sizes)), diana)
    alpha = known.alpha(rounds, accuracy, *how)
    needed = int(min(rounds, known.rounds(alpha, accuracy, *how)))
    plain = Experiment(
        flix(alpha, by, known_optima.known()),
        model,
        clients,
        Local(1.0, steps=1),
        evaluate=evaluate,
        seed=seed,
    )
    if needed == 0:
        return Personalised(alpha, 0, 0.0, known, simulate(plain, rounds=0, progress=progress))
    experiment = by_theory(plain, known)
    proof = _Certificate(known, alpha, known.step_size(alpha, *how), accuracy)
    until = proof if compressor is None else None
    run = simulate(experiment, rounds=needed, progress=progress, until=until)
    taken = run.state.round
    promised = min(known.error(alpha, taken, *how), proof.error)
    return Personalised(alpha, taken, promised, known, run)


class _Certificate:
    """Ends gradient descent when the step that it has just taken was short enough.

    The step tells the gradient before it, and after it the objective is lower still.
    """

    def __init__(self, known: Constants, alpha: float, step: float, accuracy: float) -> None:
        self._known, self._alpha, self._step, self._accuracy = known, alpha, step, accuracy
        self._before: np.ndarray | None = None
        self.error = math.inf

    def __call__(self, state: RunState) -> bool:
        flat = [np.asarray(leaf) for leaf in tree.leaves(state.params)]
        now = np.concatenate([leaf.reshape(-1).astype(np.float64) for leaf in flat])
        if self._before is not None:
            # A difference of two models is known to their last digit.
            rounding = float(np.finfo(float_type(state.params)).eps) * np.linalg.norm(now)
            length = float(np.linalg.norm(now - self._before) + rounding) / self._step
            self.error = min(self.error, self._known.certificate(self._alpha, length))
        self._before = now
        return self.error <= self._accuracy


def _method(compressor: Compressor | None, diana: bool) -> Algorithm:
    if compressor is None:
        if diana:
            raise HoldfastError(
                "personalise: diana=True without a compressor; give one, such as hf.wires.RandK(k=10).",
                about=("compressor",),
            )
        return Algorithm(name="dgd")
    return diana_of(compressor) if diana else dcgd(compressor)


def _check_budget(rounds: Any, megabytes: Any) -> None:
    if (rounds is None) == (megabytes is None):
        raise HoldfastError(
            f"personalise: rounds={rounds}, megabytes={megabytes}; give one of them as the budget.",
            about=("rounds",),
        )
    if rounds is not None:
        check_rounds(rounds)
    elif not (isinstance(megabytes, int | float | np.number) and 0 <= megabytes < math.inf):
        raise HoldfastError(
            f"personalise: megabytes={megabytes!r}; give a number of at least 0.",
            about=("megabytes",),
        )


def _affordable(clients: Clients, megabytes: float, optima: Optima, by: Algorithm) -> int:
    """How many rounds so many bytes pay for."""
    one = tree.map(lambda a: np.asarray(a)[0], optima.x)
    able, number = np.flatnonzero(clients.sizes), float_type(one).itemsize
    wire = hyper.at_round(by.wire, 1)
    each = [hyper.of_client(wire, i, float) for i in (able if hyper.varies(wire) else able[:1])]
    # Every message is whole bytes.
    bits = [b for w in each for b in (w.bits_down((one, ())), w.bits_up((one, ())))]
    later = sum(-(-b // 8) for b in bits) * len(able) // len(each)
    # x_avg costs a number more.
    left = megabytes * 1e6 - len(able) * (2 * nbytes(one) + number)
    return 0 if left < 0 else 1 + int(left // later)
