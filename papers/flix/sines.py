"""Two kinds of sines fitted by mixtures of networks: cells of figure 4's study.

Beside the mixture of weights: the ensemble of predictions and optima shared in clusters, which the
authors recommend for networks and for clients with little data.
"""

import dataclasses
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax import tree

import holdfast as hf
from holdfast.record.files import write_whole
from papers.flix import mixing
from papers.study import Asked, Values

MODEL = hf.models.mlp_regression([40, 40])
PROPORTIONS = ((30, 170), (50, 150), (70, 130), (90, 110))  # of the two kinds among 200 clients
UNEVEN = PROPORTIONS[0]  # where the paper's own optimiser is tried
EVEN = PROPORTIONS[-1]  # where the remedies are tried
FIFTH = 5  # experiments have a fifth of the clients
MANY, FEW = 50, 10  # points of a client; the paper has 50
TEST_POINTS = 2000
ALPHAS = tuple(k / 10 for k in range(11))
FEW_ALPHAS = (0.0, 0.2, 0.3, 0.4, 0.6, 1.0)  # for searches that take long
TOLERANCE = 1e-2 / 2  # the paper's for the squared error; the library's loss is half of that
GROUP = hf.Local(0.05, steps=20, clip=1.0)  # what a client does in a round of its cluster
GROUP_ROUNDS = 100
ENSEMBLE = "ensemble of predictions"
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

    def members(self, proportion: Sequence[int]) -> np.ndarray:
        """Who takes part in a proportion."""
        chosen = [np.flatnonzero(self.kinds == k)[:count] for k, count in enumerate(proportion)]
        return np.concatenate(chosen)


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


def world(points: int, seed: int, proportions: Sequence[Sequence[int]]) -> World:
    """Two functions a sin(x + b) drawn from the seed, and enough clients of each for all proportions."""
    rng = np.random.default_rng(seed)
    amplitudes, phases = rng.uniform(0.1, 0.5, 2), rng.uniform(0, 2 * np.pi, 2)
    most = np.max(proportions, axis=0)
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


def search_for(most_steps: int | None) -> Search:
    """L-BFGS, or the paper's optimiser with at most so many steps."""
    return quasi_newton if most_steps is None else descent(most_steps)


def errors(
    proportions: Sequence[Sequence[int]],
    points: int,
    draw: int,
    alphas: Sequence[float],
    most_steps: int | None,
    *,
    asked: Asked,
    folder: Path,
) -> Values:
    """The mixture's test error by proportion and alpha, and the share of searches that stopped too early."""
    around = world(points, draw, proportions)
    everyone = prepare(around, draw, search_for(most_steps))
    found = _Kept(folder / "errors.json")
    for proportion in proportions:
        given = everyone.of(around.members(proportion))
        found.add(f"{proportion[0]}:{proportion[1]}", mixture_error, alphas, given)
    norms = everyone.optima.gradient_norms
    return found.values | {"late_clients": round(float(np.mean(norms > TOLERANCE)), 3)}


def remedies(
    proportion: Sequence[int],
    draw: int,
    alphas: Sequence[float],
    rounds: int,
    *,
    asked: Asked,
    folder: Path,
) -> Values:
    """The ensemble, and optima shared in clusters, with few points."""
    around = world(FEW, draw, [proportion])
    given = prepare(around, draw, quasi_newton)
    labels = hf.flix.cluster(given.optima, groups=2, seed=draw)
    found = _Kept(folder / "errors.json")
    found.add(ENSEMBLE, ensemble_error, alphas, given)
    for name, groups in ((CLUSTERS, labels), (TRUE_GROUPS, around.kinds)):
        found.add(name, mixture_error, alphas, with_clusters(given, groups, rounds, draw))
    return found.values | {"purity": round(purity(labels, around.kinds), 3)}


class _Kept:
    """Test errors of all alphas by name, kept as they are found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, list[tuple[float, float]]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )

    def add(
        self,
        name: str,
        error: Callable[[float, Population], tuple[float, float]],
        alphas: Sequence[float],
        given: Population,
    ) -> None:
        """All alphas of one population; what is there is left."""
        pairs = self.found.setdefault(name, [])
        for alpha in alphas[len(pairs) :]:
            pairs.append(error(alpha, given))
            write_whole(self.path, json.dumps(self.found))

    @property
    def values(self) -> Values:
        """Errors, and of the searches at the server the share that missed the tolerance."""
        excess = [ratio for pairs in self.found.values() for _, ratio in pairs if ratio]
        return {
            "errors": {
                name: [float(f"{error:.4g}") for error, _ in pairs]
                for name, pairs in self.found.items()
            },
            "late": round(float(np.mean(np.array(excess) > 1)), 3),
        }
