"""The advice as one page that needs nothing but itself."""

import html
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from holdfast.adviser import words
from holdfast.adviser.advice import Advice
from holdfast.adviser.problem import TO_TARGET
from holdfast.adviser.ranking import Place
from holdfast.errors import file_errors_said
from holdfast.record.files import write_whole
from holdfast.report.palette import look

_OWN_STYLE = """
main { padding-bottom: 3rem; }
section { margin: 2.25rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem; }
th, td { text-align: left; vertical-align: top; }
.scroll th, .scroll td { padding: .4rem .75rem; border-bottom: 1px solid var(--line); }
td { white-space: normal; min-width: 4.5rem; }
th { color: var(--soft); font-weight: 550; white-space: nowrap; }
tr.advised td { font-weight: 600; }
pre { overflow-x: auto; padding: 1rem; border-radius: 10px; background: var(--panel); }
pre { font: 13px/1.5 var(--mono); }
svg text { font: 13px var(--sans); fill: var(--ink); }
svg .soft { fill: var(--soft); }
svg .rule { stroke: var(--line); }
.scroll svg { display: block; width: 100%; min-width: 44rem; max-width: 60rem; height: auto; }
.scroll svg { box-sizing: border-box; padding: .5rem .75rem; }
.key { display: inline-flex; align-items: center; gap: .375rem; margin: 0 1rem .25rem 0; font-size: .875rem; }
.key i { width: 1.25rem; height: 3px; border-radius: 2px; }
@media (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --ground: #111417; --panel: #191d22; --ink: #e8eaed; }
  :root { --soft: #a3abb5; --line: #2d333b; --grid: #242a31; --accent: #6cbcf5; }
}
"""


def write(advice: Advice, path: Path, file: str | None = None) -> Path:
    """Write the page; `file` is the text of an experiment file that goes with it."""
    with file_errors_said():
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, render(advice, file))
    return path


def render(advice: Advice, file: str | None = None) -> str:
    """The page as text."""
    style = (
        resources.files("holdfast.report")
        .joinpath("browser", "page.css")
        .read_text(encoding="utf-8")
    )
    answer = advice.summary()
    parts = [
        f'<p class="verdict">{_text(answer[0])}</p>',
        f'<p class="summary"><b>{_text(answer[1])}</b></p>',
        _listed([*advice.reasons, advice.ties]),
        _section("What would change the advice", _listed(advice.changes)),
        _section("The race", _dots(advice) + _table(advice)),
        _section(f"{words_of(advice)} over rounds", _curves(advice)),
        _section("What was measured of the data", _facts(advice)),
        _section("What was tried", _listed(advice.tried)),
    ]
    if file is not None:
        parts.append(
            _section("An experiment file, ready to run", f"<pre>{html.escape(file)}</pre>")
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1"><title>holdfast: advice</title>'
        f"<style>{style}{_OWN_STYLE}"
        '</style></head><body><header class="masthead"><h1>Which method does this data need?</h1></header>'
        f"<main>{''.join(parts)}</main></body></html>\n"
    )


def words_of(advice: Advice) -> str:
    """What is measured, as a heading."""
    return f"Held-out {advice.problem.metric} of the server's model"


def _text(line: str) -> str:
    return html.escape(line).replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;")


def _listed(lines: Sequence[str]) -> str:
    return (
        "" if not lines else "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>"
    )


def _section(title: str, inside: str) -> str:
    return "" if not inside else f"<section><h2>{html.escape(title)}</h2>{inside}</section>"


