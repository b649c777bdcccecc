"""FLIX, FOMAML and Reptile on natural splits, searched on validation data: cells of figure 1's study.

Test examples are the same for all splits, and no choice depends on them.
"""

import dataclasses
import functools
import itertools
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import holdfast as hf
from holdfast.record.files import write_whole
from papers.flix import people
from papers.study import Asked, Values

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# The paper's grids (section 9).
TOLERANCES = (
    1e-1,
    1e-2,
    1e-3,
    1e-4,
    1e-5,
)  # of local optima, chosen for local models, kept for all alpha
RATES = tuple(5 * 10.0**k for k in range(-2, 7))
INNER_RATES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
INNER_STEPS = 5
LOOKS = 4  # training stops at the best of so many looks at the validation data
FLIX, FOMAML, REPTILE = "FLIX", "FOMAML", "Reptile"


@dataclasses.dataclass(frozen=True)
class Score:
    """Of personal models, mean over clients, where the loss on validation data was lowest."""

    loss: float  # on validation data; infinite where training left all bounds
    accuracy: float  # on validation data
    test: float
    rounds: int


class Choice(NamedTuple):
    """What a method is free to choose."""

    rate: float  # how far the server goes along a mean gradient
    second: float  # tolerance of the local optima, or inner step size


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """A split, and the local optima for every tolerance."""

    split: people.Split

    @functools.cache  # noqa: B019 - a site lives as long as its cell
    def optima(self, tolerance: float) -> hf.flix.Optima:
        """By L-BFGS; data that can be separated have none, only a direction."""
        model = hf.models.softmax_regression(self.split.classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hf.HoldfastWarning)
            search = hf.solvers.LBFGS(tolerance, max_steps=200)
            return hf.flix.local_optima(model, self.split.train, search)


def method(
    name: str,
    alpha: float,
    data: str,
    draws: Sequence[int],
    rates: Sequence[float],
    seconds: Sequence[float],
    rounds: int,
    *,
    asked: Asked,
    folder: Path,
) -> Values:
    """A grid search by the validation loss of the first split, then all splits with the choice.

    Args:
        name: FLIX, FOMAML or Reptile.
        alpha: of FLIX.
        data: `people` or `hospitals`.
        draws: seeds of the splits.
        rates: step sizes of the server.
        seconds: tolerances of the local optima, or inner step sizes.
        rounds: of a run.
        asked: where the data are.
        folder: where scores are kept as they are found.
    """
    kept = folder / "scores.json"
    scores: dict[str, Values] = json.loads(kept.read_text()) if kept.exists() else {}
    sites = {draw: Site(split_of(data, draw, asked)) for draw in draws}

    def score(draw: int, choice: Choice, alpha: float = alpha) -> Score:
        key = f"{draw}, {alpha:g}, {choice.rate:g}, {choice.second:g}"
        if key not in scores:
            scores[key] = dataclasses.asdict(train(sites[draw], name, alpha, choice, rounds))
            write_whole(kept, json.dumps(scores))
        return Score(**scores[key])

    if name == FLIX:
        # As in the paper the tolerance is that which local models prefer, for every alpha.
        alone = {
            Choice(1.0, second): score(draws[0], Choice(1.0, second), 0.0) for second in seconds
        }
        best_alone = min(alone, key=lambda choice: alone[choice].loss)
        options = [Choice(rate, best_alone.second) for rate in rates] if alpha else list(alone)
    else:
        options = [Choice(*pair) for pair in itertools.product(rates, seconds)]
    found = {choice: score(draws[0], choice) for choice in options}
    best = min(options, key=lambda choice: found[choice].loss)
    finals = [score(draw, best) for draw in draws]
    sizes = sites[draws[0]].split.train.sizes
    return {
        "chosen": list(best),
        "test": [round(final.test, 4) for final in finals],
        "validation": [round(final.accuracy, 4) for final in finals],
        "rounds": [final.rounds for final in finals],
        "clients": [len(sizes), int(sizes.min()), int(sizes.max())],
        "grid": [[*choice, _finite(one.loss)] for choice, one in found.items()],
    }


def _finite(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None


def split_of(data: str, draw: int, asked: Asked) -> people.Split:
    """People, 24 examples each, or hospitals, each divided among 4 workers."""
    if asked.quick:
        return people.split(people.stand_in(6), 12, 20, draw)
    if data == "people":
        return people.split(people.activities(asked.data), 24, 50, draw)
    return people.split_among_workers(people.hospitals(asked.data), 4, 10, 100, draw)


def train(site: Site, name: str, alpha: float, choice: Choice, rounds: int) -> Score:
    """To the round that is best on validation data."""
    rate, second = choice
    if name == FLIX:
        algorithm = hf.algorithms.flix(alpha, solver=site.optima(second).known())
        # Local models have no server that goes anywhere.
        return best_round(site.split, algorithm, hf.Local(rate, steps=1), rounds if alpha else 1)
    local = hf.Local(second, steps=INNER_STEPS)
    if name == FOMAML:
        return best_round(site.split, hf.algorithms.fomaml(rate), local, rounds, local)
    # Reptile moves along the sum of the inner steps; so that the grid means the same lengths:
    algorithm = hf.algorithms.reptile(rate / (second * INNER_STEPS))
    return best_round(site.split, algorithm, local, rounds, local)


def best_round(
    split: people.Split,
    algorithm: hf.Algorithm,
    local: hf.Local,
    rounds: int,
    adapt: hf.Local | None = None,
) -> Score:
    """Train, and take the round that is best on validation data."""
    every = max(1, rounds // LOOKS)
    looks = [
        hf.evaluate.personal(examples, every=every, adapt=adapt, name=name)
        for name, examples in (("validation", split.validation), ("test", split.test))
    ]
    model = hf.models.softmax_regression(split.classes)
    with warnings.catch_warnings():
        # Large steps of the grid leave all bounds, and score badly.
        warnings.simplefilter("ignore", hf.HoldfastWarning)
        run = hf.simulate(
            algorithm, model, split.train, local, rounds, evaluate=looks, progress=False
        )
    names = ("validation_personal_loss", "validation_personal_accuracy", "test_personal_accuracy")
    columns = zip(run.history["round"], *(run.history[name] for name in names), strict=True)
    # An accuracy is there in the rounds that were looked at.
    scores = [
        Score(float(loss) if np.isfinite(loss) else np.inf, float(accuracy), float(test), int(t))
        for t, loss, accuracy, test in columns
        if not np.isnan(accuracy)
    ]
    return min(scores, key=lambda score: score.loss)
