"""Personal models, few bytes, and meta-learning."""

import dataclasses
from typing import Literal

from holdfast.algorithms.parts import chain, server_step
from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Chain
from holdfast.core.hyper import Hyper
from holdfast.core.rule import Rule
from holdfast.errors import HoldfastError, expect, explain_arguments
from holdfast.rules import FirstOrderMAML, Flix, OneShot
from holdfast.solvers import LBFGS, Solver
from holdfast.wires import Compressed, Compressor, Diana

_DGD = Algorithm(name="dgd")
_FIND = LBFGS()


@explain_arguments
def flix(alpha: Hyper, by: Algorithm = _DGD, solver: Solver = _FIND) -> Algorithm:
    r"""A global model trained for its mixtures with every client's own optimum.

    $$ \min_x \tfrac1n \sum_i f_i\big(\alpha_i x + (1 - \alpha_i) x_i\big), \quad
       x_i = \arg\min f_i $$

    Deployed on client i: $T_i(x) = \alpha_i x + (1 - \alpha_i) x_i$, which is `run.personal(i)`.
    Travels: what the method that solves it sends; nothing for clients with $\alpha_i = 0$.

    Tells: what the method that solves it tells. The optimum $x_i$ stays with its client, and shows in its
    updates, which are taken at $T_i(x)$; that nothing travels tells $\alpha_i = 0$.

    Args:
        alpha: $\alpha_i$ in [0, 1]: a number, one per client, or `hf.PerClient` of a function of the
            client's examples.
        by: the method that solves the objective. With one full-batch step in `Local`, the default is
            distributed gradient descent; `hf.algorithms.dcgd`, `diana`, `scaffold`, `feddyn`, ...
        solver: how clients find $x_i$, from `hf.solvers`.

    Reduces to: `by` at `alpha=1`, bit for bit; local training at `alpha=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> solver = hf.solvers.GradientDescent(step=0.25)
        >>> for alpha in (0.0, 0.5, 1.0):
        ...     algorithm = hf.algorithms.flix(alpha, hf.algorithms.fedavg(), solver)
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=100)
        ...     own = [round(run.personal(i)["weights"].item(), 2) for i in range(2)]
        ...     print(f"alpha={alpha}: {own}, {run.ledger.total} bytes")
        alpha=0.0: [1.0, 2.0], 0 bytes
        alpha=0.5: [1.4, 1.9], 1600 bytes
        alpha=1.0: [1.8, 1.8], 1600 bytes

    Reference: Gasanov et al., "FLIX", AISTATS 2022.
    """
    expect("flix", "by", by, Algorithm, "hf.algorithms.diana(hf.wires.RandK(k=10))")
    if by.regroup is not None:
        raise HoldfastError(
            f"flix: {by.name} pools the clients, so there are none to personalise for; "
            f"give a federated method.",
            about=("by",),
        )
    rules = by.rule.rules if isinstance(by.rule, Chain) else (by.rule,)
    rules = tuple(rule for rule in rules if rule != Rule())
    rule = chain(Flix(alpha, solver), *rules)
    return dataclasses.replace(by, rule=rule, name=f"flix, {by.name}")


@explain_arguments
def flix_one_shot(alpha: Hyper, smoothness: Hyper, solver: Solver = _FIND) -> Algorithm:
    r"""FLIX in a single round: the mean of local optima, weighted by smoothness.

    $$ x_{\text{avg}} = \sum_i w_i x_i, \quad w_i = \frac{\alpha_i^2 L_i}{\sum_j \alpha_j^2 L_j} $$

    Travels: the model down, one model and a number up. One round is all it needs.

    Tells: the client's own optimum as it is, a model trained on its data alone, and $\alpha_i^2 L_i$.

    Args:
        alpha: $\alpha_i$ in [0, 1]: a number or one per client.
        smoothness: $L_i$, a number or one per client; see `hf.diagnose.curvature`.
        solver: how clients find $x_i$, from `hf.solvers`.

    Reduces to: the plain mean of local optima for equal $\alpha_i$ and $L_i$.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> solver = hf.solvers.GradientDescent(step=0.25)
        >>> for smoothness in ([1.0, 1.0], [1.0, 4.0]):
        ...     algorithm = hf.algorithms.flix_one_shot(0.1, hf.PerClient(smoothness), solver)
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=1)
        ...     print(f"{run.params['weights'].item():.2f}, {run.ledger.total} bytes")
        1.50, 24 bytes
        1.80, 24 bytes

    Reference: Gasanov et al., "FLIX", AISTATS 2022, theorem 1.
    """
    return Algorithm(OneShot(Flix(alpha, solver), smoothness), name="flix, one shot")


