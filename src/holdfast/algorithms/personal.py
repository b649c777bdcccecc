"""Personal models, few bytes, and meta-learning."""

import dataclasses

from holdfast.algorithms.parts import chain, server_step
from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Chain
from holdfast.core.hyper import Hyper
from holdfast.core.rule import Rule
from holdfast.errors import HoldfastError, explain_arguments
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

    Args:
        alpha: $\alpha_i$ in [0, 1]: a number, one per client, or `hf.PerClient` of a function of the
            client's examples.
        by: the method that solves the objective. With one full-batch step in `Local`, the default is
            distributed gradient descent; `hf.algorithms.dcgd`, `diana`, `scaffold`, `feddyn`, ...
        solver: how clients find $x_i$, from `hf.solvers`.

    Reduces to: `by` at `alpha=1`, bit for bit; local training at `alpha=0`.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.flix(0.3, by=hf.algorithms.diana(hf.wires.RandK(k=5))).name
        'flix, diana'

    Reference: Gasanov et al., "FLIX", AISTATS 2022.
    """
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

    Args:
        alpha: $\alpha_i$ in [0, 1]: a number or one per client.
        smoothness: $L_i$, a number or one per client; see `hf.diagnose.curvature`.
        solver: how clients find $x_i$, from `hf.solvers`.

    Reduces to: the plain mean of local optima for equal $\alpha_i$ and $L_i$.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.flix_one_shot(0.1, smoothness=hf.PerClient([1.0, 2.0])).name
        'flix, one shot'

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
        >>> hf.algorithms.dcgd(hf.wires.RandK(k=5)).name
        'dcgd'

    Reference: Khirirat et al., "Distributed learning with compressed gradients", 2018.
    """
    return Algorithm(wire=Compressed(compressor), name="dcgd")


@explain_arguments
def diana(compressor: Compressor, beta: Hyper | None = None) -> Algorithm:
    r"""Compressed gradient descent with shifts that learn, so that the optimum is reached.

    $$ m_i = C_i\big(\nabla f_i(x) - h_i\big), \quad h_i \leftarrow h_i + \beta_i m_i, \quad
       x \leftarrow x - \gamma (h + \overline{m_i}) $$

    Travels: the model down, a code up.

    Args:
        compressor: any of `hf.wires`; with a biased one this is EF21.
        beta: $\beta$, a number or one per client; unless given, $1 / (1 + \omega)$, and 1 for a biased
            compressor.

    Reduces to: `dcgd` at `beta=0`.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.diana(hf.wires.RandK(k=5)).name
        'diana'

    Reference: Mishchenko et al., "Distributed learning with compressed gradient differences", 2019.
    """
    return Algorithm(wire=Diana(compressor, beta), name="diana")


@explain_arguments
def fomaml(learning_rate: Hyper = 1.0) -> Algorithm:
    r"""First-order model-agnostic meta-learning.

    $$ x \leftarrow x - \eta_o\, \overline{\nabla f_i(y_i)}, \quad y_i = x \text{ after local steps} $$

    `Local` is the inner loop. Personal models are x after a few local steps:
    `hf.evaluate.personal(test, adapt=hf.Local(...))`.
    Travels: the model down, a gradient up.

    Args:
        learning_rate: $\eta_o$, the outer step size.

    Reduces to: gradient descent as the inner step size goes to 0.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fomaml(learning_rate=0.1).name
        'fomaml'

    Reference: Finn, Abbeel and Levine, "Model-agnostic meta-learning", ICML 2017.
    """
    return Algorithm(Chain((FirstOrderMAML(), *server_step(learning_rate))), name="fomaml")


@explain_arguments
def reptile(learning_rate: Hyper = 1.0) -> Algorithm:
    r"""Meta-learning by moving towards the clients' adapted models.

    $$ x \leftarrow x + \eta_o\, \overline{(y_i - x)} $$

    `Local` is the inner loop. Personal models are x after a few local steps:
    `hf.evaluate.personal(test, adapt=hf.Local(...))`.
    Travels: the model down, delta up.

    Args:
        learning_rate: $\eta_o$, the outer step size.

    Reduces to: FedAvg (uniform) at `learning_rate=1`.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.reptile(learning_rate=0.5).name
        'reptile'

    Reference: Nichol, Achiam and Schulman, "On first-order meta-learning algorithms", 2018.
    """
    return Algorithm(chain(*server_step(learning_rate)), name="reptile")
