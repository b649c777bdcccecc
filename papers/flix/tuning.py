"""FLIX, FOMAML and Reptile on natural splits, each with settings chosen on validation data.

Test examples are the same for all splits, and no choice depends on them.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import holdfast as hf
from papers.flix import people
from papers.mixed.common import Watch, silent

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
TOLERANCES = (1e-1, 1e-3, 1e-5)  # of local optima
RATES = (0.3, 1.0, 3.0, 10.0)
INNER_RATES = (0.03, 0.3, 1.0, 3.0)
INNER_STEPS = 5
ROUNDS, LOOKS = 400, 4  # training stops at the best of so many looks at the validation data
FEW_RATES, FEW_ROUNDS = (0.1, 0.3, 1.0), 200  # for patients, who are few
SEEDS = 3
FOMAML, REPTILE = "FOMAML", "Reptile"


@dataclasses.dataclass(frozen=True)
class Score:
    """Accuracies of personal models, mean over clients, where validation was best."""

    validation: float
    loss: float  # on validation data, to break ties
    test: float
    rounds: int

    @property
    def order(self) -> tuple[float, float]:
        """The larger, the better."""
        return self.validation, -self.loss


@dataclasses.dataclass(frozen=True)
class Plan:
    """One comparison: its data in several splits, which share their test examples."""

    name: str
    about: str
    splits: tuple[people.Split, ...]
    rates: tuple[float, ...]
    rounds: int
    tuned_on: int  # so many of the splits; more where validation data are few


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A split, and the local optima for every tolerance."""

    split: people.Split
    optima: dict[float, hf.flix.Optima]


class Choice(NamedTuple):
    """What a method is free to choose."""

    rate: float  # how far the server goes along a mean gradient
    second: float  # tolerance of the local optima, or inner step size


@dataclasses.dataclass(frozen=True)
class Result:
    """Scores of every split, by alpha and by name, and what was chosen."""

    name: str
    about: str
    scores: dict[float | str, list[Score]]
    choices: dict[float | str, Choice]
    clients: str
    tuned_on: int

    def test(self, method: float | str) -> np.ndarray:
        """Test accuracy on every split."""
        return np.array([score.test for score in self.scores[method]])

    @property
    def alphas(self) -> list[float]:
        """The mixtures, the local and the global end included."""
        return [method for method in self.scores if isinstance(method, float)]

    def tuned_alphas(self) -> list[float]:
        """On every split the alpha that its validation data prefer."""
        seeds = range(len(next(iter(self.scores.values()))))
        return [max(self.alphas, key=lambda a: self.scores[a][k].order) for k in seeds]


def prepare(split: people.Split, tolerances: Sequence[float]) -> Prepared:
    """Find local optima; data that can be separated have none, only a direction."""
    model = hf.models.softmax_regression(split.classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hf.HoldfastWarning)
        optima = {
            tolerance: hf.flix.local_optima(
                model, split.train, hf.solvers.LBFGS(tolerance, max_steps=200)
            )
            for tolerance in tolerances
        }
    return Prepared(split, optima)


def train(given: Prepared, method: float | str, choice: Choice, rounds: int) -> Score:
    """FLIX with this alpha, or FOMAML or Reptile, to the round that is best on validation data."""
    rate, second = choice
    if not isinstance(method, str):
        algorithm = hf.algorithms.flix(method, solver=given.optima[second].known())
        # The curvature of the FLIX objective is alpha squared times the model's.
        local = hf.Local(rate / (method**2 or 1), steps=1)
        return best_round(given.split, algorithm, local, rounds if method else 1, None)
    local = hf.Local(second, steps=INNER_STEPS)
    if method == FOMAML:
        return best_round(given.split, hf.algorithms.fomaml(rate), local, rounds, local)
    # Reptile moves along the sum of the inner steps; so that the grid means the same lengths:
    algorithm = hf.algorithms.reptile(rate / (second * INNER_STEPS))
    return best_round(given.split, algorithm, local, rounds, local)


def best_round(
    split: people.Split,
    algorithm: hf.Algorithm,
    local: hf.Local,
    rounds: int,
    adapt: hf.Local | None,
) -> Score:
    """Train, and take the round that is best on validation data."""
    every = max(1, rounds // LOOKS)
    looks = [
        hf.evaluate.personal(examples, every=every, adapt=adapt, name=name)
        for name, examples in (("validation", split.validation), ("test", split.test))
    ]
    model = hf.models.softmax_regression(split.classes)
    run = hf.simulate(algorithm, model, split.train, local, rounds, evaluate=looks, progress=False)
    names = ("validation_personal_accuracy", "validation_personal_loss", "test_personal_accuracy")
    columns = np.stack([run.history[name] for name in names], axis=1)
    seen = ~np.isnan(columns[:, 0])
    scores = [
        Score(float(accuracy), float(loss), float(test), int(t))
        for (accuracy, loss, test), t in zip(columns[seen], run.history["round"][seen], strict=True)
    ]
    return max(scores, key=lambda score: score.order)


def _mean_order(scores: Sequence[Score]) -> tuple[float, ...]:
    return tuple(np.mean([score.order for score in scores], axis=0))


def grid(
    method: float | str, rates: Sequence[float], tolerances: Sequence[float], inner: Sequence[float]
) -> list[Choice]:
    """All a method may choose from; local models have no server that goes anywhere."""
    second = inner if isinstance(method, str) else tolerances
    return [Choice(*pair) for pair in itertools.product(rates if method else rates[:1], second)]


def compare(
    plan: Plan,
    alphas: Sequence[float] = ALPHAS,
    tolerances: Sequence[float] = TOLERANCES,
    inner_rates: Sequence[float] = INNER_RATES,
    watch: Watch = silent,
) -> Result:
    """Every method: a grid search on validation data, then all splits with the same choice."""
    methods: list[float | str] = [*alphas, FOMAML, REPTILE]
    watch(f"{plan.name}, local optima", 0, len(methods))
    sites = [prepare(split, tolerances) for split in plan.splits]
    scores: dict[float | str, list[Score]] = {}
    choices: dict[float | str, Choice] = {}
    for k, method in enumerate(methods):
        watch(f"{plan.name}, {method}", k, len(methods))
        options = grid(method, plan.rates, tolerances, inner_rates)
        tried = {
            choice: [train(site, method, choice, plan.rounds) for site in sites[: plan.tuned_on]]
            for choice in options
        }
        merits = {choice: _mean_order(found) for choice, found in tried.items()}
        best = max(options, key=merits.__getitem__)
        others = [train(site, method, best, plan.rounds) for site in sites[plan.tuned_on :]]
        scores[method], choices[method] = [*tried[best], *others], best
    sizes = plan.splits[0].train.sizes
    each = f"{sizes.min()}" if np.ptp(sizes) == 0 else f"{sizes.min()} to {sizes.max()}"
    clients = f"{len(sizes)} clients with {each} training examples"
    return Result(plan.name, plan.about, scores, choices, clients, plan.tuned_on)


def plans(folder: Path, seeds: int) -> list[Plan]:
    """People with distinct data, and hospitals whose patients are divided among workers."""
    by_person, heart = people.people(folder), people.hospitals(folder)
    splits = tuple(people.split(by_person, 24, 50, seed) for seed in range(seeds))
    plans = [Plan(by_person.name, by_person.about, splits, RATES, ROUNDS, tuned_on=1)]
    if heart is not None:
        splits = tuple(people.split_among_workers(heart, 4, 10, 100, seed) for seed in range(seeds))
        plans.append(Plan(heart.name, heart.about, splits, FEW_RATES, FEW_ROUNDS, tuned_on=seeds))
    return plans
