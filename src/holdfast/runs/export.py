"""A comparison for other programs: as CSV, as JSON, and as a table for LaTeX or Markdown."""

import csv
import dataclasses
import io
import json
import math
import re
from typing import Any

from holdfast.runs.compare import columns, named, records
from holdfast.runs.differences import Difference, difference, judged_by
from holdfast.runs.flags import flags
from holdfast.runs.results import Results
from holdfast.runs.verdict import tested_per_trained, verdict


def against(results: Results, baseline: str | None = None) -> list[Difference]:
    """Every method's paired difference to one of them, on the same test rows; none without predictions.

    Args:
        results: the methods.
        baseline: the label of the one; the first that is no end of the comparison unless given.
    """
    by, base = judged_by(results), results.baseline(baseline)
    if by is None:
        return []
    ratio = tested_per_trained(results)
    others = [m for m in results.methods if m.label != base.label]
    found = (difference(m, base, by, ratio) for m in others)
    return [d for d in found if d is not None]


def to_csv(results: Results, baseline: str | None = None) -> str:
    """Figures as comma-separated values, a line for each method."""
    rows, text = records(results, baseline), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(results: Results, baseline: str | None = None) -> str:
    """Figures, paired differences, the verdict and what is flagged, as plain numbers and sentences."""
    found = verdict(results)
    about = {
        "metric": results.metric,
        "target": results.target,
        "window": results.window,
        "methods": records(results, baseline),
        "differences": [_difference(d) for d in against(results, baseline)],
        "verdict": None if found is None else {"sentences": found.sentences, **_ends(found)},
        "flags": [dataclasses.asdict(flag) for flag in flags(results)],
    }
    return json.dumps(_plain(about), indent=2) + "\n"


def _ends(found: Any) -> dict[str, Any]:
    lines = {name: getattr(found, name) for name in ("alone", "pooled", "federated", "personal")}
    scores = {
        name: line and {"method": line.label, "value": line.value} for name, line in lines.items()
    }
    sites = [
        {"client": s.client, "name": s.name, "rows": s.rows, "gain": s.gain and vars(s.gain)}
        for s in found.sites
    ]
    gains = {n: getattr(found, n) for n in ("gain", "gap", "own")}
    return {
        **scores,
        **{name: d and _difference(d) for name, d in gains.items()},
        "chosen": found.chosen.label,
        "by_validation": found.by_validation,
        "sites": sites,
    }


def _difference(found: Difference) -> dict[str, Any]:
    about = {
        n: getattr(found, n) for n in ("first", "second", "metric", "rows", "clients", "splits")
    }
    return {**about, "seeds": found.seeds, **vars(found.gain), "told_apart": found.told_apart}


def _plain(value: Any) -> Any:
    """JSON has no number that is not finite."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_markdown(results: Results, baseline: str | None = None) -> str:
    """A table of pipes, as GitHub and most wikis draw it."""
    head, lines = in_cells(results, baseline)
    escaped = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *escaped])


_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
}


def in_latex(text: str) -> str:
    r"""Text with what LaTeX takes for a command written out.

    Example:
        >>> print(in_latex("local_only > 90 %"), in_latex("0.95±0.01"))
        local\_only $>$ 90 \% 0.95$\pm$0.01
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def to_latex(results: Results, baseline: str | None = None) -> str:
    """A table for LaTeX's booktabs (`\\usepackage{booktabs}`), ends of the comparison below a line."""
    head, lines = in_cells(results, baseline)
    contestants = sum(not m.is_reference for m in results.methods)
    rows = [" & ".join(map(in_latex, line)) + r" \\" for line in lines]
    rows = [re.sub(r"(\d)x\b", r"\1$\\times$", row) for row in rows]
    if 0 < contestants < len(rows):
        rows.insert(contestants, r"\midrule")
    return "\n".join(
        [
            rf"% {results.goal}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            " & ".join(map(in_latex, head)) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def in_cells(results: Results, baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """The table as text: a head, and a line for each method, ends of the comparison last."""
    listed = list(columns(results, results.baseline(baseline)))
    order = sorted(range(len(results.methods)), key=lambda i: results.methods[i].is_reference)
    lines = [[named(results.methods[i]), *(cells[i] for _, cells in listed)] for i in order]
    return ["method", *(name for name, _ in listed)], lines
