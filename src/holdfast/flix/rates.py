"""Step sizes and rates of gradient descent, DCGD and DIANA, as the FLIX paper's theorems have them."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from holdfast.core import hyper
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.wires import Compressor

Case = Literal["strongly convex", "convex", "non-convex"]
CASES: tuple[Case, ...] = ("strongly convex", "convex", "non-convex")


class Decay(NamedTuple):
    """The expected error after k steps, as a multiple of a bound on the error before them."""

    factor: float
    rate: float
    floor: float

    def after(self, steps: int) -> float:
        """That multiple."""
        return self.factor * (self.rate**steps + self.floor)

    def steps(self, first: float, accuracy: float) -> float:
        """The least number of steps, from 1, that bring an error of `first` to `accuracy`; it may be none."""
        left = accuracy / first / self.factor - self.floor
        if not left > 1e-12 * self.floor or self.rate >= 1:
            return math.inf
        steps = 1 if self.rate <= 0 else max(1, math.ceil(math.log(left) / math.log(self.rate)))
        # Rounding of the logarithms may leave it one off.
        while steps > 1 and self.after(steps - 1) * first <= accuracy:
            steps -= 1
        while self.after(steps) * first > accuracy:
            steps += 1
        return steps


class Descent(NamedTuple):
    r"""A method on the FLIX objective, whose terms are $\alpha_i^2 L_i$-smooth."""

    curved: np.ndarray  # alpha_i^2 L_i
    convexity: float  # mu_alpha
    omega: np.ndarray | None = None  # of the compressors, one per client; None is gradient descent
    shifts: np.ndarray | None = None  # DIANA's beta_i; None is DCGD

    @property
    def _smoothness(self) -> float:
        return float(self.curved.mean())

    @property
    def _noisiest(self) -> float:
        return 0.0 if self.omega is None else float(np.max(self.curved * self.omega))

    def step(self, case: Case, rounds: int | None = None) -> float:
        """The largest step of its theorem."""
        if case not in CASES:
            raise HoldfastError(
                f"step_size: case={case!r}; {did_you_mean(str(case), CASES)}", about=("case",)
            )
        n, total = len(self.curved), self._smoothness
        if self.omega is None:
            return 1 / total
        if self.shifts is None and case == "non-convex":
            return self._nonconvex_dcgd(rounds)
        if self.shifts is not None and case == "non-convex":
            return self._nonconvex_diana()
        total += 2 / n * self._noisiest
        if self.shifts is not None:
            _check_shifts(self.shifts, 0.0, 1 / (1 + self.omega), "theorems 4 and 6")
            steepest = float(np.max(self.shifts * self.omega * self.curved))
            total += 4 * steepest / (n * float(self.shifts.min()))
        return 1 / (4 * total) if case == "convex" else 1 / total

    def _nonconvex_dcgd(self, rounds: int | None) -> float:
        largest = 1 / self._smoothness
        if rounds is None or self._noisiest == 0:
            return largest
        # The bound of theorem 7 grows as (1 + 2 L M step^2 / n)^rounds: here by less than e.
        n, product = len(self.curved), self._smoothness * self._noisiest
        return min(largest, math.sqrt(n / (2 * product * rounds)))

    def _nonconvex_diana(self) -> float:
        assert self.omega is not None
        assert self.shifts is not None
        # Theorem 8 has one omega for all; what the noisiest compressor satisfies, all do.
        omega, n = float(self.omega.max()), len(self.curved)
        if np.ptp(self.shifts) > 1e-9 * self.shifts.max():
            raise HoldfastError(
                f"step_size: theorem 8, for losses that are not convex, needs the same beta for everybody; "
                f"give beta={1 / (1 + omega):.4g}, 1 / (1 + omega) of the noisiest compressor.",
                about=("beta",),
            )
        widest = min(
            1 + 1 / (2 * (1 + omega)),
            math.sqrt(1.5 + omega + 1 / (2 * omega)) if omega else math.inf,
        )
        _check_shifts(self.shifts, 1 / (1 + omega), np.asarray(widest / (1 + omega)), "theorem 8")
        eta = (1 + omega) * omega * (1 + 2 * (1 + omega)) / n
        first = 1 / (2 * math.sqrt(eta)) if eta else math.inf
        return min(first, 2 / (math.sqrt(1 + 8 * eta) + 1)) / self._smoothness

    def decay(self) -> Decay:
        r"""How the expected error of a strongly convex problem falls, at the largest step.

        Of theorems 3 and 4, with $\|x^0 - x_*\|^2 \le 2E/\mu_\alpha$ where the error begins at
        $E \ge \tilde f(x^0) - \frac1n\sum_i \min f_i$. The squared gradients at the optimum that they
        contain are at most $2 \alpha_i^2 L_i$ times what $f_i$ is above its minimum there (the paper's
        lemma 5), so weighted by $\omega_i$ their mean is at most $2 M E$,
        $M = \max_i \omega_i \alpha_i^2 L_i$. (Corollary 1 bounds them by the largest distance of optima
        instead, and leaves out a factor $\max_i L_i$.) The same holds of DIANA's first shifts,
        whether they are 0 or the clients' gradients at $x^0$.
        """
        n, smoothness = len(self.curved), self._smoothness
        if self.omega is None:
            conditioning = min(1.0, max(0.0, self.convexity) / smoothness)
            return Decay(1.0, 1 - conditioning, 0.0)
        if not self.convexity > 0:
            return Decay(math.inf, 1.0, 0.0)
        step, noisiest = self.step("strongly convex"), self._noisiest
        factor, rate = smoothness / self.convexity, 1 - step * self.convexity
        if self.shifts is None:
            return Decay(factor, rate, 2 * step * noisiest / n)
        slowest = float(self.shifts.min())
        factor *= 1 + 4 * step**2 * self.convexity * noisiest / (n * slowest)
        return Decay(factor, max(rate, 1 - slowest / 2), 0.0)


def _check_shifts(shifts: np.ndarray, least: float, most: np.ndarray, of: str) -> None:
    # Rounding of 1 / (1 + omega) is no mistake.
    if not ((shifts > 0) & (shifts >= least * (1 - 1e-9)) & (shifts <= most * (1 + 1e-9))).all():
        span = f"[{least:.4g}, {most.min():.4g}]" if least else f"(0, {most.min():.4g}]"
        raise HoldfastError(
            f"step_size: beta={shifts.min():.4g} to {shifts.max():.4g}; {of} of the FLIX paper take one in "
            f"{span}, 1 / (1 + omega) unless given.",
            about=("beta",),
        )


def omegas(compressor: Compressor, clients: int, size: int) -> np.ndarray:
    """The variance bound of every client's compressor, for replies of `size` numbers."""
    if not compressor.unbiased:
        raise HoldfastError(
            f"step_size: {type(compressor).__name__} is biased and has no omega; "
            f"give an unbiased compressor, or choose the step yourself.",
            about=("compressor",),
        )
    now: Any = hyper.at_round(compressor, 0)
    if not hyper.varies(now):
        return np.full(clients, float(now.omega(size)))
    return np.array([float(hyper.of_client(now, i, float).omega(size)) for i in range(clients)])
