"""FSL: after the clients, the server takes steps on data of its own."""

from jax import tree

from holdfast.core.hyper import Hyper
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
        >>> hf.Chain((hf.rules.Dynamic(0.1), hf.rules.ServerLearning(gamma=0.5, pull=0.1))).rules[1]
        ServerLearning(gamma=0.5, pull=0.1)

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """

    needs = frozenset({Need.SERVER_DATA, Need.WHOLE_MODEL, Need.LAST})
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
        >>> hf.Algorithm(hf.rules.ServerAsClient(), weighting="examples").rule
        ServerAsClient()

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """

    needs = frozenset({Need.SERVER_DATA, Need.WHOLE_MODEL})

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