def _table(advice: Advice) -> str:
    rows = advice.table()
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = ""
    for row in rows:
        kind = ' class="advised"' if row[""] == "advised" else ""
        body += (
            f"<tr{kind}>" + "".join(f"<td>{_text(cell)}</td>" for cell in row.values()) + "</tr>"
        )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _facts(advice: Advice) -> str:
    rows = "".join(
        f"<tr><th>{_text(k)}</th><td>{_text(v)}</td></tr>" for k, v in advice.facts.lines()
    )
    return f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _dots(advice: Advice) -> str:
    """Finalists as dots with the deviation over seeds, best on top."""
    finals = [p for p in advice.places if p.final and not p.failed and math.isfinite(p.value)]
    if len(finals) < 2:
        return ""
    low = min(p.value - p.deviation for p in finals)
    high = max(p.value + p.deviation for p in finals)
    pad = 0.06 * (high - low) or 0.01 * max(1e-9, abs(high))
    low, high = low - pad, high + pad
    left, right, step = 170, 620, 30

    def x(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    drawn = []
    for k, place in enumerate(finals):
        y, colour = 20 + k * step, look(k).light
        a, b = x(place.value - place.deviation), x(place.value + place.deviation)
        drawn.append(
            f'<line class="rule" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>'
            f'<line x1="{a:.1f}" x2="{b:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
            f'<circle cx="{x(place.value):.1f}" cy="{y}" r="6" fill="{colour}"/>'
            f'<text x="0" y="{y + 4}">{html.escape(words.called(place))}</text>'
            f'<text class="soft" x="{right + 10}" y="{y + 4}">'
            f"{html.escape(words.of_goal(advice.problem, place))}</text>"
        )
    height = 20 + len(finals) * step
    goal = advice.problem.goal.replace("_", " ")
    better = (
        "less is better"
        if advice.problem.goal in TO_TARGET or not advice.problem.greater
        else "more is better"
    )
    drawn.append(
        f'<text class="soft" x="{left}" y="{height + 2}">{goal}, mean and deviation over seeds; '
        f"{better}</text>"
    )
    return _picture(780, height + 10, f"finalists by {goal}", drawn)


def _curves(advice: Advice) -> str:
    """The server's model on held-out examples, the mean over seeds of every finalist."""
    if advice.race is None:
        return ""
    shown: list[tuple[Place, np.ndarray]] = []
    for place in advice.places:
        if place.final and not place.failed and not place.contestant.adapt:
            runs = [s.curve for s in advice.race.last(place.contestant)[1] if not s.failed]
            shown.append((place, np.mean(runs, 0)))
    if not shown:
        return ""
    tops = np.concatenate([curve for _, curve in shown])
    tops = tops[np.isfinite(tops)]
    # Where lines differ: the beginning would take most of the picture.
    low, high = (
        np.quantile(tops, 0.1 if advice.problem.greater else 0.0),
        np.quantile(tops, 1.0 if advice.problem.greater else 0.9),
    )
    span = float(high - low) or 1.0
    left, right, top, bottom = 56, 740, 12, 300

    def point(k: int, value: float, rounds: int) -> str:
        x = left + (right - left) * k / max(1, rounds - 1)
        y = bottom - (bottom - top) * min(1.02, max(-0.02, (value - low) / span))
        return f"{x:.1f},{y:.1f}"

    drawn, keys = [], []
    for tick in np.linspace(low, high, 5):
        y = bottom - (bottom - top) * (tick - low) / span
        drawn.append(f'<line class="rule" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text class="soft" x="0" y="{y + 4:.1f}">{tick:.3f}</text>')
    for k, (place, curve) in enumerate(shown):
        colour = look(k).light
        path = " ".join(
            point(t, float(v), len(curve)) for t, v in enumerate(curve) if math.isfinite(v)
        )
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
        keys.append(
            f'<span class="key"><i style="background:{colour}"></i>{html.escape(words.called(place))}</span>'
        )
    last = len(shown[0][1])
    for t in (1, round(last / 2), last):
        x = left + (right - left) * (t - 1) / max(1, last - 1)
        drawn.append(
            f'<text class="soft" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{t}</text>'
        )
    target = advice.problem.target
    if target is not None and low <= target <= high:
        y = bottom - (bottom - top) * (target - low) / span
        drawn.append(
            f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" '
            f'stroke-dasharray="5 4"/>'
        )
    return f"<p>{''.join(keys)}</p>" + _picture(764, 330, words_of(advice), drawn)


def _picture(width: int, height: int, label: str, drawn: Sequence[str]) -> str:
    inside = "".join(drawn)
    shape = f'viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}"'
    # On a narrow screen it is moved sideways rather than too small to read.
    return f'<div class="scroll"><svg {shape}>{inside}</svg></div>'
