"""FLIX, figure 2: gradient descent with a penalty, for several alpha."""

import dataclasses
from pathlib import Path

import numpy as np

from papers import figures
from papers.flix import regression
from papers.flix.curves import GD
from papers.flix.logistic import ALPHAS, Sweep
from papers.flix.regression import Figure, Problem, count, number

TASK = dataclasses.replace(
    regression.REGULARISED, sweeps=(Sweep(GD, alphas=(*ALPHAS, 1.0), rounds=600),)
)


def told(problem: Problem) -> regression.Told:
    """Rounds to the gap, rounds per digit, and both theorems."""
    curves = problem.of(GD)
    needed = [curve.needed for curve in curves]
    rates = [curve.per_digit for curve in curves]
    first = [curve.gap[0] for curve in curves]
    ends = f"{curves[0].setting.alpha:g} to {curves[-1].setting.alpha:g}"
    start = f"{number(first[0])} to {number(first[-1])}"
    ours = (
        f"alpha from {ends}: {' / '.join(map(count, needed))} rounds to a gap of 1e-9; "
        f"{' / '.join(map(number, rates))} rounds per digit; it starts at {start}"
    )
    bound = [c.promise.rounds for c in curves]
    claims = {
        "the smaller alpha the fewer rounds": regression.increasing(needed),
        "the smaller alpha the nearer the start": regression.increasing(first),
        "the same speed for every alpha (within 10 %)": regression.spread(rates) < 1.1,
        "within theorem 1's and theorem 2's bounds": all(
            c.gap[0] <= c.promise.first_gap and (c.needed or np.inf) <= c.promise.rounds
            for c in curves
        ),
    }
    return ours, claims, f"Theorem 2 has {' / '.join(map(count, bound))} rounds at most."


def table(problems: list[Problem]) -> str:
    """A row for each run."""
    rows = [
        [
            problem.name,
            f"{c.setting.alpha:g}",
            number(c.gap[0]),
            number(c.promise.first_gap),
            count(c.needed),
            count(c.promise.rounds),
            number(c.per_digit),
            number(c.promise.rounds_per_digit),
        ]
        for problem in problems
        for c in problem.of(GD)
    ]
    head = ["data", "alpha", "gap at x_avg", "at most (theorem 1)", "rounds to 1e-9"]
    return regression.markdown(
        [*head, "at most (theorem 2)", "rounds per digit", "at most (theorem 2)"], rows
    )


def figure(problems: list[Problem], path: Path) -> None:
    """Both of the paper's panels for each data set."""
    shown = [(problem, what) for problem in problems for what in ("gap", "distance")]
    with figures.panels(path, len(shown), most=2) as axes:
        for axis, (problem, what) in zip(axes, shown, strict=True):
            for number_, curve in enumerate(problem.of(GD)):
                y = curve.gap if what == "gap" else curve.distance
                label = f"alpha {curve.setting.alpha:g}"
                axis.plot(curve.rounds, y, color=f"C{number_}", linewidth=1, label=label)
            axis.set(title=problem.name, xlabel="rounds", yscale="log")
            axis.set_ylabel("gap" if what == "gap" else "squared distance")
            axis.legend(fontsize="x-small")


STUDY = regression.study(
    "flix/figure2",
    "Gradient descent with a penalty, for several alpha",
    TASK,
    [
        Figure(
            "figure 2",
            "gradient descent on 50 clients, lambda 0.1",
            "smaller alpha starts closer and converges better, at a speed that is the same for every alpha",
            told,
        )
    ],
    table,
    figure,
    {"mushrooms": 0.5, "a6a": 0.5, "ijcnn1": 0.4, "a9a": 0.8},
)
