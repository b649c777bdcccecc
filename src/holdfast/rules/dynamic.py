"""FedDyn: a linear term that makes local optima agree with the global one."""

from types import MappingProxyType

from holdfast.core.hyper import Hyper, Range
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
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> for alpha in (0.3, 1, 3):
        ...     algorithm = hf.Algorithm(hf.rules.Dynamic(alpha), name="feddyn")
        ...     states = hf.rounds(algorithm, model, clients, local)
        ...     path = [round(next(states).params["weights"].item(), 2) for _ in range(6)]
        ...     print(f"alpha={alpha}: {path}")
        alpha=0.3: [2.43, 2.19, 1.78, 1.67, 1.69, 1.72]
        alpha=1: [2.04, 2.05, 1.9, 1.83, 1.81, 1.8]
        alpha=3: [1.39, 1.66, 1.77, 1.81, 1.82, 1.81]

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021.
    """

    needs = frozenset({Need.HONEST_DELTA})
    hears_as_sent = True
    ranges = MappingProxyType({"alpha": Range(0)})
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
