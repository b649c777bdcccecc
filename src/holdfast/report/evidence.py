"""How far methods can be told apart: on test rows, method against method and site by site."""

import dataclasses
import itertools
from typing import Any

from holdfast.metrics.figures import digits_of_megabytes, number
from holdfast.metrics.intervals import Interval
from holdfast.report.appearance import Appearance
from holdfast.runs.classes import by_class, confusion
from holdfast.runs.differences import Difference, Judged, difference, judged_by, score
from holdfast.runs.results import MethodResult, Results
from holdfast.runs.sites import names_of_clients, names_of_labels, traffic
from holdfast.runs.sites import sites as runs_sites
from holdfast.runs.verdict import FEW_ROWS, ends, figure, signed, tested_per_trained, verdict

# With more methods each is compared with the first alone: pairs would be too many to read.
_MOST_METHODS = 8
_MOST_CLASSES = 100  # of a matrix that can be looked at
_MOST_CLIENTS = 1000  # of a list of traffic


def conclusion(results: Results) -> list[str]:
    """The answer in one sentence, then what there is to say on it; empty where nobody can tell."""
    found = verdict(results)
    return [] if found is None else list(found.sentences)


def pairs(results: Results, appearance: Appearance) -> dict[str, Any] | None:
    """Methods against each other on the same test rows; None where fewer than two were asked."""
    by = judged_by(results)
    if by is None or len(results.methods) < 2:
        return None
    numbered = list(enumerate(results.methods))
    against = numbered if len(numbered) <= _MOST_METHODS else [_baseline(results)]
    ratio = tested_per_trained(results)
    found: dict[int, dict[int, Difference]] = {}
    for (i, one), (j, other) in itertools.product(numbered, against):
        known = found.get(j, {}).get(i) if i > j else None
        if i == j:
            continue
        seen = _turned(known) if known is not None else difference(one, other, by, ratio)
        if seen is not None:
            found.setdefault(i, {})[j] = seen
    if not found:
        return None
    some = next(iter(next(iter(found.values())).values()))
    scores = [score(method, by) for method in results.methods]
    return {
        "metric": appearance.metric(by.metric),
        "lower": not by.greater_is_better,
        "over": _over(some, by),
        "scores": [
            None if s is None else {"text": figure(s.value), "value": s.value} for s in scores
        ],
        "against": [i for i, _ in against if any(i in row for row in found.values())],
        "baseline": _baseline(results)[0],
        "differences": [
            {j: _pair(d, by) for j, d in found.get(i, {}).items()} for i, _ in numbered
        ],
    }


def _baseline(results: Results) -> tuple[int, Any]:
    method = results.baseline()
    return results.methods.index(method), method


def _turned(known: Difference) -> Difference:
    return dataclasses.replace(known, first=known.second, second=known.first, gain=-known.gain)


def _pair(found: Difference, by: Judged) -> dict[str, Any]:
    # As the figures differ, not as it is better: for a loss, less is.
    shown = found.gain if by.greater_is_better else -found.gain
    better = "better" if found.gain.low > 0 else "worse"
    return {
        "estimate": shown.estimate,
        "low": shown.low,
        "high": shown.high,
        "text": signed(shown.estimate),
        "interval": ends(shown),
        "apart": found.told_apart,
        "says": better if found.told_apart else "cannot be told apart",
    }


def _over(found: Difference, by: Judged) -> str:
    """What the intervals are over."""
    seeds = f"{found.seeds} seed{'s' * (found.seeds != 1)}"
    rows = f"{found.rows:,} test rows of {found.clients:,} clients"
    each = ", each client counting the same" if by.clients_alike else ""
    if found.splits > 1:
        return f"{rows}, {found.splits} splits of the data and {seeds}{each}"
    return f"{rows} and {seeds}{each}, one split of the data"


def sites(results: Results, appearance: Appearance) -> dict[str, Any] | None:
    """Every client's own figure by each method, with its sizes; None where clients were not measured."""
    by = judged_by(results)
    rows = [] if by is None else runs_sites(results, by)
    if by is None or not rows:
        return None
    return {
        "metric": appearance.metric(by.metric),
        "lower": not by.greater_is_better,
        "few": FEW_ROWS,
        "named": any(row.name != str(row.client) for row in rows),
        "sites": [
            {
                "name": row.name,
                "trained": row.trained_on,
                "tested": row.tested_on,
                "cells": [_site(row.figures.get(m.label)) for m in results.methods],
            }
            for row in rows
        ],
    }


def _site(found: Interval | None) -> dict[str, Any] | None:
    if found is None or number(found.estimate) is None:
        return None
    return {
        "text": figure(found.estimate),
        "value": found.estimate,
        "interval": f"{figure(found.low)} to {figure(found.high)}",
    }


def classes(results: Results) -> list[dict[str, Any] | None] | None:
    """By method the confusion of classes and what each comes to; None where no classes were predicted."""
    names = names_of_labels(results)
    found = [_classes(method, names) for method in results.methods]
    return found if any(one is not None for one in found) else None


def _classes(method: MethodResult, names: tuple[str, ...] | None) -> dict[str, Any] | None:
    confused = confusion(method, names)
    if confused is None or len(confused.names) > _MOST_CLASSES:
        return None
    return {
        "names": list(confused.names),
        "counts": [[float(f"{n:.4g}") for n in row] for row in confused.counts],
        "shares": [[float(f"{n:.4g}") for n in row] for row in confused.shares],
        "rows": [
            [_count(c.rows), *(_share(v) for v in (c.recall, c.precision, c.f1))]
            for c in by_class(method, names)
        ],
    }


def _count(value: float) -> dict[str, Any]:
    return {"text": f"{value:,.0f}" if value == int(value) else f"{value:,.1f}", "value": value}


def _share(value: float) -> dict[str, Any]:
    return {"text": f"{value:.3f}", "value": value}


def ledger(results: Results) -> list[list[dict[str, Any]]] | None:
    """By method what each client sent and received; None where nothing is in the ledgers."""
    names = names_of_clients(results)
    if not names and any(len(set(m.splits)) > 1 for m in results.methods):
        return None  # a number is another client in every split
    found = [traffic(method, names) for method in results.methods]
    if not any(found):
        return None
    return [
        [
            {"name": t.name, "cells": [_count(t.rounds), _bytes(t.bytes_down), _bytes(t.bytes_up)]}
            for t in several[:_MOST_CLIENTS]
        ]
        for several in found
    ]


def _bytes(value: float) -> dict[str, Any]:
    megabytes = value / 1e6
    return {"text": f"{megabytes:,.{digits_of_megabytes(megabytes)}f}", "value": megabytes}


def scatter(results: Results) -> list[dict[str, Any]] | None:
    """By method how far its final metric scatters over splits and over seeds; None with one split."""
    finals = [m.last(results.metric, results.window) for m in results.methods]
    if not any(f.over_splits is not None for f in finals):
        return None
    return [
        {"splits": _scattered(f.over_splits), "seeds": _scattered(f.over_seeds)} for f in finals
    ]


def _scattered(value: float | None) -> dict[str, Any]:
    return {"text": "-" if value is None else f"{value:.3f}", "value": value}
