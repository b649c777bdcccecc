"""No federation at all: every client keeps to itself."""

from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt
from holdfast.trees import Tree, zeros


class LocalOnly(Rule):
    r"""Each client goes on from its own model; the server's never moves.

    $$ y_i \leftarrow y_i - \eta\, g_i(y_i) $$

    Travels: nothing is used; with the wire `OnSite` nothing is charged.

    Example:
        >>> import holdfast as hf
        >>> hf.Algorithm(hf.rules.LocalOnly(), hf.OnSite()).rule
        LocalOnly()
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
