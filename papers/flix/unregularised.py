"""Without a penalty, where nobody comes near the optimum: gaps after equal rounds and after equal floats."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from papers.flix import claims, data, regression
from papers.flix.curves import GD, Curve
from papers.flix.logistic import SIXTHS, Sweep
from papers.flix.regression import Figure, Problem, number
from papers.study import Row, Study

ALPHAS = (0.9, 0.1)
ROUNDS = 300
GAPS = "gaps fall like C_1 alpha^2 + C_2 alpha over the rounds"


def gap_after(descent: Curve, floats: float) -> float:
    """Of gradient descent, when a client sent so many floats; between rounds the one before."""
    there = np.flatnonzero(descent.floats <= floats)
    return float(descent.gap[there[-1]])


def runs(problem: Problem, method: str, alpha: float) -> list[Curve]:
    """By k; the last of seven is no compression at all and left out."""
    return [c for c in problem.of(method, alpha=alpha) if c.setting.k < c.size]


def study(
    name: str, title: str, method: str, clients: int, figures: tuple[str, str], minutes: float
) -> Study:
    """The study of a method's two figures: over rounds, and over floats."""

    def by_rounds(problem: Problem) -> regression.Told:
        found = {
            f"{method} has the larger gap after as many rounds, with every k and alpha": all(
                c.end >= gap_after(problem.descent(a), c.rounds[-1] * c.size)
                for a in ALPHAS
                for c in runs(problem, method, a)
            )
        }
        parts = []
        for alpha in ALPHAS:
            ks = ", ".join(f"{c.setting.k}: {number(c.end)}" for c in runs(problem, method, alpha))
            descent = problem.descent(alpha)
            first, last = number(descent.gap[0]), number(descent.end)
            parts.append(f"alpha {alpha:g}: from {first}, GD {last}, {method} by k {ks}")
        return "; ".join(parts), found, _optima(problem)

    def by_floats(problem: Problem) -> regression.Told:
        ratios = {
            alpha: {
                c.setting.k: c.end / gap_after(problem.descent(alpha), c.floats[-1])
                for c in runs(problem, method, alpha)
            }
            for alpha in ALPHAS
        }
        found = {
            f"with some k {method} has the smaller gap after as many floats, for both alpha": all(
                min(by_k.values()) < 1 for by_k in ratios.values()
            )
        }
        parts = [
            f"alpha {alpha:g}, by k " + ", ".join(f"{k}: {number(r)}" for k, r in by_k.items())
            for alpha, by_k in ratios.items()
        ]
        # Without compression the method is gradient descent with the step of its own theory.
        quarter = {
            alpha: min(
                c.end / gap_after(problem.of(method, alpha=alpha, k=c.size)[0], c.floats[-1])
                for c in runs(problem, method, alpha)
            )
            for alpha in ALPHAS
        }
        said = " and ".join(
            f"{number(ratio)} at alpha {alpha:g}" for alpha, ratio in quarter.items()
        )
        why = (
            "Theory gives the compressed method a quarter of the step where the loss is only convex: against "
            f"gradient descent with that quarter too the smallest ratio is {said}."
        )
        return "; ".join(parts), found, f"{why} {_optima(problem)}".strip()

    def rows(problems: list[Problem]) -> Sequence[Row]:
        first = (
            "table 1",
            f"{method}, convex: {GAPS}",
            "the guarantee, of order 1 / k" + (" to a neighbourhood" if method == "DCGD" else ""),
        )
        if not problems:
            return [Row(*first)]
        by = {
            p.name: [
                (small.gap[0] / large.gap[0], small.end / large.end)
                for small, large in zip(runs(p, method, 0.1), runs(p, method, 0.9), strict=True)
            ]
            for p in problems
        }
        # With C_2 alone the gap is in proportion to alpha, with C_1 alone to its square.
        found = {
            "at alpha 0.1 gaps are at most 1/9 of those at 0.9, at the start and after 300 rounds": all(
                max(pair) <= 1.2 / 9 for pairs in by.values() for pair in pairs
            )
        }
        said = "; ".join(
            f"{name} {number(pairs[0][0])} at the start, "
            f"{number(min(e for _, e in pairs))} to {number(max(e for _, e in pairs))} in the end"
            for name, pairs in by.items()
        )
        return [
            Row(
                *first,
                f"the gap at alpha 0.1 over that at 0.9: {said}",
                "full",
                "; ".join(problem.examples for problem in problems),
                claims.verdict(found, all(p.name in data.PLACES for p in problems)),
                claims.broken(found),
            )
        ]

    def table(problems: list[Problem]) -> str:
        listed = [
            [
                p.name,
                f"{alpha:g}",
                f"{c.setting.k}",
                number(c.gap[0]),
                number(c.end),
                number(gap_after(p.descent(alpha), c.rounds[-1] * c.size)),
                f"{int(c.floats[-1]):,}",
                number(gap_after(p.descent(alpha), c.floats[-1])),
            ]
            for p in problems
            for alpha in ALPHAS
            for c in runs(p, method, alpha)
        ]
        head = ["data", "alpha", "k", "gap at x_avg", "after 300 rounds", "GD after 300 rounds"]
        text = regression.markdown([*head, "floats up", "GD after as many floats"], listed)
        return "\n\n".join([text, *filter(None, map(_optima, problems))])

    words = f"{method} on {clients} clients, no penalty"
    places = [
        Figure(
            figures[0],
            f"{words}: gap after {ROUNDS} rounds",
            "the same picture as with a penalty: in rounds gradient descent is ahead",
            by_rounds,
        ),
        Figure(
            figures[1],
            f"{words}: its gap after {ROUNDS} rounds over that of gradient descent after as many floats",
            "the same picture as with a penalty: in communication compression is ahead",
            by_floats,
        ),
    ]
    task = dataclasses.replace(
        regression.UNREGULARISED,
        clients=clients,
        sweeps=(Sweep(GD, ALPHAS, ROUNDS), Sweep(method, ALPHAS, ROUNDS, SIXTHS)),
    )
    return regression.study(
        name,
        title,
        task,
        places,
        table,
        regression.draw_compressed(method, ALPHAS),
        {name: minutes for name in data.NAMES},
        searched="nothing: all step sizes are the largest that theory allows (for the compressed method a "
        "quarter of the strongly convex case's), with the exact L_i. Local optima are found to a gradient "
        "norm of 1e-3; the paper does not say to which.",
        rows=rows,
    )


def _optima(problem: Problem) -> str:
    clients, separable = (
        problem.values["curves"][0]["setting"]["clients"],
        problem.values["separable"],
    )
    if not separable:
        return ""
    return (
        f"On {problem.name} {separable} of {clients} clients can separate their examples: their optimum is "
        f"at infinity, and x_i is where the search stops."
    )
