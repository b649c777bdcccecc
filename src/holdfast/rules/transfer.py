"""Mixed federated learning: a loss at the server beside the clients', f = w_f f_f + w_c f_c."""

from typing import NamedTuple

from jax import tree

from holdfast.core.hyper import Hyper
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt
from holdfast.trees import Number, Tree, zeros


def _merge(weights: tuple[Hyper, Hyper], federated: Tree, central: Tree) -> Tree:
    f, c = weights
    return tree.map(lambda p, q: (f * p + c * q).astype(p.dtype), federated, central)


class ParallelTraining(Rule):
    r"""Clients and server train from the same model, each on its own loss; their moves are merged.

    $$ x \leftarrow x + m_f\, \overline{d} + m_c\, D_c $$

    Travels: the model down, delta up.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        merge: $(m_f, m_c)$; the two moves are added unless given.

    Reduces to: FedAvg at `central=0`; one-way transfer with one full-batch step and equal step sizes.
    Keeps a bias where clients and server disagree and take several steps.

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
        >>> for merge in ((1, 1), (0.5, 0.5)):
        ...     algorithm = hf.Algorithm(hf.rules.ParallelTraining(merge=merge))
        ...     states = hf.rounds(algorithm, model, clients, local, server=server)
        ...     print([round(next(states).params["weights"].item(), 2) for _ in range(5)])
        [3.5, 3.33, 3.34, 3.34, 3.34]
        [1.75, 2.58, 2.98, 3.17, 3.26]

    Reference: Augenstein et al., "Mixed federated learning", 2022.
    """

    needs = frozenset({Need.SERVER_DATA, Need.WHOLE_MODEL})
    federated: Hyper = 1.0
    central: Hyper = 1.0
    merge: tuple[Hyper, Hyper] = (1.0, 1.0)

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(weight=self.federated)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        moved, _ = at.solve(at.x, Tilt(weight=self.central))
        return _merge(self.merge, delta, moved), at.state


class OneWayTransfer(Rule):
    r"""The server's gradient at x is added to every client step.

    $$ y \leftarrow y - \eta\,\big(w_f\, g_i(y) + \tilde g_c\big), \quad
       \tilde g_c = \mathrm{clip}(w_c\, g_c(x)) + \lambda x $$

    Clip and weight decay $\lambda$ are those of the server's `Local`, whose step size and number of
    steps have no say: it takes no step.
    Travels: the model and the server's gradient down, delta up.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.

    Reduces to: FedAvg at `central=0`.
    Keeps the clients' own bias; with `ControlVariate` in a chain it reaches the joint optimum.

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
        >>> # Alone it ends at 3.09, after 1440 bytes.
        >>> rule = hf.Chain((hf.rules.ControlVariate(), hf.rules.OneWayTransfer()))
        >>> run = hf.simulate(hf.Algorithm(rule), model, clients, local, rounds=60, server=server)
        >>> print(f"{run.params['weights'].item():.2f}, {run.ledger.total} bytes")
        3.00, 1920 bytes

    Reference: Augenstein et al., "Mixed federated learning", 2022.
    """

    # One gradient a round has no momentum and no history for an optimiser.
    needs = frozenset({Need.SERVER_DATA, Need.WHOLE_MODEL, Need.PLAIN_SERVER_STEPS})
    federated: Hyper = 1.0
    central: Hyper = 1.0

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return at.direction(at.x, self.central), at.state

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(linear=at.msg, weight=self.federated)


class Gradients(NamedTuple):
    """What the server remembers: the mean gradients of both sides in the last round."""

    central: Tree
    federated: Tree


class TwoWayTransfer(Rule):
    r"""Parallel training in which each side also adds the other's mean gradient of the last round.

    $$ g_f^+ = -\frac{\sum_i d_i}{\sum_i \text{path}_i} - g_c, \quad
       g_c^+ = -\frac{D_c}{\text{path}_c} - g_f, \quad
       x \leftarrow x + m_f\,\overline{d} + m_c\, D_c $$

    Both gradients begin at zero; $g_f$ comes free from what is uploaded anyway.
    Travels: the model and the server's gradient down, delta up.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        merge: $(m_f, m_c)$; the two moves are averaged unless given.

    Reduces to: half a parallel step in its first round, when nothing has been exchanged.

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
        >>> for rule in (hf.rules.ParallelTraining(), hf.rules.TwoWayTransfer()):
        ...     states = hf.rounds(hf.Algorithm(rule), model, clients, local, server=server)
        ...     print([round(next(states).params["weights"].item(), 2) for _ in range(6)])
        [3.5, 3.33, 3.34, 3.34, 3.34, 3.34]
        [1.75, 3.77, 3.63, 3.05, 2.95, 3.07]

    Reference: Augenstein et al., "Mixed federated learning", 2022, algorithm 1 and appendix A.
    """

    needs = frozenset(
        {
            Need.SERVER_DATA,
            Need.WHOLE_MODEL,
            Need.PLAIN_STEPS,
            Need.PLAIN_SERVER_STEPS,
            Need.EVEN_RATES,
        }
    )
    # The paper's sums of moves and of steps are over clients, whatever their weight in the mean.
    counts_heads = True
    federated: Hyper = 1.0
    central: Hyper = 1.0
    merge: tuple[Hyper, Hyper] = (0.5, 0.5)

    def init(self, params: Tree) -> State:
        return State(server=Gradients(zeros(params), zeros(params)))

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return at.state.central, at.state

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(linear=at.msg, weight=self.federated)

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return delta, at.path

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        (g_c, g_f), (mean_delta, mean_path) = at.state, heard
        moved, path = at.solve(at.x, Tilt(linear=g_f, weight=self.central))

        def own(move: Tree, path: Number, other: Tree) -> Tree:
            # every step added the other side's gradient, so -move/path is the sum of both
            return tree.map(lambda m, g: (-m / path - g).astype(m.dtype), move, other)

        state = Gradients(own(moved, path, g_f), own(mean_delta, mean_path, g_c))
        return _merge(self.merge, delta, moved), state
