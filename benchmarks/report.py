"""RESULTS.md and the table at the end, from what was measured."""

import datetime
import itertools
from collections.abc import Iterable
from typing import Any

from problems import PROBLEMS, SIZES
from scaling import TITLES
from sides import SIDES, TOLERANCE

Row = dict[str, Any]
METHOD = {"fedavg": "FedAvg", "feddyn": "FedDyn"}


def seconds(value: float) -> str:
    """Three digits that matter."""
    if value < 0.1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def megabytes(value: float) -> str:
    """Of bytes."""
    return f"{value / 1e6:.0f} MB"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Markdown; the first column to the left, the others to the right."""
    head = list(head)
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


HEAD = ("side", "round", "/ holdfast", "cold start", "/ holdfast", "memory", "difference")


def cells(row: Row, ours: Row | None) -> list[str]:
    """One side's line; a side without numbers says why, a side that computed something else is WRONG."""
    title = SIDES[row["side"]].title
    if row.get("variant"):
        title += f" ({SIDES[row['side']].says.format(row['variant'])})"
    if "why" in row:
        return [title, row["why"].replace("|", "/"), *[""] * 5]
    if not row["same"]:
        title = f"**WRONG** {title}"

    def ratio(what: str) -> str:
        return "" if ours is None else f"{row[what] / ours[what]:.3g}"

    return [
        title,
        seconds(row["seconds"]),
        ratio("seconds"),
        seconds(row["cold"]),
        ratio("cold"),
        megabytes(row["memory"]),
        f"{row['difference']:.0e}",
    ]


def comparison(rows: list[Row]) -> list[str]:
    """A table for every problem, sizes and method."""
    lines: list[str] = []
    keys = dict.fromkeys((r["problem"], r["sizes"], r["method"]) for r in rows)
    for problem, sizes, method in keys:
        these = [
            r for r in rows if (r["problem"], r["sizes"], r["method"]) == (problem, sizes, method)
        ]
        ours = next((r for r in these if r["side"] == "holdfast" and "why" not in r), None)
        p = PROBLEMS[problem]
        lines += [
            "",
            f"### {p.title}, {sizes}, {METHOD[method]}",
            "",
            f"{p.cohort} of {p.population} clients a round, {p.mean_size} examples on average, batch "
            f"{p.batch_size}, {p.epochs} local epoch{'s' * (p.epochs > 1)}. Measured on "
            f"{', '.join(dict.fromkeys(r['date'] for r in these))}.",
            "",
            *table(HEAD, (cells(r, ours) for r in these)),
        ]
    return lines


def limits(rows: list[Row]) -> list[str]:
    """How far a round is from its bare matrix products."""
    head = ("model", "products alone, a step", "rate", "arrangement", "round", "share")
    return table(
        head,
        (
            [
                PROBLEMS[r["problem"]].title,
                seconds(r["seconds"]),
                f"{r['gflops']:.0f} GFLOP/s",
                "one device" if r["devices"] == 1 else f"{r['devices']} devices",
                seconds(r["round"]),
                f"{100 * r['bare'] / r['round']:.0f} %",
            ]
            for r in rows
        ),
    )


def own(rows: list[Row]) -> list[str]:
    """holdfast against itself."""
    head = (
        "model",
        "method",
        "first start",
        "second start",
        "/ first",
        "1 device",
        "2 devices",
        "same bits",
    )
    return table(
        head,
        (
            [
                PROBLEMS[r["problem"]].title,
                METHOD[r["method"]],
                seconds(r["first"]),
                seconds(r["second"]),
                f"{r['second'] / r['first']:.2g}",
                seconds(r["one"]),
                seconds(r["two"]),
                "yes" if r["bits"] else "**NO**",
            ]
            for r in rows
        ),
    )


def stateful(rows: list[Row]) -> list[str]:
    """A round of FedDyn over one of FedAvg."""
    ours = {(r["problem"], r["sizes"], r["method"]): r for r in rows if r["side"] == "holdfast"}
    found = []
    for (problem, sizes, method), row in ours.items():
        plain = ours.get((problem, sizes, "fedavg"))
        if method == "feddyn" and plain and "seconds" in row and "seconds" in plain:
            ratio = row["seconds"] / plain["seconds"]
            found.append([f"{PROBLEMS[problem].title}, {sizes}", f"{ratio:.3g}"])
    return table(("model", "FedDyn / FedAvg"), found)


def curves(rows: list[Row]) -> list[str]:
    """Scaling, a table a curve."""
    lines: list[str] = []
    for curve in dict.fromkeys(r["curve"] for r in rows):
        these = [r for r in rows if r["curve"] == curve]
        lines += ["", f"### {curve}: {TITLES[curve]}", "", f"![{curve}](figures/{curve}.png)", ""]
        found = (
            [
                f"{r['value']:,}",
                METHOD[r["method"]],
                *([r["why"], "", "", ""] if "why" in r else _point(r)),
            ]
            for r in these
        )
        lines += table((curve, "method", "round", "to the end of round 1", "memory", "data"), found)
    return lines


def _point(row: Row) -> list[str]:
    return [
        seconds(row["seconds"]),
        seconds(row["cold"]),
        megabytes(row["memory"]),
        megabytes(row["data"]),
    ]


