"""How sure methods may be: coverage and size of sets or intervals, by client, by class and over kappa."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.metrics.figures import number
from holdfast.runs.results import MethodResult, Results
from holdfast.runs.sites import names_of_clients, names_of_labels
from holdfast.runs.verdict import FEW_ROWS

# Of a normal distribution, on both sides.
_95 = 1.96
Cell = dict[str, Any]


def confidence(results: Results) -> list[dict[str, Any]] | None:
    """What `[conformal]` measured at the end, a mean over runs; None where nothing was.

    One entry for each population, and one where there are none.
    """
    each = [[files.confidence() for files in method.files] for method in results.methods]
    names = dict.fromkeys(about["name"] for runs in each for run in runs for about in run)
    if not names:
        return None
    return [_measured(results, each, name) for name in names]


def _measured(
    results: Results, each: list[list[list[dict[str, Any]]]], name: str
) -> dict[str, Any]:
    found = [[about for run in runs for about in run if about["name"] == name] for runs in each]
    pairs = list(zip(results.methods, found, strict=True))
    one = next(about for runs in each for run in runs for about in run if about["name"] == name)
    clients, labels = names_of_clients(results), names_of_labels(results)
    return {
        "name": name,
        "sets": one["sets"],
        "by": one["by"],
        "asked": 1 - one["kappa"],
        "calibrated": one["calibrated_on"],
        "tested": one["rows"],
        "chance": number(chance(1 - one["kappa"], one["calibrated_on"], one["rows"])),
        "few": FEW_ROWS,
        "rounded": max((about["excess"] for runs in found for about in runs), default=0.0),
        "rows": [_row(runs) if runs else None for runs in found],
        "curves": [_curve(runs) if runs else None for runs in found],
        "clients": [_clients(m, runs, clients) for m, runs in pairs],
        "classes": [_classes(runs, labels) for runs in found],
    }


def chance(asked: float, calibrated: int, tested: int) -> float:
    r"""How far from what was asked for coverage lies by chance alone, 19 times in 20.

    It scatters with both the rows to calibrate with and those to test on, by
    $\sqrt{c\,(1 - c)\,(1/n + 1/m)}$.

    Example:
        >>> round(chance(0.9, 1000, 1000), 3), chance(0.9, 0, 50)
        (0.026, inf)
    """
    if not calibrated or not tested:
        return math.inf
    return _95 * math.sqrt(asked * (1 - asked) * (1 / calibrated + 1 / tested))


def _row(runs: Sequence[dict[str, Any]]) -> list[Cell]:
    sets = runs[0]["sets"]
    cells = [
        _share(1 - np.mean([about["kappa"] for about in runs])),
        _share(_mean(runs, "coverage")),
        _figure(_mean(runs, "size")),
    ]
    if sets:
        cells += [_share(_mean(runs, "single")), _share(_mean(runs, "empty"))]
    least = [min(about["clients"]["coverage"]) for about in runs if about.get("clients")]
    if least:
        cells.append(_share(np.mean(least)))
    return cells


def _curve(runs: Sequence[dict[str, Any]]) -> dict[str, list[float | None]]:
    """Over kappa, of runs that have the same; an infinite width is None."""
    curves = [about["curve"] for about in runs]
    alike = [c for c in curves if c["kappa"] == curves[0]["kappa"]]

    def mean(what: str) -> list[float | None]:
        columns = zip(*(c[what] for c in alike), strict=True)
        return [None if None in several else _short(float(np.mean(several))) for several in columns]

    asked = [_short(1 - kappa) for kappa in curves[0]["kappa"]]
    return {"asked": asked, "coverage": mean("coverage"), "size": mean("size")}


def _clients(
    method: MethodResult, runs: Sequence[dict[str, Any]], names: dict[int, str]
) -> list[dict[str, Any]] | None:
    """Clients one by one; None where they were not measured, or are others in every split."""
    known = [about["clients"] for about in runs if about.get("clients")]
    if not known or (not names and len(set(method.splits)) > 1):
        return None
    asked, shared = 1 - runs[0]["kappa"], runs[0]["by"] != "each client"
    found = []
    for client in dict.fromkeys(i for each in known for i in each["client"]):
        own = [
            {n: values[each["client"].index(client)] for n, values in each.items()}
            for each in known
            if client in each["client"]
        ]
        rows, calibrated = int(_mean(own, "rows") or 0), _mean(own, "calibrated_on")
        coverage = _mean(own, "coverage")
        by = runs[0]["calibrated_on"] if shared else int(calibrated or 0)
        found.append(
            {
                "name": names.get(client, str(client)),
                "tested": rows,
                "calibrated": None if calibrated is None else int(calibrated),
                "short": coverage is not None and coverage < asked - chance(asked, by, rows),
                "cells": [
                    _share(coverage),
                    _figure(_mean(own, "size")),
                    *([_share(_mean(own, "own_coverage"))] if "own_coverage" in own[0] else []),
                    *([_figure(_mean(own, "own_size"))] if "own_size" in own[0] else []),
                ],
            }
        )
    return found


def _classes(
    runs: Sequence[dict[str, Any]], names: tuple[str, ...] | None
) -> list[dict[str, Any]] | None:
    known = [about["classes"] for about in runs if about["classes"]["label"]]
    if not known:
        return None
    found = []
    for label in sorted({y for each in known for y in each["label"]}):
        own = [
            {n: values[each["label"].index(label)] for n, values in each.items()}
            for each in known
            if label in each["label"]
        ]
        name = names[label] if names is not None and label < len(names) else str(label)
        cells = [_share(_mean(own, "coverage")), _figure(_mean(own, "size"))]
        found.append({"name": name, "tested": int(_mean(own, "rows") or 0), "cells": cells})
    return found


def _mean(several: Sequence[dict[str, Any]], what: str) -> float | None:
    values = [one[what] for one in several if what in one]
    return None if not values or None in values else float(np.mean(values))


def _short(value: float) -> float | None:
    return number(float(f"{value:.6g}"))


def _share(value: Any) -> Cell:
    text = "-" if value is None else f"{100 * value:.1f} %"
    return {"text": text, "value": None if value is None else float(value)}


def _figure(value: float | None) -> Cell:
    return {"text": "-" if value is None else f"{value:.3g}", "value": value}
