"""Remember each client's latest model."""

from holdfast.core.rule import ClientView, Rule, State
from holdfast.trees import Tree


class LastModel(Rule):
    """Keep each client's latest model as its state; a client never active holds the initial model.

    Changes nothing else. FedDyn's tables report the average of these models.
    Travels: nothing more than without it.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> # The evaluator has clients remember these models by itself.
        >>> both = [hf.evaluate.on(data), hf.evaluate.client_average(data)]
        >>> algorithm = hf.algorithms.feddyn(alpha=1.0)
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=4, evaluate=both)
        >>> for row in run.history:
        ...     print(f"server {row['loss']:.3f}, average of the clients {row['average_loss']:.3f}")
        server 0.275, average of the clients 0.956
        server 0.276, average of the clients 0.288
        server 0.213, average of the clients 0.208
        server 0.201, average of the clients 0.201
    """

    neutral = True

    def init(self, params: Tree) -> State:
        return State(client=params)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return at.y
