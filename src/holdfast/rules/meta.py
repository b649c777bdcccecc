"""Meta-learning: a model that becomes good after a few local steps."""

from holdfast.core.rule import ClientView, Need, Rule
from holdfast.trees import Tree, neg


class FirstOrderMAML(Rule):
    r"""The server follows the gradient that clients see after their local steps.

    $$ y_i = x - \eta \sum_k g_i(y_i^k), \quad x \leftarrow x - \overline{\nabla f_i(y_i)} $$

    The outer step size is a `ServerOptimizer` after it in a chain.
    Travels: the model down, a gradient up.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fomaml(learning_rate=0.1).rule.rules[0]
        FirstOrderMAML()

    Reference: Finn, Abbeel and Levine, "Model-agnostic meta-learning", ICML 2017.
    """

    needs = frozenset({Need.WHOLE_MODEL})
    rewrites_delta = True

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        return neg(at.grad(at.y)), ()
