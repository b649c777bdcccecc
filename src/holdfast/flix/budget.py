"""A personal model within a communication budget."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from holdfast.algorithms import flix, flix_one_shot
from holdfast.core.hyper import PerClient
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.diagnose.curvature import Curvature
from holdfast.engine.simulate import Run, simulate
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.evaluate import Evaluator
from holdfast.flix.optima import Optima, local_optima
from holdfast.flix.theory import Constants, constants
from holdfast.models.model import Model
from holdfast.trees import float_type, nbytes


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
    optima: Optima | None = None,
    curvature: Curvature | None = None,
    evaluate: Evaluator | Sequence[Evaluator] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Personalised:
    r"""Personal models that a communication budget can pay for.

    Finds the local optima, takes the largest $\alpha$ whose FLIX problem can be solved to `accuracy`
    within the budget, and solves it: one round for $x_{\text{avg}}$, the others for gradient descent
    from there with step $1/L_\alpha$. With a generous budget $\alpha$ is 1, the global model; with
    none it is 0, every client's own.

    Args:
        model: a convex model; for others constants are estimates and the error is not guaranteed.
        clients: the population; everybody takes part in every round.
        accuracy: $\epsilon$, how far above its minimum the FLIX objective may end.
        rounds: the budget in rounds.
        megabytes: or in millions of bytes, of all clients together, down and up.
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
    optima = optima or local_optima(model, clients, seed=seed)
    known = constants(model, clients, optima, curvature, seed=seed)
    budget = _affordable(model, clients, rounds, megabytes, optima)
    alpha = known.alpha(budget, accuracy)
    needed = int(min(budget, known.rounds(alpha, accuracy)))
    settings: dict[str, Any] = {"evaluate": evaluate, "seed": seed, "progress": progress}
    step = known.step_size(alpha) if alpha else 1.0
    local = Local(step, steps=1)
    descent = flix(alpha, solver=optima.known())
    if needed == 0:
        run = simulate(descent, model, clients, local, 0, **settings)
    else:
        smoothness = _everybody(known.smoothness, clients)
        shot = flix_one_shot(alpha, smoothness, optima.known())
        first = simulate(shot, model, clients, local, 1, **settings)
        run = simulate(descent, model, clients, local, needed, start=first.state, **settings)
    return Personalised(alpha, needed, known.error(alpha, needed), known, run)


def _everybody(values: Any, clients: Clients) -> PerClient:
    """Values of clients with data, spread over the population."""
    spread = iter(values)
    return PerClient([next(spread) if size else 0.0 for size in clients.sizes])


def _affordable(
    model: Model, clients: Clients, rounds: int | None, megabytes: float | None, optima: Optima
) -> int:
    if (rounds is None) == (megabytes is None):
        raise HoldfastError(
            f"personalise: rounds={rounds}, megabytes={megabytes}; give one of them as the budget.",
            about=("rounds",),
        )
    if rounds is not None:
        if rounds < 0:
            raise HoldfastError(
                f"personalise: rounds={rounds}; give at least 0.", about=("rounds",)
            )
        return rounds
    assert megabytes is not None
    everyone = int((clients.sizes > 0).sum())
    size = nbytes(optima.x) // len(clients)
    number = float_type(optima.x).itemsize
    # x_avg costs a number more.
    left = megabytes * 1e6 - everyone * (2 * size + number)
    return 0 if left < 0 else 1 + int(left // (everyone * 2 * size))