@explain_arguments
def dcgd(compressor: Compressor) -> Algorithm:
    r"""Distributed compressed gradient descent: every reply is compressed.

    $$ x \leftarrow x - \tfrac{\gamma}{n} \sum_i C_i\big(\nabla f_i(x)\big) $$

    Gradient descent with one full-batch step in `Local`; local steps are compressed just as well.
    Travels: the model down, a code up.

    Args:
        compressor: any of `hf.wires`.

    Reduces to: FedAvg (uniform) if nothing is lost.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.dcgd(hf.wires.Natural())):
        ...     states = hf.rounds(algorithm, model, clients, local)
        ...     path = [round(next(states).params["weights"].item(), 2) for _ in range(40)]
        ...     print(path[-6:], next(states).ledger.bytes_up, "bytes up")
        [1.8, 1.8, 1.8, 1.8, 1.8, 1.8] 328 bytes up
        [1.77, 1.77, 1.77, 1.8, 1.77, 1.77] 164 bytes up

    Reference: Khirirat et al., "Distributed learning with compressed gradients", 2018.
    """
    return Algorithm(wire=Compressed(compressor), name="dcgd")


@explain_arguments
def diana(
    compressor: Compressor,
    beta: Hyper | None = None,
    start: Literal["zeros", "gradients"] = "zeros",
) -> Algorithm:
    r"""Compressed gradient descent with shifts that learn, so that the optimum is reached.

    $$ m_i = C_i\big(\nabla f_i(x) - h_i\big), \quad h_i \leftarrow h_i + \beta_i m_i, \quad
       x \leftarrow x - \gamma (h + \overline{m_i}) $$

    Travels: the model down, a code up.

    Tells: the shift $h_i$, to which codes add up: the client's gradient before any noise or bound could be
    put, so `hf.privacy.Gaussian` refuses it; `hf.privacy.LocalGaussian` puts its noise before the code.

    Args:
        compressor: any of `hf.wires`; with a biased one this is EF21.
        beta: $\beta$, a number or one per client; unless given, $1 / (1 + \omega)$, and 1 for a biased
            compressor.
        start: what the shifts $h_i$ are at first: `"zeros"`, or `"gradients"`, those of the clients of the
            first round, in which replies travel whole. The FLIX paper's corollary 2 and theorem 8 have
            the latter.

    Reduces to: `dcgd` at `beta=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> for beta in (0.0, 0.5):
        ...     algorithm = hf.algorithms.diana(hf.wires.Natural(), beta=beta)
        ...     states = hf.rounds(algorithm, model, clients, local)
        ...     path = [round(next(states).params["weights"].item(), 2) for _ in range(40)]
        ...     print(f"beta={beta}: {path[-6:]}")
        beta=0.0: [1.77, 1.77, 1.77, 1.8, 1.77, 1.77]
        beta=0.5: [1.8, 1.8, 1.8, 1.8, 1.8, 1.8]

    Reference: Mishchenko et al., "Distributed learning with compressed gradient differences", 2019.
    """
    return Algorithm(wire=Diana(compressor, beta, start), name="diana")


@explain_arguments
def fomaml(learning_rate: Hyper = 1.0) -> Algorithm:
    r"""First-order model-agnostic meta-learning.

    $$ x \leftarrow x - \eta_o\, \overline{\nabla f_i(y_i)}, \quad y_i = x \text{ after local steps} $$

    `Local` is the inner loop. What a client uses, and is judged by, is x after such steps of its own:
    `run.personal(i)`, `hf.evaluate.personal(test)`. Other steps: `dataclasses.replace(algorithm,
    adapt=hf.Local(...))`, in a file `adapt = { steps = 1 }`.
    Travels: the model down, a gradient up.

    Args:
        learning_rate: $\eta_o$, the outer step size.

    Reduces to: gradient descent as the inner step size goes to 0.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=3)
        >>> algorithm = hf.algorithms.fomaml(learning_rate=0.5)
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20)
        >>> own = [round(run.personal(i)["weights"].item(), 2) for i in range(2)]
        >>> print(f"{run.params['weights'].item():.2f}, which three local steps make {own}")
        1.54, which three local steps make [1.4, 1.9]

    Reference: Finn, Abbeel and Levine, "Model-agnostic meta-learning", ICML 2017.
    """
    return Algorithm(
        Chain((FirstOrderMAML(), *server_step(learning_rate))), name="fomaml", adapt=True
    )


@explain_arguments
def reptile(learning_rate: Hyper = 1.0) -> Algorithm:
    r"""Meta-learning by moving towards the clients' adapted models.

    $$ x \leftarrow x + \eta_o\, \overline{(y_i - x)} $$

    `Local` is the inner loop. What a client uses, and is judged by, is x after such steps of its own:
    `run.personal(i)`, `hf.evaluate.personal(test)`. Other steps: `dataclasses.replace(algorithm,
    adapt=hf.Local(...))`, in a file `adapt = { steps = 1 }`.
    Travels: the model down, delta up.

    Args:
        learning_rate: $\eta_o$, the outer step size.

    Reduces to: FedAvg (uniform) at `learning_rate=1`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=3)
        >>> algorithm = hf.algorithms.reptile(learning_rate=0.5)
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20)
        >>> own = [round(run.personal(i)["weights"].item(), 2) for i in range(2)]
        >>> print(f"{run.params['weights'].item():.2f}, which three local steps make {own}")
        1.74, which three local steps make [1.54, 1.94]

    Reference: Nichol, Achiam and Schulman, "On first-order meta-learning algorithms", 2018.
    """
    return Algorithm(chain(*server_step(learning_rate)), name="reptile", adapt=True)
