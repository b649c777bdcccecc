"""FSL: the server goes on with data of its own."""

from holdfast.algorithms.parts import chain, server_step
from holdfast.core.algorithm import Algorithm, Weighting
from holdfast.core.combinators import Chain, ServerTurn
from holdfast.core.hyper import Hyper
from holdfast.errors import explain_arguments
from holdfast.rules import ControlVariate, Dynamic, ServerAsClient, ServerLearning


@explain_arguments
def fedavg_plus(
    gamma: Hyper, server_learning_rate: Hyper | None = None, weighting: Weighting = "examples"
) -> Algorithm:
    r"""FedAvg, after which the server goes on with its own data.

    $$ \bar x = x + \eta_g\,\overline{d}, \quad y \leftarrow y - \eta_0 \gamma\, g_0(y)
       \text{ from } \bar x $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        gamma: weight of the server's loss; a number or a schedule over rounds.
        server_learning_rate: $\eta_g$, 1 unless given; the paper takes the root of the cohort's size.
        weighting: mean by number of `"examples"`, or `"uniform"`.

    Reduces to: `fedavg(server_learning_rate)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedavg_plus(gamma=0.5).rule
        ServerLearning(gamma=0.5, pull=None)

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    rule = chain(*server_step(server_learning_rate), ServerLearning(gamma))
    return Algorithm(rule, weighting=weighting, name="fedavg_plus")


@explain_arguments
def scaffold_plus(gamma: Hyper, server_learning_rate: Hyper | None = None) -> Algorithm:
    r"""SCAFFOLD in which the server is a client too, with a control variate of its own.

    $$ x \leftarrow x + \gamma(x_0 - x), \quad c \leftarrow c + \gamma\, (c_0^+ - c_0) $$

    Travels: the model and c down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        gamma: how much the server's turn counts; a number or a schedule over rounds.
        server_learning_rate: $\eta_g$, 1 unless given.

    Reduces to: `scaffold(server_learning_rate=...)` at `gamma=0`.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.scaffold_plus(gamma=0.5).rule
        ServerTurn(inner=ControlVariate(damping=None), gamma=0.5)

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022, with the sign of
    algorithm 2, line 9 corrected.
    """
    rule = chain(*server_step(server_learning_rate), ServerTurn(ControlVariate(), gamma))
    return Algorithm(rule, name="scaffold_plus")


@explain_arguments
def feddyn_plus(alpha: Hyper, gamma: Hyper) -> Algorithm:
    r"""FedDyn, after which the server goes on with its own data, held by FedDyn's regulariser.

    $$ \min_y \gamma f_0(y) - \alpha\langle h, y\rangle + \tfrac{\alpha}{2}\|y - \bar x\|^2
       \text{ from } \bar x + h $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        alpha: strength of the regulariser.
        gamma: weight of the server's loss; the paper lets it decay by 0.99 a round.

    Reduces to: `feddyn(alpha)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> gamma = hf.schedules.exponential(0.1, 0.99)
        >>> hf.algorithms.feddyn_plus(alpha=0.1, gamma=gamma).name
        'feddyn_plus'

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022, with the pull of
    algorithm 3, line 11 towards the mean of the replies.
    """
    return Algorithm(Chain((Dynamic(alpha), ServerLearning(gamma, alpha))), name="feddyn_plus")


@explain_arguments
def feddc_plus(alpha: Hyper, gamma: Hyper) -> Algorithm:
    r"""FedDC, after which the server goes on with its own data.

    $$ \min_y \gamma f_0(y) - \alpha\langle h, y\rangle + \tfrac{\alpha}{2}\|y - \bar x\|^2
       \text{ from } \bar x + h $$

    Travels: the model and c down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        alpha: strength of the regulariser.
        gamma: weight of the server's loss; the paper lets it decay by 0.99 a round.

    Reduces to: `feddc(alpha)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.feddc_plus(alpha=0.1, gamma=0.05).name
        'feddc_plus'

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    rules = (ControlVariate(), Dynamic(alpha), ServerLearning(gamma, alpha))
    return Algorithm(Chain(rules), name="feddc_plus")


@explain_arguments
def server_as_client() -> Algorithm:
    r"""Non-incremental server learning: FedAvg with the server as one more client.

    $$ x \leftarrow x + \frac{\sum_i n_i d_i + n_0 d_0}{\sum_i n_i + n_0} $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Reduces to: FedAvg over a population that includes the server.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.server_as_client().weighting
        'examples'

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022 (its FSL-p).
    """
    return Algorithm(ServerAsClient(), weighting="examples", name="server_as_client")
