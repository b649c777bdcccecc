"""No federation at all: every client keeps to itself."""

from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt
from holdfast.trees import Tree, zeros


class LocalOnly(Rule):
    r"""Each client goes on from its own model; the server's never moves.

    $$ y_i \leftarrow y_i - \eta\, g_i(y_i) $$

    Travels: nothing is used; with the wire `OnSite` nothing is charged.

    Reduces to: `hf.algorithms.centralised` with one client.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> algorithm = hf.Algorithm(hf.rules.LocalOnly(), hf.OnSite(), name="local_only")
        >>> for rounds in (1, 5):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=rounds)
        ...     print([round(run.personal(i)["weights"].item(), 2) for i in range(2)])
        [0.65, 1.99]
        [0.99, 2.0]
    """

    needs = frozenset({Need.WHOLE_MODEL})

    def init(self, params: Tree) -> State:
        return State(client=params)

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(start=at.mine)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return at.y

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        return zeros(delta), at.state
