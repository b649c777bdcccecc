"""What a run has spent: epsilon after so many rounds, by Google's dp-accounting.

Who takes part decides which event a round is. The two accountants of dp-accounting 0.6 mean different
things by the noise multiplier where one client is replaced by another: PLD doubles the sensitivity itself,
RDP takes what it is given for the whole distance between two sums. Here a noise multiplier is always the
noise over what one client can move the sum by, and replacing one moves it by twice as much.
"""

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from holdfast.cohorts import Bernoulli, Cohort, Everyone, Fixed, Schedule
from holdfast.errors import HoldfastError
from holdfast.privacy.asked import Accountant

# Significant digits of a noise multiplier that is found, so that every machine finds the same.
_DIGITS = 4
_LEAST_NOISE, _MOST_NOISE = 0.05, 1e6
# How finely PLD divides losses: as dp-accounting does unless told, and to look for a noise multiplier.
_GRID, _COARSE = 1e-4, 1e-3


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How a round's clients are drawn, as far as the account depends on it.

    Args:
        kind: each by a coin of its own, a fixed number, everyone, or a plan that is known beforehand; local
            where clients add the noise to replies, example where they add it to their steps, and how they
            are drawn is of no use.
        population: clients with data.
        probability: that one takes part.
        moved: with a plan, what one client moves all rounds up to each by, over what it moves one by.
    """

    kind: Literal["poisson", "fixed", "everyone", "planned", "local", "example"]
    population: int
    probability: float = 1.0
    moved: tuple[float, ...] = ()

    @property
    def expected(self) -> float:
        """Clients in a round."""
        return self.population * self.probability

    @property
    def adjacency(self) -> str:
        """Of which two populations the guarantee speaks."""
        if self.kind == "local":
            return "all its data are replaced by any others of as many examples"
        if self.kind == "example":
            return "one of its examples counts or is left blank (how many it has is public)"
        if self.kind == "fixed":
            return "one client is replaced by another (the number of clients is public)"
        return "one client is added or removed (what sums are divided by is public)"

    @property
    def amplified(self) -> bool:
        """Whether drawing clients makes the guarantee stronger, and the account dear."""
        return self.kind in ("poisson", "fixed")

    @property
    def accountant(self) -> Accountant:
        """The tighter that knows it."""
        return "rdp" if self.kind == "fixed" else "pld"

    def effective(self, noise_multiplier: float, rounds: int) -> float:
        """The noise over the distance of two outcomes of so many rounds, as one Gaussian mechanism."""
        if self.kind == "planned":
            # A round in which nobody came yet tells nothing.
            apart = self.moved[rounds - 1]
            return noise_multiplier / apart if apart else math.inf
        # Between two bounded replies of a client lie two clips.
        return noise_multiplier / (2 if self.kind == "local" else 1) / math.sqrt(rounds)


def scheme_of(cohort: Cohort, population: int) -> Scheme:
    """How these cohorts are drawn; refuses those whose guarantee is not known."""
    # Not subclasses: they may draw otherwise.
    if type(cohort) is Everyone:
        return Scheme("everyone", population)
    if type(cohort) is Fixed:
        return Scheme("fixed", population, cohort.size / population)
    if type(cohort) is Bernoulli:
        if cohort.probability == 1:
            return Scheme("everyone", population)
        return Scheme("poisson", population, cohort.probability)
    hint = "; a schedule takes correlated=hf.privacy.Banded()" if type(cohort) is Schedule else ""
    raise HoldfastError(
        f"Gaussian: the cohort {type(cohort).__name__} draws some clients more often than others or by a "
        f"rule of its own, and no account of that is known; use hf.cohorts.bernoulli, fixed or "
        f"everyone{hint}.",
        about=("cohort",),
    )


def known_cohorts(cohort: Cohort, able: np.ndarray, rounds: int) -> list[np.ndarray]:
    """Who takes part in each of so many rounds, where that is known beforehand."""
    if type(cohort) not in (Schedule, Everyone):
        raise HoldfastError(
            f"Gaussian: noise is correlated, and how it protects a client follows from the rounds in which "
            f"it comes, which {type(cohort).__name__} draws by lot; use hf.cohorts.schedule, or leave "
            f"correlated out.",
            about=("cohort",),
        )
    # A cohort that is known beforehand draws nothing.
    found = [cohort.draw(t, able, np.random.default_rng(0)) for t in range(rounds)]
    sizes = sorted({len(clients) for clients in found})
    if len(sizes) > 1 or sizes == [0]:
        raise HoldfastError(
            f"Gaussian: the schedule has rounds of {sizes[0]} to {sizes[-1]} clients with data, and sums are "
            f"divided by one number; give rounds of one size.",
            about=("cohort",),
        )
    return found


def library() -> Any:
    """dp-accounting, if it is installed."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise HoldfastError(
            f"Gaussian: privacy is accounted for by dp-accounting, which is not installed ({error}); "
            f"pip install 'holdfast[privacy]'."
        ) from None
    return dp_accounting


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that dp-accounting logs of orders it leaves out; their bound stays a bound."""
    logger = logging.getLogger("absl")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


def event(scheme: Scheme, noise_multiplier: float) -> Any:
    """One round, in the words of dp-accounting."""
    dp = library()
    if scheme.kind == "fixed":
        size = round(scheme.expected)
        # Half: between two sums in which one client is replaced lies twice what one moves them by.
        inside = dp.GaussianDpEvent(noise_multiplier / 2)
        return dp.SampledWithoutReplacementDpEvent(scheme.population, size, inside)
    gaussian = dp.GaussianDpEvent(scheme.effective(noise_multiplier, 1))
    if not scheme.amplified:
        return gaussian
    return dp.PoissonSampledDpEvent(scheme.probability, gaussian)


def _relation(scheme: Scheme) -> Any:
    relations = library().NeighboringRelation
    return relations.REPLACE_ONE if scheme.kind == "fixed" else relations.ADD_OR_REMOVE_ONE


@functools.lru_cache(maxsize=64)
def _rdp_of_round(scheme: Scheme, noise_multiplier: float) -> tuple[np.ndarray, np.ndarray]:
    """Orders, and the Renyi divergence of one round at each."""
    rdp = library().rdp
    with _quiet():
        one = rdp.RdpAccountant(neighboring_relation=_relation(scheme))
        one.compose(event(scheme, noise_multiplier))
    return one._orders, one._rdp


@functools.lru_cache(maxsize=16)
def _pld_of_round(scheme: Scheme, noise_multiplier: float, grid: float) -> Any:
    plds = library().pld.privacy_loss_distribution
    return plds.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=scheme.probability, value_discretization_interval=grid
    )


@functools.lru_cache(maxsize=1024)
def epsilon(
    scheme: Scheme,
    noise_multiplier: float,
    rounds: int,
    delta: float,
    accountant: Accountant,
    grid: float = _GRID,
) -> float:
    """After so many rounds: what dp-accounting says of as many of these events.

    `grid` is how finely PLD divides losses; its own answer unless given. A coarser one is soon found and
    says a little more, never less.
    """
    if rounds == 0:
        return 0.0
    if accountant == "rdp":
        orders, divergence = _rdp_of_round(scheme, noise_multiplier)
        with _quiet():
            return float(library().rdp.compute_epsilon(orders, divergence * rounds, delta)[0])
    if scheme.kind == "fixed":
        raise HoldfastError(
            "Gaussian: accountant='pld', and dp-accounting has no PLD of cohorts of a fixed size; leave it "
            "out, or use hf.cohorts.bernoulli.",
            about=("accountant",),
        )
    if not scheme.amplified:
        # All rounds together are one Gaussian mechanism, whose curve is known: no grid, and no time.
        with np.errstate(divide="ignore"):
            sigma = scheme.effective(noise_multiplier, rounds)
            return 0.0 if sigma == math.inf else float(library().get_epsilon_gaussian(sigma, delta))
    whole = _pld_of_round(scheme, noise_multiplier, grid).self_compose(rounds)
    none = library().pld.privacy_loss_distribution.identity(grid)
    return float(none.compose(whole).get_epsilon_for_delta(delta))


@functools.lru_cache(maxsize=64)
def noise_multiplier(
    scheme: Scheme, budget: float, rounds: int, delta: float, accountant: Accountant
) -> float:
    """The least, to four digits, with which so many rounds spend at most this epsilon."""

    def over(z: float) -> float:
        return epsilon(scheme, z, rounds, delta, accountant, _COARSE) - budget

    high = 1.0
    if over(high) > 0:
        while over(high) > 0:
            high *= 2
            if high > _MOST_NOISE:
                raise HoldfastError(
                    f"Gaussian: no noise keeps epsilon={budget:g} for {rounds} rounds at delta={delta:g}; "
                    f"give more epsilon or fewer rounds.",
                    about=("epsilon",),
                )
        low = high / 2
    else:
        low = high / 2
        while over(low) <= 0:
            low, high = low / 2, low
            if low < _LEAST_NOISE:
                return _rounded_up(high)
    z = _rounded_up(_root(over, low, high))
    # By the answer that counts.
    while epsilon(scheme, z, rounds, delta, accountant) > budget:
        z = _rounded_up(1.0005 * z)
    return z


def _root(over: Callable[[float], float], low: float, high: float) -> float:
    """Just above where a falling function is 0, where it is at most 0."""
    # A run without privacy needs none of SciPy.
    from scipy.optimize import brentq

    found = float(brentq(over, low, high, xtol=1e-5 * high, rtol=1e-5))
    while over(found) > 0:
        found *= 1 + 1e-5
    return found


def _rounded_up(z: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(z)) + 1 - _DIGITS)
    return round(math.ceil(z / unit - 1e-9) * unit, 12)
