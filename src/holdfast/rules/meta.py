"""Meta-learning: a model that becomes good after a few local steps."""

from holdfast.core.rule import ClientView, Need, Rule
from holdfast.trees import Tree, neg


class FirstOrderMAML(Rule):
    r"""The server follows the gradient that clients see after their local steps.

    $$ y_i = x - \eta \sum_k g_i(y_i^k), \quad x \leftarrow x - \overline{\nabla f_i(y_i)} $$

    The outer step size is a `ServerOptimizer` after it in a chain.
    Travels: the model down, a gradient up.

    Reduces to: gradient descent as the inner step size goes to 0.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> # Ten steps take the second client to its optimum anyway, so the first one decides.
        >>> algorithm = hf.Algorithm(hf.rules.FirstOrderMAML())
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20)
        >>> print(f"{run.params['weights'].item():.2f}")
        1.05

    Reference: Finn, Abbeel and Levine, "Model-agnostic meta-learning", ICML 2017.
    """

    # The gradient it sends is that of the loss, where the local steps would have a decay too.
    needs = frozenset({Need.WHOLE_MODEL, Need.PENALTY_IN_LOSS})
    rewrites_delta = True

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        return neg(at.grad(at.y)), ()
