"""FLIX, figures 3, 7 and 8: DIANA with a penalty, seven values of k, beside gradient descent."""

import dataclasses
from collections.abc import Callable

import numpy as np

from papers.flix import claims, data, regression
from papers.flix.curves import DIANA, GD, Curve
from papers.flix.logistic import ALPHAS, SIXTHS, Sweep
from papers.flix.regression import Figure, Problem, count, number
from papers.study import Row

TASK = dataclasses.replace(
    regression.REGULARISED,
    sweeps=(Sweep(GD, ALPHAS, 600), Sweep(DIANA, ALPHAS, 1500, SIXTHS)),
)
SHOWN = (ALPHAS[-1], ALPHAS[0])  # in words and in the figure


def compressed(problem: Problem, method: str, alpha: float) -> list[Curve]:
    """By k; the last of seven is no compression at all and left out."""
    return [c for c in problem.of(method, alpha=alpha) if c.setting.k < c.size]


def by_rounds(problem: Problem) -> regression.Told:
    """Figure 7."""
    pairs = [(c, problem.descent(a)) for a in ALPHAS for c in compressed(problem, DIANA, a)]
    found = {
        "with no k and alpha DIANA needs fewer rounds": all(
            (c.needed or np.inf) >= (gd.needed or np.inf) for c, gd in pairs
        )
    }
    return told(problem, lambda c: c.needed), found, ""


def by_floats(problem: Problem) -> regression.Told:
    """Figure 8."""
    better = {
        alpha: sum(
            (c.floats_needed or np.inf) < (problem.descent(alpha).floats_needed or np.inf)
            for c in compressed(problem, DIANA, alpha)
        )
        for alpha in ALPHAS
    }
    found = {"with some k DIANA sends fewer floats, for every alpha": min(better.values()) > 0}
    said = ", ".join(f"{n} at alpha {alpha:g}" for alpha, n in better.items())
    return (
        told(problem, lambda c: c.floats_needed),
        found,
        f"Of six values of k so many win: {said}.",
    )


def told(problem: Problem, read: Callable[[Curve], int | None]) -> str:
    """A number of gradient descent and of every k, for two alphas."""
    parts = []
    for alpha in SHOWN:
        runs = compressed(problem, DIANA, alpha)
        ks = ", ".join(f"{c.setting.k}: {count(read(c))}" for c in runs)
        parts.append(f"alpha {alpha:g}: GD {count(read(problem.descent(alpha)))}, DIANA by k {ks}")
    return "; ".join(parts)


def against_theory(problem: Problem) -> list[float]:
    """Rounds per digit over those of theorem 4, of every run that came so far."""
    return [c.per_digit / c.promise.rounds_per_digit for c in problem.of(DIANA) if c.per_digit]


def rows(problems: list[Problem]) -> list[Row]:
    """Figure 3, which shows some of the data sets, and what table 1 guarantees of DIANA."""
    third = (
        "figure 3",
        "DIANA on 50 clients, lambda 0.1, seven k: rounds to a gap of 1e-9",
        "smaller alpha converges better; the rate is controlled by omega + 1 or kappa (omega + 1) / n",
    )
    first = (
        "table 1",
        "DIANA, strongly convex: the gap is at most (1 - rho)^k C alpha^2",
        "the guarantee",
    )
    if not problems:
        return [Row(*third), Row(*first)]
    where = "; ".join(problem.examples for problem in problems)
    ratios = {problem.name: against_theory(problem) for problem in problems}
    everything = [ratio for of in ratios.values() for ratio in of]
    said = ", ".join(f"{n} {min(r):.2f} to {max(r):.2f}" for n, r in ratios.items() if r)
    smaller = all(
        regression.increasing([problem.of(DIANA, alpha=a, k=k)[0].needed for a in ALPHAS])
        for problem in problems
        for k in {c.setting.k for c in problem.of(DIANA)}
    )
    faster = all(
        regression.increasing([c.needed for c in reversed(problem.of(DIANA, alpha=a))])
        for problem in problems
        for a in ALPHAS
    )
    tells = {
        "the smaller alpha the fewer rounds, for every k": smaller,
        "the larger k the fewer rounds, for every alpha": faster,
        "rounds per digit are theorem 4's by a factor that varies less than threefold": (
            regression.spread(everything) < 3
        ),
    }
    within = {
        "no run needs more rounds per digit than the guarantee": max(everything) <= 1,
        "gaps at x_avg are below theorem 1's, which are in proportion to alpha^2": all(
            c.gap[0] <= c.promise.first_gap for problem in problems for c in problem.of(DIANA)
        ),
    }
    gaps = ", ".join(
        f"{p.name} {max(c.gap[0] / c.promise.first_gap for c in p.of(DIANA)):.2g}" for p in problems
    )
    paper = [name for name in ratios if name not in data.PLACES]
    return [
        Row(
            *third,
            f"rounds per digit over theorem 4's: {said}",
            "full",
            where,
            claims.verdict(tells, elsewhere=not paper),
            f"{claims.broken(tells)} The panels' data sets are not in the text: all are counted.".strip(),
        ),
        Row(
            *first,
            f"rounds per digit over the guarantee's: {said}; gap at x_avg over theorem 1's at most: {gaps}",
            "full",
            where,
            claims.verdict(within, elsewhere=not paper),
            claims.broken(within),
        ),
    ]


def table(problems: list[Problem]) -> str:
    """The runs of two alphas."""
    listed = []
    for problem in problems:
        for alpha in SHOWN:
            for c in (problem.descent(alpha), *problem.of(DIANA, alpha=alpha)):
                sent = None if c.needed is None else c.needed * c.bits / 1000
                listed.append(
                    [
                        problem.name,
                        f"{alpha:g}",
                        c.setting.method,
                        f"{c.setting.k}",
                        count(c.needed),
                        count(c.floats_needed),
                        count(sent),
                        number(c.per_digit),
                        number(c.promise.rounds_per_digit),
                    ]
                )
    head = ["data", "alpha", "method", "k", "rounds to 1e-9", "floats up", "kilobits up"]
    return regression.markdown([*head, "rounds per digit", "at most (theorems 2, 4)"], listed)


STUDY = regression.study(
    "flix/figure7",
    "DIANA with a penalty, seven values of k, beside gradient descent",
    TASK,
    [
        Figure(
            "figure 7",
            "DIANA and gradient descent on 50 clients, lambda 0.1: rounds to a gap of 1e-9",
            "in rounds DIANA loses to gradient descent",
            by_rounds,
        ),
        Figure(
            "figure 8",
            "DIANA and gradient descent on 50 clients, lambda 0.1: floats a client sends until a gap of 1e-9",
            "in communication DIANA is better than gradient descent",
            by_floats,
        ),
    ],
    table,
    regression.draw_compressed(DIANA, SHOWN),
    {"mushrooms": 1.2, "a6a": 0.9, "ijcnn1": 0.3, "a9a": 2},
    rows=rows,
)
