"""Noise that later rounds take back: correlated between rounds, for clients that come seldom and in turn."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core.struct import Struct, static
from holdfast.errors import HoldfastError
from holdfast.trees import Tree

# Of what is optimised, so that every machine finds the same.
_DIGITS = 5
# Bands unless told: the server remembers as many means, and more of them gain little.
_BANDS = 16


class Banded(Struct):
    r"""Noise with a memory of a few rounds (DP-FTRL with a banded matrix): models have less of it.

    $$ y_t = \frac{1}{c_0}\Big(z_t - \sum_{j=1}^{b-1} c_j\, y_{t-j}\Big), \quad
       z_t \sim \mathcal N(0, (z\,C\,w_{\max})^2), \quad \sum_j c_j^2 = 1 $$

    A round's mean has the noise $y_t$, of which later rounds take a part back; a model is a sum of rounds,
    and the noise of sums is what the coefficients make small. All rounds together are one Gaussian
    mechanism, whose sensitivity is worked out for the rounds in which each client comes. So cohorts must be
    known beforehand (`hf.cohorts.schedule`): nothing is amplified by drawing them, and nobody need keep
    them secret. With b = 1 it is independent noise. The server remembers b - 1 means.

    Args:
        bands: b; unless given, as many rounds as lie between two of the client that comes back soonest, and
            at most 16.
        separation: so many rounds must lie between two of any client; checked against the cohort if given.
        coefficients: $c_0, c_1, \dots$; unless given, found when the run begins, by jax-privacy, for its
            rounds.

    Example:
        >>> import holdfast as hf
        >>> private = hf.privacy.Gaussian(
        ...     clip=1.0, delta=1e-5, epsilon=8, correlated=hf.privacy.Banded(bands=4)
        ... )
        >>> private.correlated.bands
        4

    Reference: Choquette-Choo et al., "(Amplified) banded matrix factorization", NeurIPS 2023.
    """

    bands: int | None = static(default=None)
    separation: int | None = static(default=None)
    coefficients: tuple[float, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        for name in ("bands", "separation"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if value is not None and not whole:
                raise HoldfastError(
                    f"Banded: {name}={value!r}; give a whole number of rounds, from 1.",
                    about=(name,),
                )
        if self.coefficients is not None and not self._fits(self.coefficients):
            count = "" if self.bands is None else f", {self.bands} of them"
            raise HoldfastError(
                f"Banded: coefficients={self.coefficients!r}; give a tuple of finite numbers, the first "
                f"above 0{count}, or leave them to be found.",
                about=("coefficients",),
            )

    def _fits(self, given: Any) -> bool:
        numbers = isinstance(given, tuple) and all(isinstance(c, int | float) for c in given)
        if not numbers or len(given) != (self.bands or len(given)) or not given:
            return False
        return bool(np.isfinite(given).all() and given[0] > 0)

    def bands_for(self, separation: int) -> int:
        """How many it has where clients come back after so many rounds."""
        if self.coefficients is not None:
            return len(self.coefficients)
        return self.bands or min(separation, _BANDS)

    def after(self, fresh: Tree, past: Tree) -> tuple[Tree, Tree]:
        """The noise of a round and what is remembered of it, from fresh noise and the rounds before."""
        assert self.coefficients is not None
        first, rest = self.coefficients[0], self.coefficients[1:]

        def taken_back(z: jax.Array, before: Any) -> jax.Array:
            for c, y in zip(rest, before, strict=True):
                z = z - jnp.asarray(c, z.dtype) * y
            return z / jnp.asarray(first, z.dtype)

        noise = tree.map(lambda z, *before: taken_back(z, before), fresh, *past)
        return noise, (noise, *past)[: len(rest)]

    def nothing(self, payload: Tree) -> Tree:
        """What is remembered before the first round."""
        assert self.coefficients is not None
        return tuple(tree.map(jnp.zeros_like, payload) for _ in self.coefficients[1:])


class Remembering(NamedTuple):
    """What the server remembers where noise is correlated: that of past rounds, and of the inner wire."""

    past: Tree
    inner: Tree


class Fresh(NamedTuple):
    """A mean without noise, and fresh noise for it."""

    payload: Tree
    noise: Tree


def separation_of(cohorts: list[np.ndarray]) -> tuple[int, int | None]:
    """After how many rounds the client that comes back soonest does, and which; all rounds if none does."""
    last: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for t, clients in enumerate(cohorts):
        for client in clients.tolist():
            if client in last:
                found.append((t - last[client], client))
            last[client] = t
    return min(found, default=(len(cohorts), None))


@functools.lru_cache(maxsize=64)
def coefficients_for(bands: int, rounds: int) -> tuple[float, ...]:
    """Those with which the models of so many rounds have the least noise, by jax-privacy."""
    if bands == 1:
        return (1.0,)
    # It was written for JAX's own settings, and others would find others.
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        told = _library().optimize_banded_toeplitz(rounds, min(bands, rounds))
    found = np.asarray(told, np.float64)
    return tuple(round(float(c), _DIGITS) for c in found / np.linalg.norm(found))


def moved(coefficients: tuple[float, ...], cohorts: list[np.ndarray]) -> tuple[float, ...]:
    """What a client moves all rounds up to each by, over what it moves one reply by: the most of any.

    A client that comes in rounds P, each time by at most one and in any direction, moves the rows of the
    matrix by at most the norm of the sum of its columns P without their signs.
    """
    sizes = np.abs(coefficients)
    rounds = len(cohorts)
    came: dict[int, list[int]] = {}
    for t, clients in enumerate(cohorts):
        for client in clients.tolist():
            came.setdefault(client, []).append(t)
    most = np.zeros(rounds)
    for pattern in {tuple(ts) for ts in came.values()}:
        rows = np.zeros(rounds)
        for t in pattern:
            width = min(len(coefficients), rounds - t)
            rows[t : t + width] += sizes[:width]
        most = np.maximum(most, np.sqrt(np.cumsum(rows**2)))
    return tuple(most.tolist())


def _library() -> Any:
    try:
        from jax_privacy.matrix_factorization import toeplitz
    except ImportError as error:
        raise HoldfastError(
            f"Banded: coefficients are found by jax-privacy, which is not installed ({error}); "
            f"pip install 'holdfast[privacy]'."
        ) from None
    return toeplitz
