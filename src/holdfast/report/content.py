"""Everything the page shows, as plain values for its JSON block."""

import dataclasses
from typing import Any

import numpy as np

from holdfast.metrics import Spread, find
from holdfast.metrics.figures import (
    digits_of_megabytes,
    in_figures,
    number,
    saving,
    times_fewer,
)
from holdfast.report import (
    confidence,
    curves,
    drift,
    evidence,
    fairness,
    palette,
    privacy,
    summary,
)
from holdfast.report.appearance import PLAIN, Appearance
from holdfast.report.setting import setting
from holdfast.report.splits import Split, splits
from holdfast.report.standings import Standing, contestants, standings
from holdfast.report.sweeps import Key, sweeps
from holdfast.runs.compare import notes
from holdfast.runs.flags import flags
from holdfast.runs.offenders import offenders
from holdfast.runs.results import MethodResult, Results

Cell = dict[str, Any]  # what it says and what it is sorted by


def content(results: Results, appearance: Appearance = PLAIN) -> dict[str, Any]:
    """The page's values; nothing in it is markup."""
    tables = [curves.measured(method) for method in results.methods]
    # Layers have a section of their own.
    every = curves.metrics(tables, results.metric)
    names = [n for n in every if n == results.metric or not drift.is_of_a_layer(n)]
    client_names = fairness.metrics(results)
    stands = standings(results, appearance)
    compared = evidence.pairs(results, appearance)
    return {
        "title": title(results),
        "verdict": evidence.conclusion(results),
        "flags": [flag.text for flag in (*flags(results), *offenders(results))],
        "summary": summary.paragraph(results, stands, appearance),
        "highlights": [
            vars(h)
            for h in summary.highlights(results, stands, appearance, _ties(compared, stands))
        ],
        "settings": [
            {
                "folder": str(f.path),
                "facts": [vars(fact) for fact in setting(f, appearance)],
            }
            for f in results.folders
        ],
        "names": {n: appearance.metric(n) for n in dict.fromkeys((*names, *client_names))},
        "range": appearance.range,
        "metric": results.metric,
        "target": results.target,
        "window": results.window,
        "notes": _notes(results, appearance),
        "baseline": appearance.method(results.baseline()),
        "lower": {n: _lower(n, results) for n in (*names, *client_names)},
        "most": {n: _most(n, results) for n in names},
        "methods": [
            _method(i, stand, method)
            for i, (stand, method) in enumerate(zip(stands, results.methods, strict=True))
        ],
        "metrics": names,
        "curves": [_curves(table, names) for table in tables],
        "table": _table(stands, appearance.metric(results.metric), results.target),
        "sweep": _sweep(results, stands, appearance),
        "pairs": compared,
        "scatter": evidence.scatter(results),
        "sites": evidence.sites(results, appearance),
        "classes": evidence.classes(results),
        "drift": drift.drift(results, tables),
        "confidence": confidence.confidence(results),
        "privacy": privacy.privacy(results),
        "ledger": evidence.ledger(results),
        "clients": {name: _clients(results, name) for name in client_names},
        "splits": [_split(split) for split in splits(results)],
        "configurations": [
            {"folder": str(f.path), "text": f.experiment_file.read_text(encoding="utf-8")}
            for f in results.folders
        ],
        "environments": [{"folder": str(f.path), **f.environment()} for f in results.folders],
    }


def title(results: Results) -> str:
    """The names of the folders."""
    return ", ".join(folder.path.resolve().name for folder in results.folders)


def _lower(metric: str, results: Results) -> bool | None:
    """Whether a metric is better low; None if nobody knows, for it can be drawn all the same."""
    found = find(metric, results.directions)
    return None if found is None else not found.greater_is_better


def _ties(compared: dict[str, Any] | None, stands: list[Standing]) -> dict[int, list[str]]:
    """By a method's number, the other contestants that it cannot be told apart from on test rows."""
    rows = [] if compared is None else compared["differences"]
    return {
        i: [stands[j].name for j, d in row.items() if not d["apart"] and not stands[j].is_reference]
        for i, row in enumerate(rows)
    }


def _most(metric: str, results: Results) -> float | None:
    """What a metric never exceeds: how far it is from there can be seen on a logarithmic axis."""
    found = find(metric, results.directions)
    return None if found is None or not found.greater_is_better else found.most


def _notes(results: Results, appearance: Appearance) -> list[str]:
    """What stands below the table, of methods by the names they have here."""
    named = [dataclasses.replace(m, label=appearance.method(m)) for m in results.methods]
    shown = dataclasses.replace(results, methods=tuple(named))
    # How far splits scatter stands in a table of its own here.
    return [n for n in notes(shown, shown.baseline()) if not n.startswith("± splits")]


def _method(place: int, stand: Standing, method: MethodResult) -> dict[str, Any]:
    about = {
        "label": stand.label,
        "final": None if stand.final.mean is None else number(stand.final.mean),
        "kept": [t for t in method.kept_rounds if t is not None],
        "name": stand.name,
        "reference": stand.is_reference,
        "state": stand.state,
        "seeds": stand.seeds,
    }
    return about | _look(place)


def _look(place: int) -> dict[str, str]:
    look = palette.look(place)
    return {"light": look.light, "dark": look.dark, "symbol": look.symbol, "dash": look.dash}


