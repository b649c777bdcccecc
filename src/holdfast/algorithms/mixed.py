"""Mixed federated learning: a loss at the server beside the clients'."""

from collections.abc import Sequence

import optax

from holdfast.algorithms.parts import chain
from holdfast.core.algorithm import Algorithm, Weighting
from holdfast.core.hyper import Hyper
from holdfast.core.rule import Rule
from holdfast.errors import explain_arguments
from holdfast.rules import (
    CentralPopulationTransfer,
    OneWayTransfer,
    ParallelTraining,
    PopulationTransfer,
    ServerOptimizer,
    TwoWayTransfer,
)


def _mixed(
    rule: Rule,
    server_optimizer: optax.GradientTransformation | None,
    merge_optimizer: optax.GradientTransformation | None,
    weighting: Weighting,
    name: str,
) -> Algorithm:
    """Around a mixed rule: an optimiser of the federated move before it, of the merged one after it."""
    before = () if server_optimizer is None else (ServerOptimizer(server_optimizer),)
    after = () if merge_optimizer is None else (ServerOptimizer(merge_optimizer),)
    return Algorithm(chain(*before, rule, *after), weighting=weighting, name=name)


@explain_arguments
def parallel_training(
    federated: Hyper = 1.0,
    central: Hyper = 1.0,
    merge: tuple[Hyper, Hyper] = (1.0, 1.0),
    server_optimizer: optax.GradientTransformation | None = None,
    merge_optimizer: optax.GradientTransformation | None = None,
    weighting: Weighting = "processed",
) -> Algorithm:
    r"""Clients and server train side by side on their own losses; the moves are merged.

    $$ x \leftarrow x + m_f\,\overline{d} + m_c\, D_c $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data_or_loss, local))`; the
    client and central optimisers are those of the two `Local`s.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        merge: $(m_f, m_c)$, how the moves are merged; added unless given.
        server_optimizer: an optax optimiser of the federated move, before merging.
        merge_optimizer: an optax optimiser of the merged move.
        weighting: client weights, by examples `"processed"` as in the paper.

    Reduces to: FedAvg at `central=0`; `one_way_transfer` with one full-batch step.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> # The server's own optimum is 6; of its loss and the clients' together it is 3.
        >>> examples = hf.Examples(np.array([[1.0]]), np.array([6.0]))
        >>> local = hf.Local(learning_rate=0.05, steps=10)
        >>> server = hf.Server(examples, local)
        >>> for central in (0, 1):
        ...     algorithm = hf.algorithms.parallel_training(central=central)
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=40, server=server)
        ...     w = run.params["weights"].item()
        ...     print(f"central={central}: {w:.2f}, {run.ledger.total} bytes")
        central=0: 1.69, 640 bytes
        central=1: 3.34, 640 bytes

    Reference: Augenstein et al., "Mixed federated learning", 2022.
    """
    rule = ParallelTraining(federated, central, merge)
    return _mixed(rule, server_optimizer, merge_optimizer, weighting, "parallel_training")


@explain_arguments
def one_way_transfer(
    federated: Hyper = 1.0,
    central: Hyper = 1.0,
    server_optimizer: optax.GradientTransformation | None = None,
    weighting: Weighting = "processed",
) -> Algorithm:
    r"""The server's gradient at x is added to every client step.

    $$ y \leftarrow y - \eta\,\big(w_f\, g_i(y) + \tilde g_c\big), \quad
       \tilde g_c = \mathrm{clip}(w_c\, g_c(x)) + \lambda x $$

    Travels: the model and the server's gradient down, delta up: 1.5 times FedAvg. Needs
    `simulate(server=hf.Server(data_or_loss, local))`, of whose `Local` the batch size, the clip and the
    weight decay $\lambda$ count: the server takes no step.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        server_optimizer: an optax optimiser of the federated move.
        weighting: client weights, by examples `"processed"` as in the paper.

    Reduces to: FedAvg at `central=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> # The server's own optimum is 6; of its loss and the clients' together it is 3.
        >>> examples = hf.Examples(np.array([[1.0]]), np.array([6.0]))
        >>> local = hf.Local(learning_rate=0.05, steps=10)
        >>> server = hf.Server(examples, local)
        >>> for algorithm in (hf.algorithms.parallel_training(), hf.algorithms.one_way_transfer()):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=40, server=server)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}, {run.ledger.total} bytes")
        parallel_training 3.34, 640 bytes
        one_way_transfer 3.09, 960 bytes

    Reference: Augenstein et al., "Mixed federated learning", 2022, algorithm 2.
    """
    rule = OneWayTransfer(federated, central)
    return _mixed(rule, server_optimizer, None, weighting, "one_way_transfer")


