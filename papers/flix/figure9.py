"""FLIX, figures 9 and 10: compressed gradient descent with a penalty, seven values of k."""

import dataclasses
from collections.abc import Callable

import numpy as np

from papers.flix import claims, data, regression
from papers.flix.curves import AVERAGE, DCGD, DIANA, GD, ZERO, Curve
from papers.flix.logistic import ALPHAS, SIXTHS, Sweep
from papers.flix.regression import Figure, Problem, count, number
from papers.study import Row

ENDS = (ALPHAS[-1], ALPHAS[0])
ROUNDS = 300
TASK = dataclasses.replace(
    regression.REGULARISED,
    clients=8,
    sweeps=(
        Sweep(GD, ALPHAS, ROUNDS),
        Sweep(DCGD, ALPHAS, ROUNDS, SIXTHS),
        # Where the paper's runs start is not said.
        Sweep(GD, ENDS, ROUNDS, start=ZERO),
        Sweep(DCGD, ENDS, ROUNDS, SIXTHS, ZERO),
        # Does it go on where DCGD stays?
        Sweep(DIANA, ENDS[:1], 2 * ROUNDS, (2,)),
    ),
)
ALPHAS_OF = {AVERAGE: ALPHAS, ZERO: ENDS}
LEVEL = "twice the mean gap of DCGD's last quarter"
Pair = tuple[Curve, Curve]  # DCGD, and gradient descent from the same start


def pairs(problem: Problem, alpha: float, start: str) -> list[Pair]:
    """By k; without compression there is nothing to compare."""
    descent = problem.descent(alpha, start)
    runs = problem.of(DCGD, start, alpha=alpha)
    return [(c, descent) for c in runs if c.setting.k < c.size]


def rounds_of(pair: Pair) -> tuple[float, float]:
    """Rounds of both until DCGD is near where it stays."""
    level = 2 * pair[0].end
    own, descent = (np.inf if r is None else r for r in (c.rounds_to(level) for c in pair))
    return own, descent


def floats_of(pair: Pair) -> tuple[float, float]:
    """What a client sends in them."""
    own, descent = rounds_of(pair)
    return own * pair[0].setting.k, descent * pair[1].setting.k


def is_stuck(pair: Pair) -> bool:
    """Whether the start is as near as DCGD comes, so that it gains nothing."""
    return pair[0].gap[0] <= 2 * pair[0].end


def by_rounds(start: str) -> Callable[[Problem], regression.Told]:
    """Figure 9."""

    def found(problem: Problem) -> regression.Told:
        claims = {
            "with no k and alpha DCGD is there in fewer rounds, or stays below gradient descent": all(
                pair[1].end < pair[0].end
                if is_stuck(pair)
                else rounds_of(pair)[0] >= rounds_of(pair)[1]
                for alpha in ALPHAS_OF[start]
                for pair in pairs(problem, alpha, start)
            )
        }
        return told(problem, rounds_of, start), claims, _stuck(problem, start)

    return found


def by_floats(start: str) -> Callable[[Problem], regression.Told]:
    """Figure 10."""

    def found(problem: Problem) -> regression.Told:
        wins = {
            alpha: sum(
                not is_stuck(pair) and floats_of(pair)[0] < floats_of(pair)[1]
                for pair in pairs(problem, alpha, start)
            )
            for alpha in ALPHAS_OF[start]
        }
        claims = {"with some k DCGD sends fewer floats, for every alpha": min(wins.values()) > 0}
        said = ", ".join(f"{n} at alpha {alpha:g}" for alpha, n in wins.items())
        why = f"Of six values of k so many win: {said}. {_stuck(problem, start)}"
        return told(problem, floats_of, start), claims, why.strip()

    return found


def _stuck(problem: Problem, start: str) -> str:
    stuck = [pair for a in ALPHAS_OF[start] for pair in pairs(problem, a, start) if is_stuck(pair)]
    runs = sum(len(pairs(problem, a, start)) for a in ALPHAS_OF[start])
    if not stuck:
        return ""
    return (
        f"In {len(stuck)} of {runs} runs {start} is as near as DCGD ever comes (-): it gains nothing there. "
        "The paper does not say where it starts."
    )