def _curves(table: curves.Measured, names: list[str]) -> dict[str, Any]:
    """Curves by metric; those measured in the same rounds share their three axes."""
    grids: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    for name in names:
        curve = curves.curve(table, name)
        if curve is None:
            continue
        curve = curve.thinned()
        grid = {
            "rounds": [int(r) for r in curve.rounds],
            "megabytes": _short(curve.megabytes),
            "seconds": _short(curve.seconds),
        }
        if grid not in grids:
            grids.append(grid)
        found[name] = {
            "grid": grids.index(grid),
            "mean": _short(curve.mean),
            "deviation": _short(curve.deviation) if curve.seeds.max() > 1 else None,
            "seeds": _same(curve.seeds),
        }
    return {"grids": grids, "metrics": found}


def _short(values: np.ndarray) -> list[float | None]:
    """Six digits are more than a screen shows, and a third of the bytes."""
    return [number(float(f"{value:.6g}")) for value in values]


def _same(values: np.ndarray) -> int | list[int]:
    """One number if all are the same."""
    return int(values[0]) if (values == values[0]).all() else [int(v) for v in values]


def _table(stands: list[Standing], metric: str, target: float | None) -> dict[str, Any]:
    columns: dict[str, list[Cell]] = {}
    base = contestants(stands)[0]
    if target is not None:
        columns["rounds"] = [_cell(s.rounds, digits=0) for s in stands]
        columns["saving"] = [_saving(base.rounds, s.rounds) for s in stands]
    # First what matters most: a narrow screen shows the first columns.
    columns[f"final {metric}"] = [_cell(s.final, precision=3) for s in stands]
    if target is not None:
        # Folders that are older than the count have none.
        if any(s.models.spent for s in stands):
            columns["models"] = [_cell(s.models, digits=1) for s in stands]
        columns["MB"] = [_cell(s.megabytes, digits=_places(s)) for s in stands]
        columns["saving in MB"] = [_saving(base.megabytes, s.megabytes) for s in stands]
        columns["seconds"] = [_cell(s.seconds, digits=1) for s in stands]
    if any(s.rise.reached for s in stands):
        columns["rise time"] = [_cell(s.rise, digits=0) for s in stands]
    columns["MB in all"] = [_mean(s.megabytes_in_all, _places(s)) for s in stands]
    if target is None:
        columns["seconds in all"] = [_mean(s.seconds_in_all) for s in stands]
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    return {"columns": list(columns), "rows": rows}


def _mean(spread: Spread, digits: int = 1) -> Cell:
    value = spread.mean or 0.0
    return {"text": f"{value:,.{digits}f}", "value": value}


def _places(stand: Standing) -> int:
    """Digits of its megabytes; nothing is nothing."""
    total = stand.megabytes_in_all.mean or 0.0
    return digits_of_megabytes(total) if total else 1


def _cell(spread: Spread, digits: int | None = None, precision: int = 4) -> Cell:
    value = None if spread.mean is None else number(spread.mean)
    return {"text": in_figures(spread, digits=digits, precision=precision), "value": value}


def _saving(theirs: Spread, mine: Spread) -> Cell:
    return {"text": saving(theirs, mine), "value": times_fewer(theirs, mine)}


def _sweep(
    results: Results, stands: list[Standing], appearance: Appearance
) -> dict[str, Any] | None:
    """What was swept, by key, and the figures that may stand above it; None without a sweep."""
    keys = sweeps(results)
    if not keys:
        return None
    final = [Spread((None,)) if s.state == "diverged" else s.final for s in stands]
    figures = [(f"final {appearance.metric(results.metric)}", final)]
    if results.target is not None:
        goal = f"to {appearance.goal(results)}"
        figures += [
            (f"rounds {goal}", [s.rounds for s in stands]),
            (f"MB {goal}", [s.megabytes for s in stands]),
        ]
    return {
        "keys": [_swept_key(key, appearance) for key in keys],
        "figures": [
            {"name": name, "values": [_value_and_spread(s) for s in spreads]}
            for name, spreads in figures
        ],
    }


def _swept_key(key: Key, appearance: Appearance) -> dict[str, Any]:
    lines = [
        {
            "label": appearance.label(line.label),
            **_look(number),
            "methods": list(line.methods),
            "x": list(line.x),
            "words": list(line.words),
        }
        for number, line in enumerate(key.lines)
    ]
    values, words = list(key.ticks), list(key.ticks.values())
    return {"name": key.name, "scale": key.scale, "lines": lines, "ticks": values, "words": words}


def _value_and_spread(spread: Spread) -> list[float | None] | None:
    mean = None if spread.mean is None else number(spread.mean)
    if mean is None:
        return None
    return [mean, spread.deviation if len(spread.values) > 1 else None]


def _clients(results: Results, metric: str) -> dict[str, Any]:
    found = [fairness.distribution(method, metric) for method in results.methods]
    rows = [
        None if f is None else [_cell(s) for s in (f.worst_tenth, f.median, f.mean, f.best_tenth)]
        for f in found
    ]
    return {
        "clients": max((f.clients for f in found if f is not None), default=0),
        "curves": [
            None if f is None else {"shares": _short(f.shares), "values": _short(f.values)}
            for f in found
        ],
        "table": {"columns": ["worst tenth", "median", "mean", "best tenth"], "rows": rows},
    }


def _split(split: Split) -> dict[str, Any]:
    edges, numbers = split.histogram()
    shown = split.sizes[split.clients] if split.counts is not None else split.sizes[:0]
    return {
        "folders": split.folders,
        "statistics": split.statistics,
        "clients": len(split.sizes),
        "order": split.clients.tolist() if split.counts is not None else [],
        "classes": split.classes,
        "names": split.names,
        "named": split.named,
        "counts": None if split.counts is None else split.counts.tolist(),
        "sizes": shown.tolist(),
        "histogram": {"edges": _short(edges), "numbers": numbers.tolist()},
    }
