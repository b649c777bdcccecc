"""What every comparison needs: FedAvg and its relatives, and the two ends."""

import optax

from holdfast.algorithms.parts import chain, server_step
from holdfast.core.algorithm import Algorithm, Weighting
from holdfast.core.hyper import Hyper
from holdfast.core.rule import Rule
from holdfast.core.wire import OnSite
from holdfast.data.clients import Clients
from holdfast.errors import explain_arguments
from holdfast.rules import LocalOnly, Proximal, ServerOptimizer


@explain_arguments
def fedavg(
    server_learning_rate: Hyper | None = None, weighting: Weighting = "examples"
) -> Algorithm:
    r"""Federated averaging: local steps, then the mean of the deltas.

    $$ x \leftarrow x + \eta_g \sum_i w_i\,(y_i - x) $$

    Travels: the model down, delta up: the unit of the ledger.

    Args:
        server_learning_rate: $\eta_g$, 1 unless given; a number or a schedule over rounds.
        weighting: mean by number of `"examples"`, or `"uniform"`.

    Reduces to: gradient descent with one full-batch step on every client.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> for steps in (1, 10):
        ...     local = hf.Local(learning_rate=0.1, steps=steps)
        ...     run = hf.simulate(hf.algorithms.fedavg(), model, clients, local, rounds=30)
        ...     w = run.params["weights"].item()
        ...     print(f"steps={steps}: {w:.2f}, {run.ledger.total} bytes")
        steps=1: 1.80, 480 bytes
        steps=10: 1.60, 480 bytes

    Reference: McMahan et al., "Communication-efficient learning of deep networks", AISTATS 2017.
    """
    rule = chain(*(server_step(server_learning_rate) or (Rule(),)))
    return Algorithm(rule, weighting=weighting, name="fedavg")


@explain_arguments
def fedprox(mu: Hyper, weighting: Weighting = "examples") -> Algorithm:
    r"""FedAvg with a pull towards the model received.

    $$ \min_y f_i(y) + \tfrac{\mu}{2}\|y - x\|^2 $$

    Travels: the model down, delta up.

    Args:
        mu: strength of the pull.
        weighting: mean by number of `"examples"`, or `"uniform"`.

    Reduces to: FedAvg at `mu=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> for mu in (0, 1, 10):
        ...     run = hf.simulate(hf.algorithms.fedprox(mu), model, clients, local, rounds=30)
        ...     print(f"mu={mu}: {run.params['weights'].item():.2f}")
        mu=0: 1.60
        mu=1: 1.64
        mu=10: 1.76

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """
    return Algorithm(Proximal(mu), weighting=weighting, name="fedprox")


@explain_arguments
def fedadam(
    learning_rate: Hyper = 0.01, b1: Hyper = 0.9, b2: Hyper = 0.99, eps: Hyper = 1e-3
) -> Algorithm:
    r"""FedAvg with Adam at the server.

    $$ x \leftarrow x + \eta_s\, \frac{\hat m}{\sqrt{\hat v} + \tau} $$

    Travels: the model down, delta up.

    Args:
        learning_rate: $\eta_s$, the server's step size.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: the paper's $\tau$. Moments are optax's, with bias correction, which the paper leaves out.

    Reduces to: FedAvg of rescaled coordinates.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> # The local steps are short, and the server makes up for it.
        >>> local = hf.Local(learning_rate=0.02, steps=1)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.fedadam(learning_rate=0.1)):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}")
        fedavg 1.15
        fedadam 1.73

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """
    settings = {"learning_rate": learning_rate, "b1": b1, "b2": b2, "eps": eps}
    return Algorithm(ServerOptimizer(optax.adam, settings), weighting="examples", name="fedadam")


@explain_arguments
def fedyogi(
    learning_rate: Hyper = 0.01, b1: Hyper = 0.9, b2: Hyper = 0.99, eps: Hyper = 1e-3
) -> Algorithm:
    r"""FedAvg with Yogi at the server.

    $$ v \leftarrow v - (1 - \beta_2)\, d^2\, \mathrm{sign}(v - d^2) $$

    Travels: the model down, delta up.

    Args:
        learning_rate: the server's step size.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: the paper's $\tau$.

    Reduces to: FedAdam's first moment with a slower second one.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> # The local steps are short, and the server makes up for it.
        >>> local = hf.Local(learning_rate=0.02, steps=1)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.fedyogi(learning_rate=0.1)):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}")
        fedavg 1.15
        fedyogi 1.69

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """
    settings = {"learning_rate": learning_rate, "b1": b1, "b2": b2, "eps": eps}
    return Algorithm(ServerOptimizer(optax.yogi, settings), weighting="examples", name="fedyogi")


@explain_arguments
def fedavgm(learning_rate: Hyper = 1.0, momentum: Hyper = 0.9) -> Algorithm:
    r"""FedAvg with momentum at the server.

    $$ v \leftarrow \beta v + \overline{d}, \quad x \leftarrow x + \eta_s v $$

    Travels: the model down, delta up.

    Args:
        learning_rate: $\eta_s$, the server's step size.
        momentum: $\beta$.

    Reduces to: FedAvg at `momentum=0`, `learning_rate=1`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> # The local steps are short, and the server makes up for it.
        >>> local = hf.Local(learning_rate=0.02, steps=1)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.fedavgm(momentum=0.6)):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}")
        fedavg 1.15
        fedavgm 1.73

    Reference: Hsu et al., "Measuring the effects of non-identical data distribution", 2019.
    """
    settings = {"learning_rate": learning_rate, "momentum": momentum}
    return Algorithm(ServerOptimizer(optax.sgd, settings), weighting="examples", name="fedavgm")


@explain_arguments
def centralised() -> Algorithm:
    r"""Training on everybody's data in one place: the upper end of a comparison.

    $$ x \leftarrow x - \eta\, g(x) \text{ on } \textstyle\bigcup_i D_i $$

    A round is one `Local` (say, 5 epochs) over the pooled data. Travels: nothing.

    Reduces to: any method with one client.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.centralised()):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}, {run.ledger.total} bytes")
        fedavg 1.60, 320 bytes
        centralised 1.80, 0 bytes
    """
    return Algorithm(Rule(), OnSite(), regroup=Clients.pooled, name="centralised")


@explain_arguments
def local_only() -> Algorithm:
    r"""Every client trains alone: the lower end of a comparison.

    $$ y_i \leftarrow y_i - \eta\, g_i(y_i) $$

    The server's model never moves; look at the clients' own (`hf.evaluate.personal`).
    Travels: nothing.

    Reduces to: `centralised` with one client.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> run = hf.simulate(hf.algorithms.local_only(), model, clients, local, rounds=20)
        >>> own = [round(run.personal(i)["weights"].item(), 2) for i in range(2)]
        >>> print(f"{own}, {run.ledger.total} bytes")
        [1.0, 2.0], 0 bytes
    """
    return Algorithm(LocalOnly(), OnSite(), name="local_only")
