"""Logistic regression by gradient descent, DCGD and DIANA on the FLIX objective."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from papers.flix import data
from papers.flix.curves import Curve, Promise, Setting
from papers.flix.objective import Objective
from papers.mixed.common import Watch

GD, DCGD, DIANA = "GD", "DCGD", "DIANA"


@dataclasses.dataclass(frozen=True)
class Study:
    """One of the paper's two settings: what is run on every data set, and how far."""

    l2: float
    tolerance: float  # gradient norm at which a client's own optimum is good enough
    accuracy: float  # the gap that rounds are counted to,
    relative: bool  # or its share of the gap at x_avg
    many: int  # clients of GD and DIANA
    few: int  # clients of DCGD, and of DIANA beside it
    alphas: tuple[float, ...]  # of GD
    compressed_alphas: tuple[float, ...]  # of DCGD and DIANA
    shares: tuple[float, ...]  # k as a share of d; 0 is k = 1
    rounds: dict[str, int]  # at most, by method
    precise: float = 1e-12  # a run ends at this gap
    max_examples: int | None = None  # to use, the first of the file; all unless given
    beside_dcgd: tuple[str, ...] = ()  # what else to run on few clients, with the largest k


REGULARISED = Study(
    l2=0.1,
    tolerance=1e-6,
    accuracy=1e-9,
    relative=False,
    many=50,
    few=8,
    alphas=(0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    compressed_alphas=(0.1, 0.9),
    shares=(0.0, 1 / 8, 1 / 3),
    rounds={GD: 600, DIANA: 900, DCGD: 300},
    beside_dcgd=(DIANA,),
)
UNREGULARISED = dataclasses.replace(
    REGULARISED,
    l2=0.0,
    tolerance=1e-3,
    accuracy=0.75,
    relative=True,
    many=100,
    alphas=(0.1, 0.9),
    shares=(0.0, 1 / 8),
    rounds={GD: 300, DIANA: 300, DCGD: 300},
    beside_dcgd=(),
)


def smaller(study: Study) -> Study:
    """A few rounds of a few workers, the same for all methods: does it run?"""
    return dataclasses.replace(
        study,
        tolerance=max(study.tolerance, 1e-2 if study.l2 == 0 else 1e-6),
        many=8,
        few=8,
        alphas=(0.1, 0.9),
        shares=(1 / 3,),
        rounds={GD: 40, DIANA: 40, DCGD: 40},
        beside_dcgd=(),
        max_examples=800,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """One data set over so many clients, with what each of them knows before the first round."""

    name: str
    study: Study
    clients: hf.Clients
    model: hf.Model
    optima: hf.flix.Optima
    constants: hf.flix.Constants
    objectives: dict[float, Objective]  # by alpha

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.clients.examples.x.shape[1]

    @property
    def separable(self) -> int:
        """Clients whose own model makes no mistake: without a penalty they have no optimum."""
        parts = zip(self.clients, self.optima.flat(), strict=True)
        return sum(bool(np.all((part.x @ x > 0) == part.y)) for part, x in parts)

    @functools.cached_property
    def start(self) -> dict[str, Any]:
        """x_avg of theorem 1, where theorem 2 starts, and everybody here.

        The same for all alphas, if all clients have the same. `hf.algorithms.flix_one_shot` finds it
        in a round; here everything it depends on is known already.
        """
        return {"weights": self.constants.weights(1.0) @ self.constants.optima}


def build(name: str, examples: hf.Examples, clients: int, study: Study) -> Problem:
    """Divide the data in stored order, and let every client find its own optimum.

    As in the paper, by gradient descent with step 1/L_i.
    """
    divided = hf.data.partition.in_order(examples, clients)
    model = hf.models.logistic_regression(l2=study.l2, intercept=False)
    curvature = hf.diagnose.curvature(model, divided, progress=False)
    search = hf.solvers.GradientDescent(hf.PerClient(1 / curvature.smoothness), study.tolerance)
    optima = hf.flix.local_optima(model, divided, search)
    constants = hf.flix.constants(model, divided, optima, curvature)
    alphas = {*study.alphas, *study.compressed_alphas}
    objectives = {a: Objective.of(divided, optima.flat(), a, study.l2) for a in alphas}
    return Problem(name, study, divided, model, optima, constants, objectives)


def descend(problem: Problem, setting: Setting, rounds: int, every: int, watch: Watch) -> Curve:
    """One run with the step size of theory, until it is precise enough or out of rounds."""
    alpha, k, known = setting.alpha, setting.k, problem.constants
    compressor = None if setting.method == GD else hf.wires.RandK(k=k)
    step = known.step_size(alpha, compressor, diana=setting.method == DIANA)
    algorithm = hf.algorithms.flix(
        alpha, by=_solver(setting.method, compressor), solver=problem.optima.known()
    )
    objective, start = problem.objectives[alpha], problem.start
    what = f"{setting.data}, {setting.method}, alpha={alpha:g}, k={k}"
    measured = [(0, objective.gap(start["weights"]), objective.distance(start["weights"]))]
    run = hf.rounds(
        algorithm, problem.model, problem.clients, hf.Local(step, steps=1), params=start
    )
    for state in run:
        if state.round % every == 0 or state.round == rounds:
            x = state.params["weights"]
            measured.append((state.round, objective.gap(x), objective.distance(x)))
            watch(what, state.round, rounds)
        if state.round == rounds or measured[-1][1] <= problem.study.precise:
            break
    at, gap, distance = map(np.array, zip(*measured, strict=True))
    bits = state.ledger.entries[-1].bits_up
    assert isinstance(bits, int)
    accuracy = problem.study.accuracy * (gap[0] if problem.study.relative else 1)
    promised = promise(problem, setting, step, accuracy)
    return Curve(setting, at, gap, distance, bits, accuracy, promised)


def _solver(method: str, compressor: hf.wires.RandK | None) -> hf.Algorithm:
    if compressor is None:
        return hf.Algorithm(name="dgd")
    return {DCGD: hf.algorithms.dcgd, DIANA: hf.algorithms.diana}[method](compressor)


def promise(problem: Problem, setting: Setting, step: float, accuracy: float) -> Promise:
    """What theorems 1 to 4 guarantee for this run."""
    alpha, known, n = setting.alpha, problem.constants, setting.clients
    convexity, omega = known.convexity_at(alpha), problem.size / setting.k - 1
    rate, limit = step * convexity, 0.0
    if setting.method == DIANA:
        rate = min(rate, 0.5 / (1 + omega))
    elif setting.method == DCGD and convexity:
        squared_distance = 2 * step * omega * problem.objectives[alpha].disagreement
        limit = known.smoothness_at(alpha) / 2 * squared_distance / (convexity * n**2)
    steps = known.rounds(alpha, accuracy) - 1  # the first of them makes x_avg
    return Promise(rate, limit, known.error(alpha, 1), steps)


def settings(problem: Problem, study: Study, methods: Sequence[str]) -> Iterator[Setting]:
    """The runs on one division of the data."""
    n, size = len(problem.clients), problem.size
    for method in methods:
        if method == GD:
            chosen = [(alpha, size) for alpha in study.alphas]
        else:
            kept = sorted({max(1, round(share * size)) for share in study.shares})
            kept = kept[-1:] if n == study.few and method in study.beside_dcgd else kept
            chosen = [(alpha, k) for alpha in study.compressed_alphas for k in kept]
        yield from (Setting(problem.name, method, alpha, k, n) for alpha, k in chosen)


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """All curves of a study, and what is worth knowing about its problems."""

    study: Study
    curves: list[Curve]
    problems: list[Problem]
    generated: list[str]  # data sets that were not there


def compare(study: Study, names: Sequence[str], folder: Path, watch: Watch) -> Found:
    """Every method on every data set."""
    curves, problems = [], []
    for name in names:
        x, y = data.load(name, folder)
        examples = hf.Examples(x[: study.max_examples], y[: study.max_examples])
        for clients, methods in (
            (study.many, (GD, DIANA)),
            (study.few, (DCGD, *study.beside_dcgd)),
        ):
            watch(f"{name}, optima of {clients} clients", 0, 1)
            problem = build(name, examples, clients, study)
            problems.append(problem)
            for setting in settings(problem, study, methods):
                every = 1 if setting.method == GD else 5
                rounds = study.rounds[setting.method]
                curves.append(descend(problem, setting, rounds, every, watch))
    missing = [name for name in names if data.find(name, folder) is None]
    return Found(study, curves, problems, missing)
