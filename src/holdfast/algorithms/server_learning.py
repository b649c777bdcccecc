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
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> server = hf.Server(data, local)
        >>> for gamma in (0, 0.5, 1):
        ...     algorithm = hf.algorithms.fedavg_plus(gamma)
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20, server=server)
        ...     print(f"gamma={gamma}: {run.params['weights'].item():.2f}")
        gamma=0: 1.60
        gamma=0.5: 1.76
        gamma=1: 1.79

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    rule = chain(*server_step(server_learning_rate), ServerLearning(gamma))
    return Algorithm(rule, weighting=weighting, name="fedavg_plus")


@explain_arguments
def scaffold_plus(
    gamma: Hyper, server_learning_rate: Hyper | None = None, weighting: Weighting = "uniform"
) -> Algorithm:
    r"""SCAFFOLD in which the server is a client too, with a control variate of its own.

    $$ x \leftarrow x + \gamma(x_0 - x), \quad c \leftarrow c + \gamma\, (c_0^+ - c_0) $$

    Ends at the optimum of $F + \gamma f_0$, whatever the numbers of steps.
    Travels: the model and c down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        gamma: how much the server's turn counts; a number or a schedule over rounds.
        server_learning_rate: $\eta_g$, 1 unless given.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.

    Reduces to: `scaffold(server_learning_rate=...)` at `gamma=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> server = hf.Server(data, local)
        >>> for gamma in (0, 0.5):
        ...     algorithm = hf.algorithms.scaffold_plus(gamma)
        ...     states = hf.rounds(algorithm, model, clients, local, server=server)
        ...     path = [round(next(states).params["weights"].item(), 2) for _ in range(5)]
        ...     print(f"gamma={gamma}: {path}")
        gamma=0: [1.32, 1.69, 1.78, 1.8, 1.8]
        gamma=0.5: [1.8, 1.79, 1.8, 1.8, 1.8]

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022, with the sign of
    algorithm 2, line 9 corrected.
    """
    rule = chain(*server_step(server_learning_rate), ServerTurn(ControlVariate(), gamma))
    return Algorithm(rule, weighting=weighting, name="scaffold_plus")


@explain_arguments
def feddyn_plus(alpha: Hyper, gamma: Hyper, weighting: Weighting = "uniform") -> Algorithm:
    r"""FedDyn, after which the server goes on with its own data, held by FedDyn's regulariser.

    $$ \min_y \gamma f_0(y) - \alpha\langle h, y\rangle + \tfrac{\alpha}{2}\|y - \bar x\|^2
       \text{ from } \bar x + h $$

    Ends at the optimum of $F + \gamma f_0$ only if the server solves this problem: $K_0$ steps of size
    $\eta_0$ leave a share of about $e^{-K_0 \eta_0 \alpha}$ of the way, and it then ends between
    that optimum and the one of F alone. `scaffold_plus` ends there with any number of steps.
    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        alpha: strength of the regulariser.
        gamma: weight of the server's loss; on CIFAR-10 the paper lets it decay by 0.99 a round.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.

    Reduces to: `feddyn(alpha)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> server = hf.Server(data, local)
        >>> falling = hf.schedules.exponential(1.0, decay=0.5)
        >>> for gamma in (0, 1, falling):
        ...     algorithm = hf.algorithms.feddyn_plus(alpha=1.0, gamma=gamma)
        ...     states = hf.rounds(algorithm, model, clients, local, server=server)
        ...     print([round(next(states).params["weights"].item(), 2) for _ in range(6)])
        [2.04, 2.05, 1.9, 1.83, 1.81, 1.8]
        [1.87, 1.89, 1.86, 1.84, 1.82, 1.82]
        [1.87, 1.94, 1.92, 1.88, 1.84, 1.82]

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022, with the pull of
    algorithm 3, line 11 towards the mean of the replies.
    """
    rule = Chain((Dynamic(alpha), ServerLearning(gamma, alpha)))
    return Algorithm(rule, weighting=weighting, name="feddyn_plus")


@explain_arguments
def feddc_plus(alpha: Hyper, gamma: Hyper, weighting: Weighting = "uniform") -> Algorithm:
    r"""FedDC, after which the server goes on with its own data.

    $$ \min_y \gamma f_0(y) - \alpha\langle h, y\rangle + \tfrac{\alpha}{2}\|y - \bar x\|^2
       \text{ from } \bar x + h $$

    Ends at the optimum of $F + \gamma f_0$ only if the server solves this problem, as `feddyn_plus`
    does: $K_0 \eta_0 \alpha$ must be well above 1.
    Travels: the model and c down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        alpha: strength of the regulariser.
        gamma: weight of the server's loss; on CIFAR-10 the paper lets it decay by 0.99 a round.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.

    Reduces to: `feddc(alpha)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> server = hf.Server(data, local)
        >>> for gamma in (0, 1):
        ...     algorithm = hf.algorithms.feddc_plus(alpha=1.0, gamma=gamma)
        ...     states = hf.rounds(algorithm, model, clients, local, server=server)
        ...     path = [round(next(states).params["weights"].item(), 2) for _ in range(5)]
        ...     print(f"gamma={gamma}: {path}")
        gamma=0: [2.04, 2.19, 1.98, 1.85, 1.8]
        gamma=1: [1.87, 1.93, 1.89, 1.86, 1.84]

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    rules = (ControlVariate(), Dynamic(alpha), ServerLearning(gamma, alpha))
    return Algorithm(Chain(rules), weighting=weighting, name="feddc_plus")


@explain_arguments
def server_as_client() -> Algorithm:
    r"""Non-incremental server learning: FedAvg with the server as one more client.

    $$ x \leftarrow x + \frac{\sum_i n_i d_i + n_0 d_0}{\sum_i n_i + n_0} $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Reduces to: FedAvg over a population that includes the server.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> server = hf.Server(data, local)
        >>> algorithm = hf.algorithms.server_as_client()
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20, server=server)
        >>> # FedAvg ends at 1.60.
        >>> print(f"{run.params['weights'].item():.2f}")
        1.71

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022 (its FSL-p).
    """
    return Algorithm(ServerAsClient(), weighting="examples", name="server_as_client")
