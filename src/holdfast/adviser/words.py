"""What the numbers of a race come to, in sentences."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from holdfast.adviser.candidates import BASELINE, REMEMBERS, Candidate
from holdfast.adviser.facts import Facts
from holdfast.adviser.gaps import Gap, quality_gap
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.adviser.race import CROWDS, Race
from holdfast.adviser.ranking import Place
from holdfast.adviser.work import ALONE, POOLED, Entry, Score, reached
from holdfast.runs.names import method_name


def called(place_or_name: "Place | str") -> str:
    """What a method is called."""
    if isinstance(place_or_name, str):
        return method_name(place_or_name)
    found = place_or_name.contestant
    return f"{method_name(found.name)} + local steps" if found.adapt else method_name(found.name)


def points(problem: Problem, value: float) -> str:
    """A difference of the metric: accuracy in points of a hundred."""
    return f"{100 * value:.1f} points" if problem.greater else f"{value:.3g}"


def shown(problem: Problem, value: float) -> str:
    """A value of the metric."""
    return f"{100 * value:.1f} %" if problem.greater else f"{value:.4g}"


def of_goal(problem: Problem, place: Place) -> str:
    """What a method came to, as the goal counts it."""
    if place.failed:
        return "failed"
    if problem.goal in TO_TARGET:
        if not math.isfinite(place.value):
            return f"not with every seed in {place.rounds} rounds"
        unit = {"rounds": "rounds", "megabytes": "MB", "seconds": "s"}[problem.goal]
        return f"{place.value:.3g} ± {place.deviation:.2g} {unit}"
    if not math.isfinite(place.value):
        return "diverged with some seeds"
    return f"{shown(problem, place.value)} ± {shown(problem, place.deviation)}"


def ends(problem: Problem, race: Race, name: str) -> list[Score]:
    """The runs of an end of the scale at the better of the lengths that were tried."""
    own: dict[int, list[tuple[int, Score]]] = {}
    for entry, score in race.scores.items():
        if entry.contestant.name == name:
            own.setdefault(entry.rounds, []).append((entry.seed, score))
    several = [[s for _, s in sorted(runs, key=lambda r: r[0])] for runs in own.values()]
    usable = [runs for runs in several if not any(s.failed for s in runs)]
    sign = 1.0 if problem.greater else -1.0
    return max(
        usable, key=lambda runs: sign * float(np.mean([s.quality for s in runs])), default=[]
    )


def first_sentence(problem: Problem, race: Race, best: Place) -> tuple[str, Gap | None]:
    """Is it worth federating, and by how much; with the difference itself."""
    alone, pooled = (ends(problem, race, name) for name in (ALONE, POOLED))
    ours = race.last(best.contestant)[1]
    failed = sum(bool(s.failed) for s in ours)
    if failed:
        return (
            f"{called(best)} is ahead, but returned no finite numbers with {failed} of {len(ours)} seeds: "
            f"try a smaller learning_rate; what federating gains cannot be told.",
            None,
        )
    if not alone:
        return f"{called(best)} is ahead; training alone could not be measured.", None
    gap = quality_gap(problem, ours, alone)
    reached_by = shown(problem, float(np.mean([s.quality for s in ours])))
    lonely = shown(problem, float(np.mean([s.quality for s in alone])))
    together = shown(problem, float(np.mean([s.quality for s in pooled]))) if pooled else ""
    one_place = f" With all data in one place it would be {together}." if pooled else ""
    margin = points(problem, gap.margin)
    if gap.is_tie:
        return (
            f"Federating gains nothing that can be told here: {reached_by} together, {lonely} alone "
            f"({points(problem, gap.value)} ± {margin}).{one_place}",
            gap,
        )
    if gap.value < 0 and problem.goal in TO_TARGET:
        return (
            f"On examples like their own clients are better alone, {lonely} against {reached_by} together, "
            f"{points(problem, -gap.value)} more (± {margin}): federate if one model for all of them is "
            f"wanted.{one_place}",
            gap,
        )
    if gap.value < 0:
        return (
            f"Do not federate: clients alone reach {lonely}, together {reached_by}, "
            f"{points(problem, -gap.value)} less (± {margin}).{one_place}",
            gap,
        )
    return (
        f"Federating gains {points(problem, gap.value)} (± {margin}): {reached_by} together, {lonely} "
        f"alone.{one_place}",
        gap,
    )


def about_personal(problem: Problem, places: Sequence[Place]) -> str:
    """What models of their own gain clients; empty where none were tried."""
    own = [p for p in places if p.final and (p.contestant.adapt or p.contestant.name == "flix")]
    shared = [p for p in places if p.final and p not in own]
    if not own or not shared:
        return ""
    best_own = min(own, key=lambda p: -p.quality if problem.greater else p.quality)
    best_shared = min(shared, key=lambda p: -p.quality if problem.greater else p.quality)
    gain = (best_own.quality - best_shared.quality) * (1 if problem.greater else -1)
    if gain <= 0:
        return "Models of their own gain clients nothing beyond the shared one."
    return f"Models of their own ({called(best_own)}) gain {points(problem, gain)} beyond the shared one."


def nearest(best: Place) -> str:
    """What is to be said of methods that federate where nobody should."""
    return f"Of methods that federate, {called(best)} comes nearest to training alone."


def about_ties(places: Sequence[Place], chosen: Place) -> str:
    """Which methods the race cannot tell apart."""
    tied = [called(p) for p in places if p.is_tied and p is not chosen]
    leader = places[0]
    if leader is not chosen:
        tied = [called(leader), *tied]
    if not tied:
        return "No other method that ran to the end is as good, as far as this race can tell."
    simpler = (
        f" {called(chosen)} is advised because it asks least of clients and server."
        if leader is not chosen
        else ""
    )
    return f"A tie: the race cannot tell {called(chosen)} from {', '.join(tied)}.{simpler}"


def reasons(
    problem: Problem,
    facts: Facts,
    candidates: Sequence[Candidate],
    places: Sequence[Place],
    chosen: Place,
) -> list[str]:
    """Why this method, in measured facts."""
    found = []
    own = next((c for c in candidates if c.name == chosen.contestant.name), None)
    if own is not None and own.name != BASELINE:
        found.append(f"{called(chosen)} was tried because {own.reason}.")
    baseline = next((p for p in places if p.final and p.contestant.method == BASELINE), None)
    if baseline is not None and baseline is not chosen:
        found.append(
            f"{called(chosen)}: {of_goal(problem, chosen)}; FedAvg with its own best step size: "
            f"{of_goal(problem, baseline)}."
        )
    elif chosen is baseline:
        found.append(f"FedAvg: {of_goal(problem, chosen)}; nothing else was clearly better.")
    if chosen.contestant.learning_rate is not None:
        found.append(
            f"Step sizes from a tenth to ten times the given were tried; {chosen.contestant.learning_rate:g} "
            f"was best for it."
        )
    if facts.size_deviation > 0.1:
        found.append("Sizes differ, so all methods were told to count clients by examples.")
    return found


def changes(
    problem: Problem, facts: Facts, race: Race, places: Sequence[Place], chosen: Place
) -> list[str]:
    """What would change the advice: other goals, and more or fewer clients in a round."""
    found = []
    finals = [p for p in places if p.final and not p.failed]
    for goal, what in (
        ("quality", "by quality after all rounds"),
        ("worst_tenth", "by the worst tenth of clients"),
        ("rounds", "by rounds to the target"),
        ("megabytes", "by megabytes to the target"),
    ):
        if goal == problem.goal or (goal in TO_TARGET and problem.target is None):
            continue
        as_if = _with_goal(problem, goal)
        usable = finals if goal not in TO_TARGET else [p for p in finals if not p.contestant.adapt]
        values = {
            p.contestant: float(np.mean([reached(as_if, s) for s in race.last(p.contestant)[1]]))
            for p in usable
        }
        if not usable:
            continue
        best = min(usable, key=lambda p: values[p.contestant])
        if best.contestant.method != chosen.contestant.method and values[best.contestant] < 1e8:
            found.append(f"Judged {what}, {called(best)} is ahead.")
    found += _crowds(problem, race, places)
    if chosen.contestant.name in REMEMBERS:
        found.append(
            f"{called(chosen)} keeps a memory on every client: if clients are not known again when they come "
            f"back, take {_without_memory(places)}."
        )
    return found


def _crowds(problem: Problem, race: Race, places: Sequence[Place]) -> list[str]:
    found = []
    for times in CROWDS:
        several = {e: s for e, s in race.scores.items() if e.participation == times}
        if len(several) < 2:
            continue
        at = problem.with_participation(times)
        assert at is not None
        share = f"{100 * at.participation:.3g} % of the clients"
        here = {e: reached(problem, race.last(e.contestant)[1][e.seed]) for e in several}
        there = {e: reached(problem, s) for e, s in several.items()}
        before, after = min(here, key=here.__getitem__), min(there, key=there.__getitem__)
        names = [called(_place_of(places, e)) for e in (before, after)]
        found.append(
            f"With {share} in a round (one seed) {names[1]} is ahead instead of {names[0]}."
            if before != after
            else f"With {share} in a round (one seed) {names[0]} stays ahead."
        )
    return found


def _place_of(places: Sequence[Place], entry: Entry) -> Place:
    return next(p for p in places if p.contestant == entry.contestant)


def _without_memory(places: Sequence[Place]) -> str:
    plain = [p for p in places if p.contestant.name not in REMEMBERS and not p.failed]
    return called(plain[0]) if plain else "FedAvg"


def _with_goal(problem: Problem, goal: str) -> Problem:
    return dataclasses.replace(problem, goal=goal)  # type: ignore[arg-type]
