"""Two kinds of sines fitted by mixtures of networks, with many points per client and with few.

Beside the mixture of weights: the ensemble of predictions and optima shared in clusters, which the
authors recommend for networks and for clients with little data.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import tree

import holdfast as hf
from papers.flix import mixing
from papers.mixed.common import Watch, silent

MODEL = hf.models.mlp_regression([40, 40])
PROPORTIONS = ((6, 34), (10, 30), (14, 26), (18, 22))  # a fifth of the paper's clients
UNEVEN = PROPORTIONS[0]  # where the paper's own optimiser is tried
EVEN = PROPORTIONS[-1]  # where the remedies are tried
MANY, FEW = 50, 10  # points of a client; the paper has 50
TEST_POINTS = 2000
ALPHAS = tuple(k / 10 for k in range(11))
FEW_ALPHAS = (0.0, 0.2, 0.3, 0.4, 0.6, 1.0)  # for searches that take long
DRAWS = 5  # of the two functions
TOLERANCE = 1e-2 / 2  # the paper's for the squared error; the library's loss is half of that
DESCENT_DRAWS, LENGTHS = 3, (300, 1000)  # of the paper's optimiser: draws, most steps of a search
GROUP = hf.Local(0.05, steps=20, clip=1.0)  # what a client does in a round of its cluster
GROUP_ROUNDS = 100
WEIGHTS, ENSEMBLE = "mixture of weights", "ensemble of predictions"
CLUSTERS, TRUE_GROUPS = "optima of clusters (k-means)", "optima of the true groups"


Search = Callable[[float], hf.solvers.Solver]  # a solver for a tolerance


def quasi_newton(tolerance: float) -> hf.solvers.Solver:
    """Reaches the tolerance in a small part of the steps."""
    return hf.solvers.LBFGS(tolerance)


def descent(max_steps: int) -> Search:
    """The paper's optimiser, with at most so many steps."""
    return lambda tolerance: hf.solvers.LineSearch(tolerance, max_steps)


@dataclasses.dataclass(frozen=True)
class World:
    """Clients of both kinds; any proportion takes the first ones of each."""

    train: hf.Clients
    test: hf.Clients
    kinds: np.ndarray

    def members(self, proportion: tuple[int, int]) -> np.ndarray:
        """Who takes part in a proportion."""
        chosen = [np.flatnonzero(self.kinds == k)[:count] for k, count in enumerate(proportion)]
        return np.concatenate(chosen)


@dataclasses.dataclass(frozen=True)
class Curves:
    """Test error of every draw and alpha, by points of a client and by proportion or remedy."""

    alphas: tuple[float, ...]
    by_proportion: dict[tuple[int, tuple[int, int]], np.ndarray]
    by_remedy: dict[str, np.ndarray]  # with few points, for the even proportion
    purity: np.ndarray  # share of clients whom k-means puts with their own kind
    excess: np.ndarray  # gradient norm of each search at the server over its tolerance


@dataclasses.dataclass(frozen=True)
class Descent:
    """The same by gradient descent with a line search, for the uneven proportion."""

    alphas: tuple[float, ...]
    error: np.ndarray
    late: float  # share of searches at the server that did not reach the tolerance
    late_clients: float  # the same for the clients' own searches


@dataclasses.dataclass(frozen=True)
class Population:
    """Some clients with their optima, and where every search begins."""

    train: hf.Clients
    test: hf.Clients
    optima: hf.flix.Optima
    start: Any
    search: Search

    def of(self, ids: np.ndarray) -> "Population":
        """Some of these clients."""
        x, norms = tree.map(lambda a: a[ids], self.optima.x), self.optima.gradient_norms[ids]
        return dataclasses.replace(
            self,
            train=self.train.subset(ids),
            test=self.test.subset(ids),
            optima=hf.flix.Optima(x, norms),
        )


def world(points: int, seed: int) -> World:
    """Two functions a sin(x + b) drawn from the seed, and enough clients of each."""
    rng = np.random.default_rng(seed)
    amplitudes, phases = rng.uniform(0.1, 0.5, 2), rng.uniform(0, 2 * np.pi, 2)
    most = np.max(PROPORTIONS, axis=0)
    kinds = np.repeat([0, 1], most)

    def examples(kind: int, count: int) -> hf.Examples:
        x = rng.uniform(-5, 5, (count, 1))
        y = amplitudes[kind] * np.sin(x[:, 0] + phases[kind])
        return hf.Examples(x.astype(np.float32), y.astype(np.float32))

    train, test = (
        hf.Clients.from_datasets([examples(kind, count) for kind in kinds])
        for count in (points, TEST_POINTS)
    )
    return World(train, test, kinds)


