"""The outcome in plain sentences, made from the figures."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from holdfast.metrics import Spread, find, greater_is_better
from holdfast.metrics.figures import (
    digits_of_megabytes,
    in_figures,
    more_times_fewer,
    number,
    times_fewer,
)
from holdfast.metrics.spread import best
from holdfast.report import fairness
from holdfast.report.appearance import PLAIN, Appearance
from holdfast.report.standings import Standing, contestants
from holdfast.runs.results import Results


@dataclasses.dataclass(frozen=True)
class Highlight:
    """One figure worth a card: whose it is, and beside what it stands."""

    title: str
    value: str
    method: int
    note: str
    open: bool = False  # whether others cannot be told apart from it


def paragraph(results: Results, stands: list[Standing], appearance: Appearance = PLAIN) -> str:
    """What came out, in a few sentences; ends of the scale are compared with nobody."""
    field = contestants(stands)
    metric = appearance.metric(results.metric)
    sentences = [
        _setting(results, field),
        *_to_target(results, field, appearance),
        *_final(results, field, metric),
        *_worst_tenth(results, stands, appearance),
        *_not_over(stands),
    ]
    return " ".join(sentences)


def _setting(results: Results, stands: list[Standing]) -> str:
    sizes = [len(folder.split().get("sizes", ())) for folder in results.folders]
    clients = f" on {_range(sizes)} clients" if all(sizes) else ""
    rounds = [max(len(h) for h in m.histories) for m in results.methods]
    splits = max(len(set(m.splits)) for m in results.methods) or 1
    seeds = _range([s.seeds // splits for s in stands])
    each = f" of each of {splits} splits" if splits > 1 else " each" if len(stands) > 1 else ""
    who = stands[0].name if len(stands) == 1 else f"{len(stands)} methods"
    return (
        f"{who} ran {_range(rounds)} rounds with "
        f"{seeds} {'seed' if seeds == '1' else 'seeds'}{each}{clients}."
    )


def _to_target(results: Results, stands: list[Standing], appearance: Appearance) -> list[str]:
    if results.target is None:
        return []
    goal = appearance.goal(results)
    first = best([s.rounds for s in stands], greater_is_better=False)
    if first is None:
        return [f"{_nobody(stands)} reached {goal} with every seed in the rounds run."]
    sentences = [_fastest(stands, first, goal)]
    goal = f"{appearance.metric(results.metric)} {results.target:g}"
    cheapest = _cheapest(stands)
    if cheapest is not None and len(stands) > 1:
        sentences.append(_least_traffic(stands, first, cheapest))
    return sentences + _late(stands, goal)


def _late(stands: list[Standing], goal: str) -> list[str]:
    """Who did not get there, or not with every seed."""
    late = [s for s in stands if s.rounds.mean is None]
    never = [s.name for s in late if not s.rounds.reached]
    partly = [
        f"{s.name} reached {goal} with {len(s.rounds.reached)} of {s.seeds} seeds only."
        for s in late
        if s.rounds.reached
    ]
    return [f"{_listed(never)} did not reach {goal}.", *partly] if never else partly


def _nobody(stands: list[Standing]) -> str:
    return "No method" if len(stands) > 1 else f"{stands[0].name} has not"


def _fastest(stands: list[Standing], first: int, goal: str) -> str:
    it, baseline = stands[first], stands[0]
    took = f"{it.name} reached {goal} in {in_figures(it.rounds, digits=0)} rounds"
    if len(stands) == 1:
        return f"{took}."
    saving = times_fewer(baseline.rounds, it.rounds)
    if first == 0:
        return f"{took}, and none of the others in fewer."
    more = more_times_fewer(baseline.rounds, it.rounds)
    if saving is None and more is not None and more >= 1.1:
        least = in_figures(baseline.rounds, digits=0)
        return f"{took}, more than {_tenths(more)} times fewer than {baseline.name} ({least})."
    if saving is None:
        return f"{took}, before all others."
    theirs = in_figures(baseline.rounds, digits=0)
    if saving <= 1:  # as fast as the baseline: no saving to speak of
        return f"{took}, as many as {baseline.name}."
    return f"{took}, {saving:.1f} times fewer than {baseline.name} ({theirs})."


def _cheapest(stands: list[Standing]) -> int | None:
    """Of those that communicate: training alone costs no bytes, and wins nothing by it."""
    spreads = [s.megabytes if s.megabytes.mean else Spread((None,)) for s in stands]
    return best(spreads, greater_is_better=False)


def _least_traffic(stands: list[Standing], first: int, cheapest: int) -> str:
    it, baseline = stands[cheapest], stands[0]
    saving = times_fewer(baseline.megabytes, it.megabytes)
    more = more_times_fewer(baseline.megabytes, it.megabytes)
    fewer = f", {saving:.1f} times less than {baseline.name}" if saving and saving > 1 else ""
    if more is not None and more >= 1.1:
        fewer = f", more than {_tenths(more)} times less than {baseline.name}"
    who = "It also" if cheapest == first else it.name
    return f"{who} took the least traffic to get there: {_megabytes(it)} MB{fewer}."


def _final(results: Results, stands: list[Standing], metric: str) -> list[str]:
    finals = _finals(stands)
    if len(stands) == 1:
        known = number(finals[0].mean) is not None
        return [f"It ended at {metric} {_brief(stands[0].final)}."] if known else []
    found = _best_final(results, stands)
    if found is None:
        return []
    top, word = found
    it = stands[top]
    near = [
        s.name
        for s, final in zip(stands, finals, strict=True)
        if s is not it and _within(final, it.final)
    ]
    close = f"; {_listed(near)} ended within a standard deviation of it" if near else ""
    return [f"{it.name} ended with the {word} {metric}, {_brief(it.final)}{close}."]


def _best_final(results: Results, stands: list[Standing]) -> tuple[int, str] | None:
    """Who ended best and whether that is lowest or highest; None if nobody knows which is better."""
    about = find(results.metric, results.directions)
    if about is None:
        return None
    top = best(_finals(stands), about.greater_is_better)
    return None if top is None else (top, "highest" if about.greater_is_better else "lowest")


def _finals(stands: list[Standing]) -> list[Spread]:
    """Where methods ended; one that has not ended does not count while others have."""
    ended = any(not s.state for s in stands)
    return [Spread((None,)) if ended and s.state else s.final for s in stands]


def _within(other: Spread, top: Spread) -> bool:
    """Whether the difference is one that other seeds might turn round."""
    if other.mean is None or top.mean is None or number(other.mean) is None:
        return False
    return abs(other.mean - top.mean) <= max(other.deviation, top.deviation)


def _worst_tenth(results: Results, stands: list[Standing], appearance: Appearance) -> list[str]:
    found = _worst_tenths(results)
    if found is None:
        return []
    metric, spreads, top = found
    called, value = appearance.metric(metric), _brief(spreads[top])
    if len(contestants(stands)) == 1:
        return [f"Its worst-served {_worst(results, metric)} has {called} {value}."]
    first = _first(stands)
    beside = (
        f" ({stands[first].name}: {_brief(spreads[first])})"
        if top != first and spreads[first].mean
        else ""
    )
    return [
        f"The worst-served {_worst(results, metric)} does best with {stands[top].name}: "
        f"{called} {value}{beside}."
    ]


def _worst(results: Results, metric: str) -> str:
    """What the worst tenth is: of few clients it is one."""
    found = (fairness.distribution(method, metric) for method in results.methods)
    most = max((f.clients for f in found if f is not None), default=0)
    return "tenth of clients" if fairness.tenth(most) > 1 else "client"


def _first(stands: list[Standing]) -> int:
    """The number of the method that others are compared with."""
    return stands.index(contestants(stands)[0])


def _worst_tenths(results: Results) -> tuple[str, list[Spread], int] | None:
    metric = next(iter(fairness.metrics(results)), None)
    if metric is None:
        return None
    found = [fairness.distribution(method, metric) for method in results.methods]
    spreads = [Spread((None,)) if f is None else f.worst_tenth for f in found]
    compete = not all(m.is_reference for m in results.methods)
    ranked = [
        Spread((None,)) if compete and method.is_reference else spread
        for method, spread in zip(results.methods, spreads, strict=True)
    ]
    top = best(ranked, greater_is_better(metric, results.directions))
    return None if top is None else (metric, spreads, top)


def _not_over(stands: list[Standing]) -> list[str]:
    sentences = []
    for state, says in (("diverged", "diverged"), ("unfinished", "not finished")):
        names = [s.name for s in stands if s.state == state]
        if names:
            verb = "" if state == "diverged" else "are " if len(names) > 1 else "is "
            sentences.append(f"{_listed(names)} {verb}{says}: the figures are of the rounds run.")
    return sentences


def highlights(
    results: Results,
    stands: list[Standing],
    appearance: Appearance = PLAIN,
    ties: Mapping[int, Sequence[str]] | None = None,
) -> list[Highlight]:
    """The best in each respect, where there are several methods to choose from.

    Args:
        results: the methods.
        stands: their figures.
        appearance: what they are called.
        ties: by a method's number, whom it cannot be told apart from.
    """
    found: list[Highlight] = []
    field = contestants(stands)
    baseline = field[0]
    if len(field) == 1:
        return []
    first = best([s.rounds for s in field], greater_is_better=False)
    if first is not None:
        value = in_figures(field[first].rounds, digits=0)
        note = _against(baseline.name, baseline.rounds, field[first].rounds, "fewer")
        found.append(
            Highlight("Fewest rounds to the target", value, stands.index(field[first]), note)
        )
    cheapest = _cheapest(field)
    if cheapest is not None:
        value = f"{_megabytes(field[cheapest])} MB"
        note = _against(baseline.name, baseline.megabytes, field[cheapest].megabytes, "less")
        found.append(
            Highlight("Least traffic to the target", value, stands.index(field[cheapest]), note)
        )
    ended = _best_final(results, field)
    if ended is not None:
        top, word = ended
        value, note = _brief(field[top].final), _beside(baseline.name, baseline.final, top)
        title = f"{word.capitalize()} final {appearance.metric(results.metric)}"
        whose = stands.index(field[top])
        alike = (ties or {}).get(whose)
        if alike:
            note = f"cannot be told apart from {_listed(alike)}"
        found.append(Highlight(title, value, whose, note, open=bool(alike)))
    worst = _worst_tenths(results)
    if worst is not None:
        metric, spreads, top = worst
        first = _first(stands)
        value, note = _brief(spreads[top]), _beside(baseline.name, spreads[first], top - first)
        worst_served = _worst(results, metric).replace("tenth of clients", "tenth")
        title = f"Best {appearance.metric(metric)} of the worst {worst_served}"
        found.append(Highlight(title, value, top, note))
    return found


def _against(baseline: str, theirs: Spread, mine: Spread, word: str) -> str:
    saving, more = times_fewer(theirs, mine), more_times_fewer(theirs, mine)
    if saving is not None and saving > 1:
        return f"{saving:.1f} times {word} than {baseline}"
    if more is not None and more >= 1.1:
        return f"more than {_tenths(more)} times {word} than {baseline}"
    return ""


def _megabytes(stand: Standing) -> str:
    spread = stand.megabytes
    return in_figures(spread, digits=digits_of_megabytes(spread.mean or 0))


def _tenths(more: float) -> str:
    """Rounded down, for it is more than that."""
    return f"{math.floor(10 * more) / 10:.1f}"


def _beside(baseline: str, spread: Spread, top: int) -> str:
    return "" if top == 0 or spread.mean is None else f"{baseline}: {_brief(spread)}"


def _brief(spread: Spread) -> str:
    return in_figures(spread, precision=3)


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
