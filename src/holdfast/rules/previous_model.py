"""Remember the server's model of the round before."""

from holdfast.core.rule import Rule, ServerView, State
from holdfast.trees import Tree


class PreviousModel(Rule):
    """Keep at the server the model that a round began with, so that what clients did to it can be told.

    Changes nothing else. Travels: nothing more than without it.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Half way to 1 in every round.
        >>> data = hf.Examples(np.array([[1.0]]), np.array([1.0]))
        >>> clients = hf.data.partition.in_order(data, clients=1)
        >>> model, local = hf.models.least_squares(intercept=False), hf.Local(0.5, steps=1)
        >>> algorithm = hf.Algorithm(hf.rules.PreviousModel())
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=3)
        >>> before = run.memory(hf.rules.PreviousModel).server
        >>> before["weights"].item(), run.params["weights"].item()
        (0.75, 0.875)
    """

    neutral = True

    def init(self, params: Tree) -> State:
        return State(server=params)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        return delta, at.x