def prepare(around: World, seed: int, search: Search) -> Population:
    """Everybody's local optima; a few may stop short of the tolerance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hf.HoldfastWarning)
        optima = hf.flix.local_optima(MODEL, around.train, search(TOLERANCE), seed=seed)
    start = mixing.initial(MODEL, around.train, seed)
    return Population(around.train, around.test, optima, start, search)


def mixture_error(alpha: float, given: Population) -> tuple[float, float]:
    """Test error of FLIX, and how near its search came to the tolerance."""
    own = given.optima.x
    if alpha == 0:
        return _error(MODEL, 0.0, own, given.test, given.start), 0.0
    # The paper stops at the mean of the gradients at T_i(x); that of the objective is alpha times it.
    goal = alpha * TOLERANCE
    examples = mixing.stack(given.train)
    found = mixing.minimise(MODEL, alpha, own, examples, given.start, given.search(goal))
    return _error(MODEL, alpha, own, given.test, found.x), float(found.gradient_norm) / goal


def ensemble_error(alpha: float, given: Population) -> tuple[float, float]:
    """Test error of the ensemble of both predictions, trained in the same way."""
    both, own = hf.flix.ensemble(MODEL, given.optima, alpha), given.optima.x
    test = both.attach(given.test)
    if alpha == 0:
        return _error(both.model, 1.0, own, test, given.start), 0.0
    goal, examples = alpha * TOLERANCE, mixing.stack(both.attach(given.train))
    found = mixing.minimise(both.model, 1.0, own, examples, given.start, given.search(goal))
    return _error(both.model, 1.0, own, test, found.x), float(found.gradient_norm) / goal


def _error(model: hf.Model, alpha: float, own: Any, test: hf.Clients, x: Any) -> float:
    return 2 * float(mixing.objective(model, alpha, own, mixing.stack(test), x))


def with_clusters(given: Population, labels: np.ndarray, rounds: int, seed: int) -> Population:
    """The same clients, each with the model of its cluster as its optimum."""
    shared = hf.flix.cluster_optima(MODEL, given.train, labels, GROUP, rounds, seed=seed)
    return dataclasses.replace(given, optima=shared.optima)


def purity(labels: np.ndarray, kinds: np.ndarray) -> float:
    """Share of clients in the right one of two clusters."""
    agree = float(np.mean(labels == kinds))
    return max(agree, 1 - agree)


class Sweeps:
    """Test errors of all alphas, by name, one list per draw."""

    def __init__(self, alphas: Sequence[float], total: int, watch: Watch) -> None:
        self.alphas, self.total, self.watch = alphas, total, watch
        self.errors: dict[Any, list[list[float]]] = {}
        self.excess: list[float] = []
        self.done = 0

    def tell(self, what: Any) -> None:
        """Say what is running."""
        self.watch(f"sines, {what}", self.done, self.total)

    def __call__(self, name: Any, error: Any, given: Population) -> None:
        """All alphas of one population."""
        self.tell(name)
        found = [error(alpha, given) for alpha in self.alphas]
        self.errors.setdefault(name, []).append([e for e, _ in found])
        self.excess += [ratio for (_, ratio), a in zip(found, self.alphas, strict=True) if a]
        self.done += 1


def compare(
    draws: int = DRAWS,
    alphas: Sequence[float] = ALPHAS,
    proportions: Sequence[tuple[int, int]] = PROPORTIONS,
    points: Sequence[int] = (MANY, FEW),
    group_rounds: int = GROUP_ROUNDS,
    search: Search = quasi_newton,
    watch: Watch = silent,
) -> Curves:
    """Every proportion, with many and with few points; for few and the even one the remedies."""
    sweep = Sweeps(alphas, draws * (len(points) * len(proportions) + 3), watch)
    shares = []
    for seed, count in itertools.product(range(draws), points):
        around = world(count, seed)
        sweep.tell(f"local optima with {count} points")
        everyone = prepare(around, seed, search)
        for proportion in proportions:
            given = everyone.of(around.members(proportion))
            sweep((count, proportion), mixture_error, given)
        if count != FEW:
            continue
        ids = around.members(EVEN)
        given, kinds = everyone.of(ids), around.kinds[ids]
        labels = hf.flix.cluster(given.optima, groups=2, seed=seed)
        shares.append(purity(labels, kinds))
        sweep(ENSEMBLE, ensemble_error, given)
        for name, groups in ((CLUSTERS, labels), (TRUE_GROUPS, kinds)):
            sweep(name, mixture_error, with_clusters(given, groups, group_rounds, seed))
    arrays = {name: np.array(lists) for name, lists in sweep.errors.items()}
    remedies = {name: arrays.pop(name) for name in (ENSEMBLE, CLUSTERS, TRUE_GROUPS)}
    return Curves(tuple(alphas), arrays, remedies, np.array(shares), np.array(sweep.excess))


def compare_descent(max_steps: int, draws: int = DESCENT_DRAWS, watch: Watch = silent) -> Descent:
    """The paper's optimiser on its number of points."""
    sweep = Sweeps(FEW_ALPHAS, draws, watch)
    norms = []
    for seed in range(draws):
        around = world(MANY, seed)
        sweep.tell("gradient descent, local optima")
        given = prepare(around, seed, descent(max_steps)).of(around.members(UNEVEN))
        norms.append(given.optima.gradient_norms)
        sweep("gradient descent", mixture_error, given)
    return Descent(
        FEW_ALPHAS,
        np.array(sweep.errors["gradient descent"]),
        float(np.mean(np.array(sweep.excess) > 1)),
        float(np.mean(np.array(norms) > TOLERANCE)),
    )
