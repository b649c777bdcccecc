"""FedDyn, table 6: logistic regression on synthetic data, every method with the paper's whole search."""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from holdfast.record.files import write_whole
from papers import figures, ordering
from papers.feddyn import runs
from papers.feddyn.runs import METHODS, NAMES, Settings
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)
# The target training loss, and the paper's models transmitted in the order of `METHODS`.
KINDS = {
    "homogeneous": ("homogeneous", 0.0603, (32, 70, 136, 49)),
    "type1": ("type 1, different optima", 1.5717, (17, 88, 20, 18)),
    "type2": ("type 2, different features", 0.1205, (150, 164, 274, 275)),
    "type3": ("type 3, different sizes", 0.0854, (34, 260, 79, 106)),
}
# The paper's search, A.1.1, for each method: what is compiled anew comes first.
# From the middle: whoever was there in few rounds spares the others more than that.
RATES, EPOCHS, STEPS = (0.1, 1.0), (10, 1, 50), (200, 20, 1000)
SEARCH: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "fedavg": {"local.epochs": EPOCHS, "local.learning_rate": RATES},
    "fedprox": {
        "local.epochs": EPOCHS,
        "local.learning_rate": RATES,
        "algorithm.fedprox.mu": (0.01, 0.0001),
    },
    "scaffold": {"algorithm.scaffold.local.steps": STEPS, "local.learning_rate": RATES},
    "feddyn": {
        "local.epochs": EPOCHS,
        "local.learning_rate": RATES,
        "algorithm.feddyn.alpha": (0.1, 0.01, 0.001),
    },
}
MINUTES = {"fedavg": 1.0, "fedprox": 2.0, "scaffold": 1.0, "feddyn": 2.0}
Point = dict[str, float]


def cell(kind: str, method: str, draw: int, quick: bool = False) -> Cell:
    """A method's search on a draw of a kind of data."""
    changes: dict[str, Any] = {"data.kind": kind, "data.seed": draw, "target": KINDS[kind][1]}
    search = {place: list(values) for place, values in SEARCH[method].items()}
    if quick:
        changes |= {"rounds": 3, "data.clients": 4, "data.examples": 20}
        search = {place: values[:1] for place, values in search.items()} | {
            "local.learning_rate": list(RATES)
        }
    values = runs.settings("synthetic", method, changes)
    values["seeds"] = [draw]
    return Cell(f"{kind}-{method}-{draw}", searched, (values, search), MINUTES[method])


def searched(
    values: Settings, search: Mapping[str, list[float]], *, asked: Asked, folder: Path
) -> dict[str, Any]:
    """Which point of the search has the loss first, and its curve; where none has it, the lowest loss.

    A point is run no longer than the best before it took.
    """
    kept = folder / "points.json"
    found: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    for point in itertools.islice(points(search), len(found), None):
        most = min((one["rounds"] for one in found if one["rounds"]), default=values["rounds"])
        found.append({"point": point, **trained(values, point, most, asked)})
        write_whole(kept, json.dumps(found))
    best = min(found, key=lambda one: (one["rounds"] or np.inf, one["loss"] or np.inf))
    method = values["algorithm"][0]["name"]
    return {
        "best": best["point"],
        "transmitted": runs.transmitted(method, best["rounds"]),
        "loss": best["loss"],
        "curve": best["curve"],
        "points": [{k: v for k, v in one.items() if k != "curve"} for one in found],
    }


def points(search: Mapping[str, list[float]]) -> Iterator[Point]:
    """All combinations, the first name changing least often."""
    for chosen in itertools.product(*search.values()):
        yield dict(zip(search, chosen, strict=True))


def trained(values: Settings, point: Point, rounds: int, asked: Asked) -> dict[str, Any]:
    """One run, until the loss is there or so many rounds are over."""
    made = runs.study_of("synthetic", runs.changed(values, point), asked)
    target = values["target"]
    done = hf.simulate(
        made.experiment(made.methods[0], made.seeds[0]),
        rounds=rounds,
        progress=False,
        until=lambda state: state.history[-1][made.metric] <= target,
    )
    curve = np.array(done.history[made.metric], np.float64)
    there = np.flatnonzero(curve <= target)
    finite = curve[np.isfinite(curve)]
    return {
        "rounds": int(there[0]) + 1 if len(there) else None,
        "loss": round(float(finite.min()), 4) if len(finite) else None,
        "curve": [round(float(value), 4) if np.isfinite(value) else None for value in curve],
    }


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [cell("type2", method, 0, quick=True) for method in ("feddyn", "scaffold")]
    return [cell(k, m, d) for d, k, m in itertools.product(DRAWS, KINDS, METHODS)]


