"""Logistic regression by gradient descent, DCGD and DIANA on the FLIX objective: cells of studies."""

import dataclasses
import functools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

import holdfast as hf
from holdfast.record.files import write_whole
from papers.flix import data
from papers.flix.curves import AVERAGE, DCGD, DIANA, GD, Curve, Promise, Setting
from papers.flix.objective import Objective
from papers.study import Asked, Values

ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
PRECISE = 1e-10  # a run ends at this gap
SIXTHS = tuple(range(7))  # 7 values of k linearly spaced between 1 and d, as in the paper


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs of one method: every alpha, for every k."""

    method: str
    alphas: tuple[float, ...]
    rounds: int  # at most
    sixths: tuple[int, ...] = (6,)  # of the way of k from 1 to d
    start: str = AVERAGE

    def settings(self, name: str, clients: int, size: int) -> Iterator[Setting]:
        """The runs on one division of the data."""
        for sixth in self.sixths:
            k = round(1 + (size - 1) * sixth / 6)
            for alpha in self.alphas:
                yield Setting(name, self.method, alpha, k, clients, self.start)


@dataclasses.dataclass(frozen=True)
class Task:
    """One of the paper's settings, the same for all data sets.

    Args:
        l2: the penalty, lambda.
        tolerance: gradient norm at which a client's own optimum is good enough.
        accuracy: the gap that rounds are counted to.
        relative: or its share of the gap at the start.
        clients: among whom the data are divided.
        sweeps: what is run.
        most: so many examples, the first of the file; all unless given.
    """

    l2: float
    tolerance: float
    accuracy: float
    relative: bool
    clients: int
    sweeps: tuple[Sweep, ...]
    most: int | None = None

    @classmethod
    def read(cls, values: Values) -> "Task":
        """From JSON."""
        sweeps = tuple(Sweep(**sweep) for sweep in values["sweeps"])
        return cls(**{**values, "sweeps": sweeps})


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """One data set over so many clients, with what each of them knows before the first round."""

    name: str
    task: Task
    clients: hf.Clients
    model: hf.Model
    optima: hf.flix.Optima
    constants: hf.flix.Constants

    @property
    def size(self) -> int:
        """The number of parameters."""
        return int(self.clients.examples.x.shape[1])

    @property
    def separable(self) -> int:
        """Clients whose own model makes no mistake: without a penalty they have no optimum."""
        parts = zip(self.clients, self.optima.flat(), strict=True)
        return sum(bool(((part.x @ x > 0) == part.y).all()) for part, x in parts)

    @functools.cache  # noqa: B019 - a problem lives as long as its cell
    def objective(self, alpha: float) -> Objective:
        """What FLIX minimises."""
        return Objective.of(self.clients, self.optima.flat(), alpha, self.task.l2)

    def start(self, name: str) -> dict[str, Any]:
        """The x_avg of theorem 1, the same for all alphas if all clients have the same; or zeros.

        `hf.algorithms.flix_one_shot` finds x_avg in a round; here all it depends on is known already.
        """
        average = self.constants.weights(1.0) @ self.constants.optima
        return {"weights": average if name == AVERAGE else 0 * average}


def build(name: str, examples: hf.Examples, task: Task) -> Problem:
    """Divide the data in stored order, and let every client find its own optimum.

    As in the paper, by gradient descent with step 1/L_i.
    """
    divided = hf.data.partition.in_order(examples, task.clients)
    model = hf.models.logistic_regression(l2=task.l2, intercept=False)
    curvature = hf.diagnose.curvature(model, divided, progress=False)
    search = hf.solvers.GradientDescent(hf.PerClient(1 / curvature.smoothness), task.tolerance)
    with warnings.catch_warnings():
        if not task.l2:
            # Examples that can be separated have no optimum; how many clients have such is kept.
            warnings.simplefilter("ignore", hf.HoldfastWarning)
        optima = hf.flix.local_optima(model, divided, search)
    constants = hf.flix.constants(model, divided, optima, curvature)
    return Problem(name, task, divided, model, optima, constants)


def curves(name: str, given: Values, *, asked: Asked, folder: Path) -> Values:
    """Every run of a task on a data set, in 64 bits: gaps get as small as 1e-10."""
    task = Task.read(given)
    kept = folder / "curves.json"
    found: list[Values] = json.loads(kept.read_text()) if kept.exists() else []
    with jax.enable_x64(True):
        x, y = data.stand_in(*data.QUICK) if asked.quick else data.load(name, asked.data)
        problem = build(name, hf.Examples(x[: task.most], y[: task.most]), task)
        runs = [
            (sweep, setting)
            for sweep in task.sweeps
            for setting in sweep.settings(name, task.clients, problem.size)
        ]
        for sweep, setting in runs[len(found) :]:
            found.append(descend(problem, setting, sweep.rounds).values)
            write_whole(kept, json.dumps(found))
    known = problem.constants
    return {
        "examples": len(problem.clients.examples.y),
        "size": problem.size,
        "smoothness": round(float(known.smoothness.mean()), 4),
        "spread": float(f"{known.spread(1.0):.3g}"),
        "steepest": float(f"{problem.optima.gradient_norms.max():.2g}"),
        "separable": problem.separable,
        "curves": found,
    }


def descend(problem: Problem, setting: Setting, rounds: int) -> Curve:
    """One run with the step size of theory, until it is precise enough or out of rounds."""
    alpha, known = setting.alpha, problem.constants
    # Measuring takes as long as a round.
    every = 1 if setting.method == GD else 5
    compressor = None if setting.method == GD else hf.wires.RandK(k=setting.k)
    step = known.step_size(alpha, compressor, diana=setting.method == DIANA)
    algorithm = hf.algorithms.flix(
        alpha, by=_solver(setting.method, compressor), solver=problem.optima.known()
    )
    objective, start = problem.objective(alpha), problem.start(setting.start)
    measured = [(0, objective.gap(start["weights"]), objective.distance(start["weights"]))]
    run = hf.rounds(
        algorithm, problem.model, problem.clients, hf.Local(step, steps=1), params=start
    )
    for state in run:
        if state.round % every == 0 or state.round <= 50 or state.round == rounds:
            x = state.params["weights"]
            measured.append((state.round, objective.gap(x), objective.distance(x)))
        if state.round == rounds or measured[-1][1] <= PRECISE:
            break
    bits = state.ledger.entries[-1].bits_up
    assert isinstance(bits, int)
    accuracy = problem.task.accuracy * (measured[0][1] if problem.task.relative else 1)
    promised = promise(problem, setting, step, accuracy)
    return Curve.of(setting, problem.size, bits, measured, accuracy, promised)


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
        squared_distance = 2 * step * omega * problem.objective(alpha).disagreement
        limit = known.smoothness_at(alpha) / 2 * squared_distance / (convexity * n**2)
    steps = known.rounds(alpha, accuracy) - 1  # the first of them makes x_avg
    return Promise(rate, limit, known.error(alpha, 1), steps)
