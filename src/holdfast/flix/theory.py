"""What the FLIX paper proves: constants of the objective, step sizes, rates, budgets."""

import dataclasses
import math
import numbers
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast import diagnose
from holdfast.core import hyper
from holdfast.core.keys import host_key
from holdfast.data.clients import Clients
from holdfast.diagnose.curvature import Curvature
from holdfast.errors import HoldfastError, expect, explain_arguments
from holdfast.flix.optima import Optima, local_optima
from holdfast.flix.rates import Case, Descent, omegas
from holdfast.models.model import Model
from holdfast.record.identity import digest
from holdfast.rules import Flix
from holdfast.trees import Tree, describe_shapes
from holdfast.wires import Compressor

# Relative to the smoothness.
_FLAT = 1e-4


def alpha_values(owner: str, alpha: Any, clients: int) -> np.ndarray:
    """One alpha per client, on the host; refuses what is none."""
    plain = isinstance(alpha, list | tuple) or np.ndim(alpha) > 0
    Flix(hyper.PerClient(alpha) if plain else alpha)  # refuses what is not in [0, 1]
    given = alpha.values if isinstance(alpha, hyper.PerClient) else alpha
    if callable(given) or np.shape(given) not in ((), (clients,)):
        what = "a function" if callable(given) else f"{len(given)} values"
        raise HoldfastError(
            f"{owner}: alpha is {what}, for {clients} clients; give a number, or one for each.",
            about=("alpha",),
        )
    return hyper.values(alpha, clients)


