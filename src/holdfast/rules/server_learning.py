"""FSL: after the clients, the server takes steps on data of its own."""

from types import MappingProxyType

from jax import tree

from holdfast.core.hyper import Hyper, Range
from holdfast.core.rule import ClientView, Need, Rule, ServerView, Tilt
from holdfast.trees import Tree, add


class ServerLearning(Rule):
    r"""The server goes on from the aggregated model, on its own data.

    $$ \bar x = x + \eta_g\,\overline{d}, \quad
       x \leftarrow \arg\min_y \gamma f_0(y) + \tfrac{\text{pull}}{2}\|y - \bar x\|^2
       \text{ by } K_0 \text{ steps from } \bar x $$

    Stands last in a `Chain`, after what makes $\bar x$. With FedDyn's regulariser the paper's
    $-\alpha\langle h, y\rangle + \frac{\alpha}{2}\|y - \bar x\|^2$, taken from $\bar x + h$, is a
    pull of $\alpha$ towards where the server starts.
    Travels: nothing more than without it.

    Args:
        gamma: weight of the server's loss; a number or a schedule over rounds.
        pull: strength of the pull towards where the server starts; none unless given.

    Reduces to: the rules before it in the chain at `gamma=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> server = hf.Server(data, local)
        >>> for pull in (0, 1, 10):
        ...     algorithm = hf.Algorithm(hf.rules.ServerLearning(gamma=0.5, pull=pull))
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20, server=server)
        ...     print(f"pull={pull}: {run.params['weights'].item():.2f}")
        pull=0: 1.76
        pull=1: 1.71
        pull=10: 1.63

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """

    needs = frozenset({Need.SERVER_DATA, Need.WHOLE_MODEL, Need.LAST})
    ranges = MappingProxyType({"gamma": Range(0), "pull": Range(0)})
    gamma: Hyper
    pull: Hyper | None = None

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        moved, _ = at.solve(add(at.x, delta), Tilt(pull=self.pull, weight=self.gamma))
        return add(delta, moved), at.state


class ServerAsClient(Rule):
    r"""Non-incremental server learning: the server is one more client, always there.

    $$ x \leftarrow x + \frac{\sum_{i \in S} n_i d_i + n_0 d_0}{\sum_{i \in S} n_i + n_0} $$

    The baseline that incremental server learning is measured against.
    Travels: nothing more than without it.

    Reduces to: FedAvg when the server has no examples.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> # The server has both examples, so it counts as much as both clients together.
        >>> server = hf.Server(data, local)
        >>> rule = hf.rules.ServerAsClient()
        >>> algorithm = hf.Algorithm(rule, weighting="examples", name="server_as_client")
        >>> states = hf.rounds(algorithm, model, clients, local, server=server)
        >>> [round(next(states).params["weights"].item(), 2) for _ in range(4)]
        [1.51, 1.69, 1.71, 1.71]

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """

    needs = frozenset({Need.EVEN_RATES, Need.SERVER_DATA, Need.SERVER_EXAMPLES, Need.WHOLE_MODEL})
    counts_heads = True

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return at.weight

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        central, _ = at.solve(at.x)
        cohort = heard * at.heads
        share = cohort / (cohort + at.weight)
        merged = tree.map(
            lambda d, c: (share * d + (1 - share) * c).astype(d.dtype), delta, central
        )
        return merged, at.state
