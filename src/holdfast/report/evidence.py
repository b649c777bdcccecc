"""How far methods can be told apart: on test rows, method against method and site by site."""

import itertools
from typing import Any

from holdfast.metrics.figures import number
from holdfast.metrics.intervals import Interval
from holdfast.report.appearance import Appearance
from holdfast.runs.differences import Difference, Judged, difference, judged_by, score
from holdfast.runs.results import Results
from holdfast.runs.verdict import (
    FEW_ROWS,
    client_names,
    ends,
    figure,
    signed,
    tested_per_trained,
    verdict,
)

# With more methods each is compared with the first alone: pairs would be too many to read.
_MOST_METHODS = 8


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
    return Difference(
        known.second,
        known.first,
        known.metric,
        -known.gain,
        known.rows,
        known.clients,
        known.splits,
        known.seeds,
    )


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
    if by is None:
        return None
    scores = [score(method, by) for method in results.methods]
    if not any(s is not None for s in scores) or not _same_clients(results):
        return None
    names = client_names(results)
    trained = _sizes(results)
    tested = _test_rows(results)
    clients = sorted({i for s in scores if s is not None for i in s.by_client})
    return {
        "metric": appearance.metric(by.metric),
        "lower": not by.greater_is_better,
        "few": FEW_ROWS,
        "named": any(names.get(i, str(i)) != str(i) for i in clients),
        "sites": [
            {
                "name": names.get(i, str(i)),
                "trained": trained.get(i),
                "tested": tested.get(i),
                "cells": [None if s is None else _site(s.by_client.get(i)) for s in scores],
            }
            for i in clients
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


def _same_clients(results: Results) -> bool:
    """Whether a number is one client in all runs: each split makes others, unless they have names."""
    several = {split for m in results.methods for split, _ in m.predictions}
    named = any("name" in about for m in results.methods for about in m.clients)
    return len(several) <= 1 or named


def _sizes(results: Results) -> dict[int, int]:
    found: dict[int, int] = {}
    for method in results.methods:
        for about in method.clients:
            found |= dict(zip(about.get("client", []), about.get("examples", []), strict=False))
    return found


def _test_rows(results: Results) -> dict[int, int]:
    """Of each client; the least where splits differ."""
    found: dict[int, int] = {}
    for method in results.methods:
        for predictions in method.predictions.values():
            for client in predictions.clients:
                rows = int((predictions.client == client).sum())
                found[client] = min(found.get(client, rows), rows)
    return found