@dataclasses.dataclass(frozen=True, eq=False)
class Constants:
    r"""What a FLIX problem's difficulty depends on. Clients without data are left out.

    Throughout, $\alpha$ is a number or one per client (`hf.PerClient` or an array).
    """

    smoothness: np.ndarray  # L_i
    convexity: np.ndarray  # mu_i
    optima: np.ndarray  # x_i, one row per client
    exact: bool  # whether L_i and mu_i are bounds, or estimates
    gradient_norms: np.ndarray | float = 0.0  # |g_i|, how steep f_i still is at x_i

    def __post_init__(self) -> None:
        n = len(self.optima)
        for name in ("smoothness", "convexity"):
            given = getattr(self, name)
            if np.shape(given) != (n,):
                raise HoldfastError(
                    f"constants: {name} of shape {np.shape(given)} for the optima of {n} clients; give one "
                    f"number per client.",
                    about=(name,),
                )
        if not (np.isfinite(self.smoothness) & (self.smoothness >= 0)).all():
            wrong = self.smoothness[~(self.smoothness >= 0) | ~np.isfinite(self.smoothness)]
            raise HoldfastError(
                f"constants: smoothness={wrong[0]:g}; give numbers of at least 0.",
                about=("smoothness",),
            )

    def __repr__(self) -> str:
        kind = "exact" if self.exact else "estimated"
        return (
            f"Constants({len(self.smoothness)} clients, {kind}: L={self.smoothness.mean():.4g}, "
            f"mu={self.convexity.mean():.4g}, V={self.spread(1.0):.4g}, D={self.diameter:.4g})"
        )

    def _alpha(self, alpha: Any) -> np.ndarray:
        return alpha_values("constants", alpha, len(self.smoothness))

    @property
    def case(self) -> Case:
        """What the losses are, and so which of the paper's theorems are about them."""
        if (self.convexity < 0).any():
            return "non-convex"
        return "strongly convex" if self.convexity.mean() > 0 else "convex"

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

    def _first_error(self, alpha: np.ndarray) -> tuple[float, float, float]:
        """A bound on the error at x_avg, as what is of second, first and no order in alpha."""
        w, g = self.weights(alpha), np.broadcast_to(self.gradient_norms, alpha.shape)
        away = np.linalg.norm(self.optima - w @ self.optima, axis=1)
        # Where alpha_i is 0, so is what f_i can still lose.
        steep = (g > 0) & (alpha > 0)
        sharp = np.where(self.convexity > 0, self.convexity, 1.0)
        below = np.where(self.convexity > 0, g**2 / (2 * sharp), math.inf)
        return (
            math.inf
            if self.case == "non-convex"
            else self.smoothness_at(alpha) * self.spread(alpha) / 2,
            float(np.mean(alpha * g * away)),
            float(np.mean(np.where(steep, below, 0.0))),
        )

    def _descent(
        self, alpha: np.ndarray, compressor: Compressor | None, diana: bool, beta: Any
    ) -> Descent:
        curved, (n, size) = alpha**2 * self.smoothness, self.optima.shape
        if compressor is None:
            return Descent(curved, self.convexity_at(alpha))
        expect("step_size", "compressor", compressor, Compressor, "hf.wires.RandK(k=10)")
        omega, shifts = omegas(compressor, n, size), None
        if diana:
            shifts = 1 / (1 + omega) if beta is None else hyper.values(beta, n)
        return Descent(curved, self.convexity_at(alpha), omega, shifts)

    @explain_arguments
    def error(
        self,
        alpha: Any,
        rounds: int,
        compressor: Compressor | None = None,
        diana: bool = False,
        beta: Any = None,
    ) -> float:
        r"""Bound on $\tilde f(x) - \min \tilde f$ after `rounds` rounds (theorems 1 to 4).

        The first round makes $x_{\text{avg}}$, each further one is a step of gradient descent:

        $$ \Big(1 - \frac{\mu_\alpha}{L_\alpha}\Big)^{R - 1} \Big(\frac{L_\alpha V_\alpha}{2}
           + \overline{\alpha_i |g_i| \|x_{\text{avg}} - x_i\|} + \overline{|g_i|^2 / (2 \mu_i)}\Big) $$

        where $g_i = \nabla f_i(x_i)$ is what a search that stopped early has left, 0 in the paper: by
        smoothness $f_i(T_i(x)) \le f_i(x_i) + \alpha_i \langle g_i, x - x_i \rangle +
        \frac{\alpha_i^2 L_i}{2} \|x - x_i\|^2$, and $\min f_i \ge f_i(x_i) - |g_i|^2 / (2 \mu_i)$.
        With a compressor it is of DCGD, or of DIANA, and of the expected error; DCGD's stays above a floor.

        Args:
            alpha: $\alpha_i$.
            rounds: how many, the one for $x_{\text{avg}}$ included.
            compressor: what replies go through, if anything.
            diana: whether with shifts.
            beta: their $\beta_i$; $1 / (1 + \omega_i)$ unless given.
        """
        a = self._alpha(alpha)
        if not a.any():
            return 0.0
        if rounds < 1:
            return math.inf
        first = sum(self._first_error(a))
        if rounds == 1 or first == 0:
            return first
        return self._descent(a, compressor, diana, beta).decay().after(rounds - 1) * first

    @explain_arguments
    def rounds(
        self,
        alpha: Any,
        accuracy: float,
        compressor: Compressor | None = None,
        diana: bool = False,
        beta: Any = None,
    ) -> float:
        r"""Rounds after which the error is below `accuracy`; infinity if no number is sure to do.

        0 for $\alpha = 0$, 1 if one shot will do, else 1 and the steps of gradient descent after it,
        of DCGD or of DIANA. Arguments as those of `error`.
        """
        self._check_accuracy(accuracy)
        a = self._alpha(alpha)
        if not a.any():
            return 0
        first = sum(self._first_error(a))
        if first <= accuracy:
            return 1
        descent = self._descent(a, compressor, diana, beta)
        return 1 + descent.decay().steps(first, accuracy) if first < math.inf else math.inf

    @explain_arguments
    def alpha(
        self,
        rounds: int,
        accuracy: float,
        compressor: Compressor | None = None,
        diana: bool = False,
        beta: Any = None,
    ) -> float:
        r"""The largest $\alpha$, the same for everybody, that `rounds` rounds serve to `accuracy`.

        $$ \beta \le A q^{R - 1}, \quad A = \sqrt{2\epsilon / (L V)}, \quad q = 1/\sqrt{1 - \mu / L} $$

        for exact optima and gradient descent. Arguments as those of `error`. Refused where more
        rounds prove nothing: losses that are not strongly convex, or optima too far from exact.
        """
        check_rounds(rounds)
        self._check_accuracy(accuracy)
        if rounds < 1:
            return 0.0
        ones = np.ones(len(self.smoothness))
        second, linear, constant = self._first_error(ones)
        proven = self.case == "strongly convex" if rounds > 1 else math.isfinite(second + constant)
        if not proven:
            raise HoldfastError(
                f"budget: the losses are {self.case} (mu_i from {self.convexity.min():.3g}, mean "
                f"{self.convexity.mean():.3g}{'' if self.exact else ', estimated'}), so rounds guarantee no "
                f"accuracy; give the model an l2, or a curvature that you know, or choose alpha yourself for "
                f"hf.algorithms.flix.",
                about=("model",),
            )
        decay = self._descent(ones, compressor, diana, beta).decay()
        # Whoever may take more rounds may also stop at x_avg.
        multiple = min(1.0, decay.after(rounds - 1)) if rounds > 1 else 1.0
        room = accuracy / multiple - constant if multiple else math.inf
        if room <= 0:
            raise HoldfastError(
                f"budget: the local optima are known to an error of {constant * multiple:.2g}, above "
                f"accuracy={accuracy:g}; find them with a smaller tolerance (hf.flix.local_optima).",
                about=("optima",),
            )
        steep = linear + math.sqrt(linear**2 + 4 * second * room)
        alpha = min(1.0, 2 * room / steep) if steep and room < math.inf else 1.0
        # By rounding it may be above.
        how = (compressor, diana, beta)
        while min(self.error(alpha, 1), self.error(alpha, rounds, *how)) > accuracy:
            alpha *= 1 - 2**-50
        return alpha

    def certificate(self, alpha: Any, gradient_norm: float) -> float:
        r"""$\|\nabla\tilde f(x)\|^2 / (2\mu_\alpha) \ge \tilde f(x) - \min\tilde f$: how far from its minimum
        an objective with this gradient can be; infinity unless it is strongly convex."""
        convexity = self.convexity_at(alpha)
        return gradient_norm**2 / (2 * convexity) if convexity > 0 else math.inf

    @explain_arguments
    def step_size(
        self,
        alpha: Any,
        compressor: Compressor | None = None,
        diana: bool = False,
        beta: Any = None,
        case: Case | None = None,
        rounds: int | None = None,
    ) -> float:
        r"""The paper's largest step for gradient descent, DCGD and DIANA on the FLIX objective.

        $$ 1/\gamma = L_\alpha + \tfrac2n \max_i \alpha_i^2 L_i \omega_i
           + \tfrac{4}{n \min_i \beta_i} \max_i \beta_i \omega_i \alpha_i^2 L_i $$

        without a compressor only the first term, without shifts the first two (theorems 2 to 4).
        Where the objective is convex but not strongly so, a compressed method takes a quarter of it
        (theorems 5 and 6). Where it is not convex DCGD takes $1/L_\alpha$ (theorem 7), and DIANA,
        whose shifts begin at the clients' gradients (theorem 8),

        $$ \gamma = \frac{1}{L_\alpha} \min\Big\{\frac{1}{2\sqrt{\eta}},
           \frac{2}{\sqrt{1 + 8\eta} + 1}\Big\}, \quad
           \eta = \frac{(1 + \omega)\, \omega\, (3 + 2\omega)}{n} $$

        Args:
            alpha: $\alpha_i$.
            compressor: what replies go through, if anything.
            diana: whether with shifts.
            beta: their $\beta_i$; $1 / (1 + \omega_i)$ unless given.
            case: `"strongly convex"`, `"convex"` or `"non-convex"`; what $\mu_i$ say unless given.
            rounds: for DCGD where it is not convex: the bound of theorem 7 grows with the rounds, and
                the step is made small enough for so many.
        """
        a = self._alpha(alpha)
        if not (a**2 * self.smoothness).any():
            raise HoldfastError(
                "step_size: alpha is 0 for everybody, so there is nothing to solve.",
                about=("alpha",),
            )
        return self._descent(a, compressor, diana, beta).step(case or self.case, rounds)

    def _check_accuracy(self, accuracy: float) -> None:
        wrong = not isinstance(accuracy, numbers.Real) or not 0 < accuracy < math.inf
        if wrong:
            raise HoldfastError(
                f"budget: accuracy={accuracy!r}; give a number above 0.", about=("accuracy",)
            )
        least = 2**-52 * self.smoothness_at(1.0) * self.spread(1.0) / 2
        if accuracy < least:
            raise HoldfastError(
                f"budget: accuracy={accuracy:g}, finer than numbers of 64 bits can tell for losses that "
                f"differ by {least * 2**52:.2g}; give at least {least:.2g}.",
                about=("accuracy",),
            )