def told(problem: Problem, read: Callable[[Pair], tuple[float, float]], start: str) -> str:
    """A number of both methods for every k, for two alphas."""
    parts = []
    for alpha in ENDS:
        ks = ", ".join(
            f"{pair[0].setting.k}: "
            + ("-" if is_stuck(pair) else f"{count(read(pair)[0])} ({count(read(pair)[1])})")
            for pair in pairs(problem, alpha, start)
        )
        parts.append(f"alpha {alpha:g}, DCGD by k (gradient descent) {ks}")
    return "; ".join(parts)


def rows(problems: list[Problem]) -> list[Row]:
    """What table 1 guarantees of DCGD: a neighbourhood in proportion to alpha^2."""
    first = (
        "table 1",
        "DCGD, strongly convex: the gap comes to a neighbourhood C_2 alpha^2",
        "the guarantee",
    )
    if not problems:
        return [Row(*first)]
    scaled, below = [], []
    said: list[str] = []
    for problem in problems:
        small, large = (problem.of(DCGD, alpha=a)[:-1] for a in (0.1, 0.9))
        ratios = [b.end / a.end for a, b in zip(small, large, strict=True)]
        scaled += ratios
        below += [c.end <= c.promise.limit for c in problem.of(DCGD) if c.setting.k < c.size]
        said.append(f"{problem.name} {min(ratios):.0f} to {max(ratios):.0f} times")
    stays = [(problem.of(DIANA)[0].end, _beside(problem).end) for problem in problems]
    found = {
        "the gap where DCGD stays is below theorem 3's": all(below),
        "it is (0.9 / 0.1)^2 = 81 times as large at alpha 0.9 as at 0.1, by a factor of 2": all(
            81 / 2 < ratio < 81 * 2 for ratio in scaled
        ),
        "DIANA with the same k does not stay there": all(
            diana < dcgd / 100 for diana, dcgd in stays
        ),
    }
    elsewhere = all(problem.name in data.PLACES for problem in problems)
    return [
        Row(
            *first,
            f"the gap where it stays at alpha 0.9 over that at 0.1: {', '.join(said)}",
            "full",
            "; ".join(problem.examples for problem in problems),
            claims.verdict(found, elsewhere),
            claims.broken(found),
        )
    ]


def _beside(problem: Problem) -> Curve:
    """DCGD with the k that DIANA has."""
    diana = problem.of(DIANA)[0].setting
    return problem.of(DCGD, alpha=diana.alpha, k=diana.k)[0]


def table(problems: list[Problem]) -> str:
    """The runs of two alphas, from both starts."""
    listed = []
    for problem in problems:
        for start in (AVERAGE, ZERO):
            for alpha in ENDS:
                for pair in pairs(problem, alpha, start):
                    versus = [_versus(read(pair)) for read in (rounds_of, floats_of)]
                    listed.append([*_row(problem, pair), *versus])
    head = ["data", "start", "alpha", "k", "gap at the start", "where it stays"]
    return regression.markdown([*head, "at most (theorem 3)", "rounds (GD)", "floats (GD)"], listed)


def _row(problem: Problem, pair: Pair) -> list[str]:
    c = pair[0]
    at = [number(c.gap[0]), number(c.end), number(c.promise.limit or None)]
    return [problem.name, c.setting.start, f"{c.setting.alpha:g}", f"{c.setting.k}", *at]


def _versus(numbers: tuple[float, float]) -> str:
    return f"{count(numbers[0])} ({count(numbers[1])})"


STUDY = regression.study(
    "flix/figure9",
    f"DCGD with a penalty, seven values of k: rounds and floats are those until {LEVEL}",
    TASK,
    [
        Figure(
            f"figure {number_}",
            f"DCGD on 8 clients, lambda 0.1, from {start}: {what}",
            paper,
            by(start),
        )
        for number_, what, paper, by in (
            (
                9,
                f"rounds until {LEVEL}",
                "in rounds compressed gradient descent loses to gradient descent",
                by_rounds,
            ),
            (
                10,
                f"floats a client sends until {LEVEL}",
                "in communication compressed gradient descent is better than gradient descent",
                by_floats,
            ),
        )
        for start in (AVERAGE, ZERO)
    ],
    table,
    regression.draw_compressed(DCGD, ENDS),
    {"mushrooms": 0.9, "a6a": 0.9, "ijcnn1": 0.8, "a9a": 2},
    rows=rows,
)
