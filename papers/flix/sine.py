"""Two kinds of sines, a network, and the mixture that fits new points best (figure 4 of the paper).

Beside the mixture of weights: the ensemble of predictions and optima shared in clusters, which the
authors recommend for networks and for clients with little data.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import tree

import holdfast as hf
from papers.flix import mixing
from papers.mixed import report
from papers.mixed.common import Watch, silent

MODEL = hf.models.mlp_regression([40, 40])
PROPORTIONS = ((3, 17), (5, 15), (7, 13), (9, 11))  # a tenth of the paper's clients
EVEN = PROPORTIONS[-1]  # where the remedies are tried
MANY, FEW = 50, 10  # points of a client; the paper has 50
TEST_POINTS = 2000
ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
DRAWS = 3  # of the two functions
TOLERANCE = 1e-2 / 2  # the paper's for the squared error; the library's loss is half of that
MOST = 500  # steps of a search in any case
GROUP = hf.Local(0.05, steps=20, clip=1.0)  # what a client does in a round of its cluster
GROUP_ROUNDS = 100
WEIGHTS, ENSEMBLE = "mixture of weights", "ensemble of predictions"
CLUSTERS, TRUE_GROUPS = "optima of clusters (k-means)", "optima of the true groups"


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
class Population:
    """Some clients with their optima, and where every search begins."""

    train: hf.Clients
    test: hf.Clients
    optima: hf.flix.Optima
    start: Any
    most: int

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


def prepare(around: World, seed: int, most: int) -> Population:
    """Local optima by gradient descent with a line search; a few stop short of the tolerance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hf.HoldfastWarning)
        search = hf.solvers.LineSearch(TOLERANCE, most)
        optima = hf.flix.local_optima(MODEL, around.train, search, seed=seed)
    start = mixing.initial(MODEL, around.train, seed)
    return Population(around.train, around.test, optima, start, most)


def mixture_error(alpha: float, given: Population) -> tuple[float, float]:
    """Test error of FLIX, and how near its search came to the tolerance."""
    own = given.optima.x
    if alpha == 0:
        return _error(MODEL, 0.0, own, given.test, given.start), 0.0
    # The paper stops at the mean of the gradients at T_i(x); that of the objective is alpha times it.
    goal = alpha * TOLERANCE
    examples = mixing.stack(given.train)
    found = mixing.descend(MODEL, alpha, own, examples, given.start, goal, given.most)
    return _error(MODEL, alpha, own, given.test, found.x), float(found.gradient_norm) / goal


def ensemble_error(alpha: float, given: Population) -> tuple[float, float]:
    """Test error of the ensemble of both predictions, trained in the same way."""
    both, own = hf.flix.ensemble(MODEL, given.optima, alpha), given.optima.x
    test = both.attach(given.test)
    if alpha == 0:
        return _error(both.model, 1.0, own, test, given.start), 0.0
    goal, examples = alpha * TOLERANCE, mixing.stack(both.attach(given.train))
    found = mixing.descend(both.model, 1.0, own, examples, given.start, goal, given.most)
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
    most: int = MOST,
    group_rounds: int = GROUP_ROUNDS,
    watch: Watch = silent,
) -> Curves:
    """Every proportion, with many and with few points; for few and the even one the remedies."""
    sweep = Sweeps(alphas, draws * (len(points) * len(proportions) + 3), watch)
    shares = []
    for seed, count in itertools.product(range(draws), points):
        around = world(count, seed)
        sweep.tell(f"local optima with {count} points")
        everyone = prepare(around, seed, most)
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
