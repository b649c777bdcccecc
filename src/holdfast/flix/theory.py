"""What the FLIX paper proves: constants of the objective, step sizes, rates, budgets."""

import dataclasses
import math
from typing import Any

import numpy as np
from jax import tree

from holdfast import diagnose
from holdfast.core import hyper
from holdfast.data.clients import Clients
from holdfast.diagnose.curvature import Curvature
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.flix.optima import Optima, local_optima
from holdfast.models.model import Model
from holdfast.trees import Tree
from holdfast.wires import Compressor


@dataclasses.dataclass(frozen=True, eq=False)
class Constants:
    r"""What a FLIX problem's difficulty depends on. Clients without data are left out.

    Throughout, $\alpha$ is a number or one per client (`hf.PerClient` or an array).
    """

    smoothness: np.ndarray  # L_i
    convexity: np.ndarray  # mu_i
    optima: np.ndarray  # x_i, one row per client
    exact: bool  # whether L_i and mu_i are bounds, or estimates

    def __repr__(self) -> str:
        kind = "exact" if self.exact else "estimated"
        return (
            f"Constants({len(self.smoothness)} clients, {kind}: L={self.smoothness.mean():.4g}, "
            f"mu={self.convexity.mean():.4g}, V={self.spread(1.0):.4g}, D={self.diameter:.4g})"
        )

    def _alpha(self, alpha: Any) -> np.ndarray:
        return hyper.values(alpha, len(self.smoothness))

    def smoothness_at(self, alpha: Any) -> float:
        r"""$L_\alpha = \frac1n \sum_i \alpha_i^2 L_i$ (proposition 2)."""
        return float(np.mean(self._alpha(alpha) ** 2 * self.smoothness))

    def convexity_at(self, alpha: Any) -> float:
        r"""$\mu_\alpha = \frac1n \sum_i \alpha_i^2 \mu_i$ (proposition 2)."""
        return float(np.mean(self._alpha(alpha) ** 2 * self.convexity))

    def weights(self, alpha: Any) -> np.ndarray:
        r"""$w_i = \alpha_i^2 L_i / \sum_j \alpha_j^2 L_j$ (theorem 1); equal if all $\alpha_i = 0$."""
        parts = self._alpha(alpha) ** 2 * self.smoothness
        total = parts.sum()
        return parts / total if total > 0 else np.full(len(parts), 1 / len(parts))

    def spread(self, alpha: Any) -> float:
        r"""$V = \sum_i w_i \|x_i - x_{\text{avg}}\|^2$; for equal $\alpha_i$ it does not depend on them."""
        w = self.weights(alpha)
        return float(w @ np.sum((self.optima - w @ self.optima) ** 2, axis=1))

    @property
    def diameter(self) -> float:
        r"""$D = \max_{ij} \|x_i - x_j\|^2$, squared as in the paper's proof."""
        # Row by row: all pairs at once would be n^2 models.
        return max(float(np.max(np.sum((self.optima - row) ** 2, axis=1))) for row in self.optima)

    def error(self, alpha: Any, rounds: int) -> float:
        r"""Bound on $\tilde f(x) - \min \tilde f$ after `rounds` rounds (theorems 1 and 2).

        The first round makes $x_{\text{avg}}$, each further one is a step of gradient descent:

        $$ \Big(1 - \frac{\mu_\alpha}{L_\alpha}\Big)^{R - 1} \frac{L_\alpha V_\alpha}{2} $$
        """
        if not self._alpha(alpha).any():
            return 0.0
        if rounds < 1:
            return math.inf
        rate = 1 - self._conditioning(alpha)
        return rate ** (rounds - 1) * self.smoothness_at(alpha) * self.spread(alpha) / 2

    def _conditioning(self, alpha: Any) -> float:
        return min(1.0, max(0.0, self.convexity_at(alpha)) / self.smoothness_at(alpha))

    @explain_arguments
    def rounds(self, alpha: Any, accuracy: float) -> float:
        r"""Rounds after which the error is below `accuracy`; infinity if no number is sure to do.

        0 for $\alpha = 0$, 1 if one shot will do, else 1 and the steps of gradient descent after it.
        """
        _check_accuracy(accuracy)
        if not self._alpha(alpha).any():
            return 0
        first = self.error(alpha, 1)
        if first <= accuracy:
            return 1
        conditioning = self._conditioning(alpha)
        if conditioning == 0:
            return math.inf
        if conditioning == 1:
            return 2
        steps = math.ceil(math.log(accuracy / first) / math.log1p(-conditioning))
        # Rounding of the logarithms may leave it one off.
        while steps > 1 and self.error(alpha, steps) <= accuracy:
            steps -= 1
        while self.error(alpha, 1 + steps) > accuracy:
            steps += 1
        return 1 + steps

    @explain_arguments
    def alpha(self, rounds: int, accuracy: float) -> float:
        r"""The largest $\alpha$, the same for everybody, that `rounds` rounds serve to `accuracy`.

        $$ \beta \le A q^{R - 1}, \quad A = \sqrt{2\epsilon / (L V)}, \quad q = 1/\sqrt{1 - \mu / L} $$
        """
        _check_accuracy(accuracy)
        if rounds < 1:
            return 0.0
        # It grows with the square of alpha.
        worst = self.error(1.0, rounds)
        alpha = 1.0 if worst <= accuracy else math.sqrt(accuracy / worst)
        # By rounding it may be above.
        while self.error(alpha, rounds) > accuracy:
            alpha = math.nextafter(alpha, 0.0)
        return alpha

    def step_size(
        self,
        alpha: Any,
        compressor: Compressor | None = None,
        diana: bool = False,
        beta: Any = None,
        convex: bool = True,
    ) -> float:
        r"""The paper's largest step for gradient descent, DCGD and DIANA on the FLIX objective.

        $$ 1/\gamma = L_\alpha + \tfrac2n \max_i \alpha_i^2 L_i \omega_i
           + \tfrac{4}{n \min_i \beta_i} \max_i \beta_i \omega_i \alpha_i^2 L_i $$

        without a compressor only the first term, without shifts the first two. Where the objective is
        convex but not strongly so ($\mu_\alpha = 0$), a compressed method takes a quarter of it.

        Args:
            alpha: $\alpha_i$.
            compressor: what replies go through, if anything.
            diana: whether with shifts.
            beta: their $\beta_i$; $1 / (1 + \omega_i)$ unless given.
            convex: False for the step of a strongly convex problem even where $\mu_\alpha = 0$.
        """
        curved = self._alpha(alpha) ** 2 * self.smoothness
        if not curved.any():
            raise HoldfastError(
                "step_size: alpha is 0 for everybody, so there is nothing to solve.",
                about=("alpha",),
            )
        n, total = len(curved), float(curved.mean())
        if compressor is None:
            return 1 / total
        omega = self._omega(compressor)
        total += 2 / n * float(np.max(curved * omega))
        if diana:
            shifts = 1 / (1 + omega) if beta is None else hyper.values(beta, n)
            total += 4 * float(np.max(shifts * omega * curved)) / (n * float(shifts.min()))
        weakly = convex and self.convexity_at(alpha) <= 0
        return 1 / (4 * total) if weakly else 1 / total

    def _omega(self, compressor: Compressor) -> np.ndarray:
        n, size = self.optima.shape
        if not compressor.unbiased:
            raise HoldfastError(
                f"step_size: {type(compressor).__name__} is biased and has no omega; "
                f"give an unbiased compressor, or choose the step yourself.",
                about=("compressor",),
            )
        return np.array(
            [float(hyper.of_client(compressor, i, float).omega(size)) for i in range(n)]
            if hyper.varies(compressor)
            else [float(compressor.omega(size))] * n
        )