def of(found: Found, kind: str) -> dict[str, list[float | None]]:
    """Models transmitted by method, of the draws that were run."""
    return {
        m: [found[n]["transmitted"] for d in DRAWS if (n := f"{kind}-{m}-{d}") in found]
        for m in METHODS
    }


CAPS = {method: 300 * runs.TRANSMITTED.get(method, 1) for method in METHODS}


def rows(found: Found) -> list[Row]:
    """One for each kind of data."""
    made = []
    for kind, (title, target, numbers) in KINDS.items():
        paper = dict(zip(METHODS, numbers, strict=True))
        ours = of(found, kind)
        verdict = ordering.verdict(paper, ours)
        run = verdict is not Verdict.NOT_RUN
        why = [ordering.unlike(paper, ours, NAMES), runs.missing(ours)]
        made.append(
            Row(
                "table 6",
                f"synthetic data, {title}: models transmitted until the training loss is {target}",
                runs.printed(paper, 300),
                runs.told(ours, CAPS) if run else "",
                "full" if run else "",
                "generated as A.1.1 says, 20 devices with about 200 examples" if run else "",
                verdict,
                " ".join(part for part in why if part) if run else "",
            )
        )
    return made


def table(found: Found) -> str:
    """Ours and the paper's, and what the search chose on each draw."""
    lines = ["| data | loss | " + " | ".join(NAMES[m] for m in METHODS) + " |"]
    lines.append("|---" * (2 + len(METHODS)) + "|")
    for kind, (title, target, numbers) in KINDS.items():
        ours = of(found, kind)
        if not any(ours.values()):
            continue
        told = [
            (ordering.mean_told(ours[m], CAPS[m]) if ours[m] else "not run")
            + f"<br>paper: {number}"
            for m, number in zip(METHODS, numbers, strict=True)
        ]
        lines.append(f"| {title} | {target} | " + " | ".join(told) + " |")
    lines += [
        "",
        "What the search chose, on each draw (learning rate, epochs or K, alpha or mu):",
        "",
    ]
    lines += ["| data | " + " | ".join(NAMES[m] for m in METHODS) + " |"]
    lines.append("|---" * (1 + len(METHODS)) + "|")
    for kind, (title, _, _) in KINDS.items():
        if any(of(found, kind).values()):
            told = [_chosen(found, kind, method) for method in METHODS]
            lines.append(f"| {title} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def _chosen(found: Found, kind: str, method: str) -> str:
    said = []
    for draw in DRAWS:
        if (name := f"{kind}-{method}-{draw}") in found:
            best = found[name]["best"]
            order = sorted(best, key=lambda place: place != "local.learning_rate")
            end = "" if found[name]["transmitted"] else f" (loss {found[name]['loss']})"
            said.append(", ".join(f"{best[place]:g}" for place in order) + end)
    return "<br>".join(said)


def figure(found: Found, path: Path) -> None:
    """The loss over models transmitted, of the best of each method's search on the first draw."""
    there = [kind for kind in KINDS if any(name.startswith(f"{kind}-") for name in found)]
    with figures.panels(path, len(there), most=2) as axes:
        for axis, kind in zip(axes, there, strict=True):
            for number, method in enumerate(METHODS):
                if (name := f"{kind}-{method}-0") in found:
                    curve = [np.nan if v is None else v for v in found[name]["curve"]]
                    sent = runs.TRANSMITTED.get(method, 1) * np.arange(1, len(curve) + 1)
                    axis.plot(sent, curve, color=f"C{number}", label=NAMES[method])
            axis.axhline(KINDS[kind][1], color="grey", linewidth=0.5)
            axis.set(title=KINDS[kind][0], xlabel="models transmitted", ylabel="training loss")
            axis.set_yscale("log")
            axis.legend(fontsize="small")


STUDY = Study(
    "feddyn/table6",
    "Synthetic logistic regression, four kinds of data: models transmitted until a training loss",
    needs=(),
    searched="learning rate 1 and 0.1 for every method; epochs 1, 10, 50 (SCAFFOLD: K 20, 200, 1000); "
    "FedDyn's alpha 0.1, 0.01, 0.001; FedProx's mu 0.01, 0.0001: all combinations on every draw, by models "
    "transmitted until the training loss is there, as in the paper (A.1.1).",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
