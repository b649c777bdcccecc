"""Whether numbers by method stand as the paper's do: the verdict of a row, and what it says of it."""

from collections.abc import Mapping, Sequence

import numpy as np

from papers.study import Verdict

# Numbers are near the paper's within this share of them, or within the deviation over draws if that is more.
NEAR = 0.15

# What is compared, such as rounds, by method: fewer is better; infinite where a target was not reached.
Numbers = Mapping[str, float]
Draws = Mapping[str, Sequence[float | None]]  # ours, of every draw


def verdict(paper: Numbers, found: Draws) -> Verdict:
    """Of the methods that were run.

    Pairs of methods whose numbers in the paper, or here, are within `NEAR` of each other are ties, and may
    stand either way.
    """
    means = {m: mean(values) for m, values in found.items() if values and m in paper}
    if len(means) < 2:
        return Verdict.NOT_RUN
    if all(_is_near(paper[m], found[m]) for m in means):
        return Verdict.AGREES
    return Verdict.DISAGREES if out_of_order(paper, found) else Verdict.ORDER


def out_of_order(paper: Numbers, found: Draws) -> list[tuple[str, str]]:
    """Pairs of methods of whom the paper has the first ahead, and here the second is, neither by little."""
    return [(a, b) for a, b in _turned(paper, found) if not _is_tie(found[a], found[b])]


def ties(paper: Numbers, found: Draws) -> list[tuple[str, str]]:
    """Pairs of which the same is so, but here by so little that they are not told apart."""
    return [(a, b) for a, b in _turned(paper, found) if _is_tie(found[a], found[b])]


def _is_tie(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    less, more = sorted((mean(one), mean(other)))
    return more <= less * (1 + NEAR)


def _turned(paper: Numbers, found: Draws) -> list[tuple[str, str]]:
    means = {m: mean(values) for m, values in found.items() if values and m in paper}
    return [
        (a, b)
        for a in means
        for b in means
        if paper[a] * (1 + NEAR) < paper[b] and means[a] > means[b]
    ]


def unlike(paper: Numbers, found: Draws, names: Mapping[str, str]) -> str:
    """Which methods stand another way round than in the paper, and which are not told apart; in words."""
    turned = out_of_order(paper, found)
    said = ", ".join(_pair(found, names, a, b, "before") for a, b in turned)
    tied = ", ".join(_pair(found, names, a, b, "and") for a, b in ties(paper, found))
    return " ".join(
        part
        for part in (
            said and f"Here {said}, which the paper has the other way round.",
            tied and f"Not told apart here: {tied}.",
        )
        if part
    )


def _pair(found: Draws, names: Mapping[str, str], a: str, b: str, word: str) -> str:
    """The one that is ahead here first."""
    return f"{names[b]} {word} {names[a]} ({_figure(found[b])} and {_figure(found[a])})"


def _figure(values: Sequence[float | None]) -> str:
    found = mean(values)
    return f"{found:.0f}" if np.isfinite(found) else "not reached"


def mean(values: Sequence[float | None]) -> float:
    """Over draws; infinite if one did not get there."""
    return float(np.mean([np.inf if v is None else v for v in values]))


def mean_told(values: Sequence[float | None], cap: int) -> str:
    """Mean and deviation over draws; where some did not get there, how many did."""
    there = [v for v in values if v is not None]
    if not there:
        return f"{cap}+ ({_draws(len(values))})"
    text = f"{np.mean(there):.0f}"
    if len(there) > 1:
        text += f" ± {np.std(there, ddof=1):.0f}"
    if len(there) < len(values):
        return f"{text} ({len(there)} of {_draws(len(values))}, else {cap}+)"
    return f"{text} ({_draws(len(values))})"


def _draws(count: int) -> str:
    return "1 draw" if count == 1 else f"{count} draws"


def _is_near(paper: float, values: Sequence[float | None]) -> bool:
    ours = mean(values)
    if not np.isfinite(paper) or not np.isfinite(ours):
        return bool(np.isfinite(paper) == np.isfinite(ours))
    numbers = [v for v in values if v is not None]
    deviation = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    return abs(ours - paper) <= max(NEAR * paper, deviation)
