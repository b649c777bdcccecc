"""Remember each client's latest model."""

from holdfast.core.rule import ClientView, Rule, State
from holdfast.trees import Tree


class LastModel(Rule):
    """Keep each client's latest model as its state; a client never active holds the initial model.

    Changes nothing else. FedDyn's tables report the average of these models.
    Travels: nothing more than without it.

    Example:
        >>> import holdfast as hf
        >>> watched = hf.Chain((hf.rules.Dynamic(alpha=0.1), hf.rules.LastModel()))
    """

    neutral = True

    def init(self, params: Tree) -> State:
        return State(client=params)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return at.y
