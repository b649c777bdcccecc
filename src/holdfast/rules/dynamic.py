"""FedDyn: a linear term that makes local optima agree with the global one."""

from holdfast.core.hyper import Hyper
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt
from holdfast.trees import Tree, add, axpy, scale, zeros


class Dynamic(Rule):
    r"""Dynamic regularisation.

    $$ y_i = \arg\min_y f_i(y) + \alpha\langle h_i, y\rangle + \tfrac{\alpha}{2}\|y - x\|^2, \quad
       h_i \leftarrow h_i + (y_i - x) $$
    $$ h \leftarrow h + \tfrac{|S|}{N}\,\overline{(y_i - x)}, \quad
       x \leftarrow x + \overline{(y_i - x)} + h $$

    Travels: the model down, delta up.

    Args:
        alpha: strength of the regulariser; the paper's $\nabla_i$ is $-\alpha h_i$.

    Reduces to: exact minimisation, `alpha` large: small steps of gradient descent on the mean loss.

    Example:
        >>> import holdfast as hf
        >>> hf.Algorithm(hf.rules.Dynamic(alpha=0.1)).rule
        Dynamic(alpha=0.1)

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021.
    """

    needs = frozenset({Need.HONEST_DELTA})
    alpha: Hyper

    def init(self, params: Tree) -> State:
        return State(server=zeros(params), client=zeros(params))  # mean of the h_i, h_i

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(linear=scale(self.alpha, at.mine), pull=self.alpha)

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return delta

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return add(at.mine, heard)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        h = axpy(at.share, heard, at.state)
        return add(delta, h), h