def _check_accuracy(accuracy: float) -> None:
    if not accuracy > 0:
        raise HoldfastError(
            f"budget: accuracy={accuracy}; give a number above 0.", about=("accuracy",)
        )


@explain_arguments
def constants(
    model: Model,
    clients: Clients,
    optima: Optima | None = None,
    curvature: Curvature | None = None,
    *,
    seed: int = 0,
) -> Constants:
    """The constants of a FLIX problem: given, or found on the clients.

    Args:
        model: the model.
        clients: the population.
        optima: local optima; found unless given.
        curvature: smoothness and convexity (`hf.diagnose.curvature`); exact for linear models and
            estimated around the mean of the optima for others, unless given.
        seed: of what is drawn at random.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> binary = hf.Examples(train.x, (train.y > 4).astype("int32"))
        >>> clients = hf.data.partition.iid(binary, clients=3)
        >>> known = hf.flix.constants(hf.models.logistic_regression(l2=0.1), clients)
        >>> known.rounds(alpha=0.0, accuracy=1e-3), known.rounds(alpha=0.01, accuracy=1e-2)
        (0, 1)
    """
    optima = optima or local_optima(model, clients, seed=seed)
    able = np.flatnonzero(clients.sizes)
    if curvature is None:
        curvature = diagnose.curvature(model, clients, _mean_optimum(optima, able), seed=seed)
    return Constants(
        curvature.smoothness[able], curvature.convexity[able], optima.flat()[able], curvature.exact
    )


def _mean_optimum(optima: Optima, able: np.ndarray) -> Tree:
    return tree.map(lambda a: np.asarray(a)[able].mean(axis=0), optima.x)
