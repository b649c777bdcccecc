"""What contestants are ordered by, from runs that differ in their seeds and in what was held out."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from holdfast.adviser.candidates import Contestant
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.adviser.work import Entry, Score, worst_tenth

# A run that did not get to its target counts as one of so many times its length.
_NOT_THERE = 1.5


def by_contestant(found: Mapping[Entry, Score]) -> dict[Contestant, list[Score]]:
    """Scores of every contestant, in the order of its runs."""
    each: dict[Contestant, list[Score]] = {}
    for entry, score in found.items():
        each.setdefault(entry.contestant, []).append(score)
    return each


def standing(problem: Problem, scores: Sequence[Score]) -> float:
    """What contestants are ordered by, the smaller the better: of all runs together.

    Until a target it is the mean of the logarithm, so that one run which took long, or did not get there,
    does not decide; of the worst tenth, that of what every client had on average.
    """
    if not scores or any(s.failed for s in scores):
        return math.inf
    sign = -1.0 if problem.greater else 1.0
    if problem.goal in TO_TARGET:
        found = float(np.mean([cost(problem, s) for s in scores]))
    elif problem.goal == "worst_tenth" and all(s.clients for s in scores):
        found = sign * worst_tenth(np.mean([s.clients for s in scores], 0), problem.greater)
    else:
        found = sign * float(np.mean([_value(problem, s) for s in scores]))
    return found if math.isfinite(found) else math.inf


def cost(problem: Problem, score: Score) -> float:
    """The logarithm of what a run needed to its target; of who did not get there, behind all who did, by
    how near they came."""
    assert problem.target is not None
    rounds, short = score.crossed(problem.target, problem.greater), 0.0
    if not math.isfinite(rounds):
        rounds = float(len(score.curve))
        best = max(score.curve) if problem.greater else min(score.curve)
        short = math.log(_NOT_THERE) + abs(problem.target - best) / max(abs(problem.target), 1e-9)
    megabytes, seconds = score.spent(rounds)
    needed = {"rounds": rounds, "megabytes": megabytes, "seconds": seconds}[problem.goal]
    return math.log(max(needed, 1e-12)) + short


def ordered(problem: Problem, found: Mapping[Contestant, Sequence[Score]]) -> list[Contestant]:
    """Best first.

    Shares of right answers are counted in whole examples. Of the values of one method whose shares cannot
    be told apart, by one standard error, that with the least loss has the place of the best: the loss sees
    how sure answers are, too.
    """
    at = {c: standing(problem, scores) for c, scores in found.items()}
    order = sorted(found, key=at.__getitem__)
    if problem.goal in TO_TARGET or not problem.greater:
        return order
    front: dict[str, Contestant] = {}
    for contestant in order:
        front.setdefault(contestant.method, contestant)
    for method, best in front.items():
        if not math.isfinite(at[best]):
            continue
        near = [c for c in order if c.method == method and _as_good(problem, found[best], found[c])]
        front[method] = min(near, key=lambda c: _loss(problem, found[c]))
    place = {m: min(at[c] for c in order if c.method == m) for m in front}

    def key(contestant: Contestant) -> tuple[float, bool]:
        chosen = front[contestant.method] == contestant
        return (place[contestant.method] if chosen else at[contestant]), not chosen

    return sorted(order, key=key)


def _value(problem: Problem, score: Score) -> float:
    return score.quality if problem.goal == "quality" else score.worst_tenth(problem.greater)


def _as_good(problem: Problem, best: Sequence[Score], other: Sequence[Score]) -> bool:
    """Whether the other is within a standard error of the best, or an example."""
    apart = standing(problem, other) - standing(problem, best)
    if not math.isfinite(apart):
        return False
    held = sum(best[0].held) * min(len(best), problem.draws)
    example = 1.0 / max(1.0, held / 10 if problem.goal == "worst_tenth" else held)
    each = [_value(problem, a) - _value(problem, b) for a, b in zip(best, other, strict=False)]
    error = float(np.std(each, ddof=1)) / math.sqrt(len(each)) if len(each) > 2 else 0.0
    return apart <= max(example, error) + 1e-12


def _loss(problem: Problem, scores: Sequence[Score]) -> float:
    each = [s.losses for s in scores]
    if not all(each):
        return math.inf
    if problem.goal == "worst_tenth":
        return worst_tenth(np.mean(each, 0), greater=False)
    return float(np.average(np.mean(each, 0), weights=scores[0].held))