def whole(rows: list[Row]) -> list[str]:
    """A whole comparison: seconds a user waits, and in which round the target was reached."""
    ours = next(r for r in rows if r["side"] == "holdfast")
    methods = list(ours["reached"])

    def line(row: Row) -> list[str]:
        side = SIDES[row["side"]]
        if "why" in row:
            return [side.title, row["why"].replace("|", "/"), *[""] * (2 + len(methods))]
        said = side.says.format(row["variant"]) if row["variant"] else ""
        title = f"{side.title} ({said})" if said else side.title
        if row["difference"] > TOLERANCE:
            title = f"**WRONG** {title}"
        reached = [row["reached"][m] for m in methods]
        return [
            title,
            seconds(row["seconds"]),
            f"{row['seconds'] / ours['seconds']:.3g}",
            *("not" if r is None else f"{r:.1f}" for r in reached),
            f"{row['difference']:.0e}",
        ]

    return [
        f"Digits, Dirichlet(0.3) over 50 clients, 10 a round, MLP 64-64-10 (`whole.toml`): {len(methods)} "
        f"methods x {ours['seeds']} seed{'s' * (ours['seeds'] > 1)}, {ours['rounds']} rounds each, test "
        f"accuracy after every round, from the start of the process to the result. holdfast is `holdfast "
        f"run` with an empty cache of compiled programs, clients' own models, saves, page and verdict "
        f"included; the others train and measure the server's model. Columns of "
        f"methods: rounds to 0.9, means over seeds.",
        "",
        *table(("side", "seconds", "/ holdfast", *methods, "difference"), map(line, rows)),
    ]


NOTES = """
- A table is of one day, which it names; tables that were not measured anew are of the code of theirs.
- A side is a process of its own. *round* is the fastest after the first, over its runs: what else happens on
  a machine only adds. Sides take turns, so that a slow minute of the machine hits all. *cold start* is from
  the start of the process, imports and reading the data included, to the end of round 1; holdfast's with an
  empty cache of compiled programs, everybody's with files in memory: each side is run once before
  (since 2026-11-18; before, the first import came from the disk).
  Where a side was tried in several ways, the fastest is shown. Rounds in scaling curves, and of processes,
  are medians.
- *memory* is the most a process had resident; Flower's is its own and what its workers had to themselves
  at the end of a round.
- *difference* is the largest in a leaf of the final parameters over the leaf's largest entry, against
  holdfast's; more than 1e-4, or more than 1 % of the way from the first parameters, is WRONG.
- Batch order is holdfast's own. holdfast draws it as it runs; the others read it from the task file.
- The last batch of a pass is short where clients differ in size, and its loss is divided by its own size.
  PyTorch, pfl and Flower compute short batches as they are; torch.func, DrJAX and FedJAX pad and mask.
- FedAvg is each library's own where it has one (pfl, Flower, FedJAX); FedDyn is shipped by none and written
  within the library's own loop.
- DrJAX and torch.func vmap clients, so every client takes as many steps as the longest. DrJAX convolves by
  patches; FedJAX was tried with XLA's convolution and with patches.
""".strip()


def headlines(results: dict[str, Any]) -> list[str]:
    """How many times longer others take than holdfast, the smallest and the largest over all tables."""
    compared = results.get("compared", [])
    ours = {
        (r["problem"], r["sizes"], r["method"]): r
        for r in compared
        if r["side"] == "holdfast" and "why" not in r
    }
    found = []
    for side in (s for s in SIDES if s != "holdfast"):
        pairs = [
            (r, ours[key])
            for r in compared
            if r["side"] == side
            and "why" not in r
            and (key := (r["problem"], r["sizes"], r["method"])) in ours
        ]
        cells = [_span([r[what] / o[what] for r, o in pairs]) for what in ("seconds", "cold")]
        waited = [r for r in results.get("whole", []) if r["side"] == side and "why" not in r]
        first = next(iter(results.get("whole", [])), None)
        whole_ = f"{waited[0]['seconds'] / first['seconds']:.3g}" if waited and first else ""
        memory = _span([o["memory"] / r["memory"] for r, o in pairs])
        if pairs or waited:
            found.append([SIDES[side].title, *cells, whole_, memory])
    if not found:
        return []
    head = ("side", "round", "cold start", "a whole comparison", "holdfast's memory / its own")
    said = "Times of others over holdfast's, from the smallest to the largest of the tables below."
    return [said, "", *table(head, found)]


def _span(ratios: list[float]) -> str:
    return f"{min(ratios):.3g} to {max(ratios):.3g}" if ratios else ""


def missing(rows: list[Row]) -> str:
    """Cases and sides without a row, since a run may be told to measure some only."""
    have = {(r["problem"], r["sizes"], r["method"], r["side"]) for r in rows}
    found = []
    for case in itertools.product(PROBLEMS, SIZES, METHOD):
        absent = [side for side in SIDES if (*case, side) not in have]
        if absent:
            whom = "nobody" if len(absent) == len(SIDES) else "not " + ", ".join(absent)
            found.append(f"{' '.join(case)}: {whom}")
    return f"Not everything was measured: {'; '.join(found)}." if found else ""


def render(results: dict[str, Any], machine: list[str]) -> str:
    """The whole of RESULTS.md."""
    mode = (
        "A quick run: every side once in each of its variants, so read ratios as rough.\n"
        * bool(results.get("quick"))
    )
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` on {datetime.date.today().isoformat()}. {mode}".strip(),
        "",
        *headlines(results),
        "",
        "" if results.get("quick") else missing(results.get("compared", [])),
        "",
        *machine,
        "",
        NOTES,
    ]
    sections = (
        ("A whole comparison", "whole", whole),
        ("Against others", "compared", comparison),
        ("FedDyn over FedAvg, holdfast", "compared", stateful),
        ("holdfast against itself", "own", own),
        ("The limit: matrix products alone", "limit", limits),
        ("Scaling", "scaling", curves),
    )
    for title, key, written in sections:
        if results.get(key):
            lines += ["", f"## {title}", "", *written(results[key])]
    if results.get("processes"):
        lines += ["", "### processes", "", *results["processes"]]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"