def check_rounds(rounds: Any) -> None:
    """Refuse a budget that is no number of rounds."""
    if not isinstance(rounds, int | np.integer) or isinstance(rounds, bool) or rounds < 0:
        raise HoldfastError(
            f"budget: rounds={rounds!r}; give a whole number of at least 0.", about=("rounds",)
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
        optima: local optima; found unless given. How steep losses are there is measured on these clients.
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
    if optima is not None:
        expect("constants", "optima", optima, Optima, "hf.flix.local_optima(model, clients)")
        _check_optima(model, clients, optima)
        # Their norms may have been measured on other clients of the same number.
        optima = optima._replace(gradient_norms=np.full(len(clients), np.nan))
    return constants_of(model, clients, optima, curvature, seed)


def constants_of(
    model: Model, clients: Clients, optima: Optima | None, curvature: Curvature | None, seed: int
) -> Constants:
    """The constants, with optima that are known to be of this model and these clients."""
    able = np.flatnonzero(clients.sizes)
    if optima is None:
        optima = local_optima(model, clients, seed=seed)
    if np.isnan(optima.gradient_norms[able]).any():
        # Nobody has measured them, as of optima that groups share.
        measured = local_optima(model, clients, optima.known(), seed=seed)
        optima = optima._replace(gradient_norms=measured.gradient_norms)
    if curvature is None:
        curvature = diagnose.curvature(model, clients, _mean_optimum(optima, able), seed=seed)
    else:
        _check_curvature(clients, curvature)
    smoothness, convexity = curvature.smoothness[able], curvature.convexity[able]
    if not curvature.exact:
        # Estimates find a curvature of 0 only to a tolerance.
        convexity = np.where(np.abs(convexity) <= _FLAT * smoothness, 0.0, convexity)
    flat, steep = optima.flat()[able], np.asarray(optima.gradient_norms, float)[able]
    return Constants(smoothness, convexity, flat, curvature.exact, steep)


def _check_optima(model: Model, clients: Clients, optima: Optima) -> None:
    wanted = jax.eval_shape(model.init, host_key(0), tree.map(np.asarray, clients.examples))
    many = tree.map(lambda p: jax.ShapeDtypeStruct((len(clients), *p.shape), p.dtype), wanted)
    given = tree.map(np.asarray, optima.x)
    structures: list[Any] = [tree.structure(of) for of in (given, many)]
    shapes = [[leaf.shape for leaf in tree.leaves(of)] for of in (given, many)]
    if structures[0] != structures[1] or shapes[0] != shapes[1]:
        raise HoldfastError(
            f"constants: the optima have {describe_shapes(given)}, but this model and population need "
            f"{describe_shapes(many)}; give those of hf.flix.local_optima(model, clients).",
            about=("optima",),
        )


def _check_curvature(clients: Clients, curvature: Curvature) -> None:
    expect("constants", "curvature", curvature, Curvature, "hf.diagnose.curvature(model, clients)")
    if len(curvature.smoothness) != len(clients):
        raise HoldfastError(
            f"constants: the curvature of {len(curvature.smoothness)} clients for {len(clients)}; give that "
            f"of this population.",
            about=("curvature",),
        )
    if curvature.of is not None and curvature.of != digest(clients.contents):
        raise HoldfastError(
            "constants: the curvature is that of other clients; give hf.diagnose.curvature(model, clients) "
            "of this population.",
            about=("curvature",),
        )


def _mean_optimum(optima: Optima, able: np.ndarray) -> Tree:
    return tree.map(lambda a: np.asarray(a)[able].mean(axis=0), optima.x)