@explain_arguments
def two_way_transfer(
    federated: Hyper = 1.0,
    central: Hyper = 1.0,
    merge: tuple[Hyper, Hyper] = (0.5, 0.5),
    server_optimizer: optax.GradientTransformation | None = None,
    merge_optimizer: optax.GradientTransformation | None = None,
    weighting: Weighting = "processed",
) -> Algorithm:
    r"""Clients and server train side by side, each adding the other's gradient of the last round.

    $$ y \leftarrow y - \eta\,(w_f\, g_i(y) + g_c), \quad
       y_c \leftarrow y_c - \eta_c\,(w_c\, g_c(y_c) + g_f) $$

    Travels: the model and the server's gradient down, delta up: 1.5 times FedAvg. Needs
    `simulate(server=hf.Server(data_or_loss, local))`.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        merge: $(m_f, m_c)$, how the moves are merged; averaged unless given.
        server_optimizer: an optax optimiser of the federated move, before merging.
        merge_optimizer: an optax optimiser of the merged move.
        weighting: client weights, by examples `"processed"` as in the paper.

    Reduces to: half a parallel step in its first round.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> # The server's own optimum is 6; of its loss and the clients' together it is 3.
        >>> examples = hf.Examples(np.array([[1.0]]), np.array([6.0]))
        >>> local = hf.Local(learning_rate=0.05, steps=10)
        >>> server = hf.Server(examples, local)
        >>> for algorithm in (hf.algorithms.parallel_training(), hf.algorithms.two_way_transfer()):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=40, server=server)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}, {run.ledger.total} bytes")
        parallel_training 3.34, 640 bytes
        two_way_transfer 3.09, 960 bytes

    Reference: Augenstein et al., "Mixed federated learning", 2022, algorithm 1.
    """
    rule = TwoWayTransfer(federated, central, merge)
    return _mixed(rule, server_optimizer, merge_optimizer, weighting, "two_way_transfer")


@explain_arguments
def population_transfer(
    populations: int = 2,
    central: Hyper | None = None,
    merge: Sequence[Hyper] | None = None,
    weighting: Weighting = "uniform",
) -> Algorithm:
    r"""Gradient transfer between the populations of `hf.join`, with a loss at the server or without.

    $$ y \leftarrow y - \eta_p\,\big(w_p\, g_i(y) + \textstyle\sum_{q \ne p} h_q + h_c\big) $$

    where $h$ are the mean gradients of the other populations, and of the server if it has a loss, in the last
    round. So each population's clients follow the whole objective $\sum_p w_p F_p + w_c f_c$, and populations
    that disagree can take several steps: its minimiser is the fixed point if clients of one population
    have the same loss, where averages of deltas are biased.

    Travels: the model, one gradient and one number down, delta up: 1.5 times FedAvg. Needs clients from
    `hf.join`, and with `central` also `simulate(server=hf.Server(data_or_loss, local))`.

    Args:
        populations: how many `hf.join` has put together.
        central: $w_c$, weight of the server's loss; None if the server has none.
        merge: how the moves are merged, one number for each population, then one for the server; averaged
            unless given. `(1, 0)` is one-way: the second population only lends the first its gradient.
        weighting: of clients within a population: `"uniform"`, `"examples"` or `"processed"`.

    Reduces to: `two_way_transfer` with one population and `central`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> sets = [hf.Examples(np.array([[a]]), np.array([a * b])) for a, b in ((1.0, 1.0), (2.0, 2.0))]
        >>> both = hf.join(
        ...     [hf.Population(hf.Clients.from_datasets([one]), model, local=local) for one in sets]
        ... )
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.population_transfer()):
        ...     run = hf.simulate(algorithm, **both, rounds=40)
        ...     print(f"{algorithm.name} {run.params['weights'].item():.2f}")
        fedavg 1.60
        population_transfer 1.80

    Reference: Augenstein et al., "Mixed federated learning", 2022, section 6.
    """
    given = None if merge is None else tuple(merge)
    rule = (
        PopulationTransfer(populations, given)
        if central is None
        else CentralPopulationTransfer(populations, given, central)
    )
    return Algorithm(rule, weighting=weighting, name="population_transfer")
