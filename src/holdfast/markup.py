"""HTML for notebooks: one look at a value, every word escaped, readable on light and dark ground."""

import dataclasses
import html
import math
from collections.abc import Iterable, Sequence

_GREY = "color:#777f88"
_LINE = "border-bottom:1px solid rgba(128,128,128,.3)"
_INK = "#0072b2"  # Okabe and Ito's blue, as in the report
# JupyterLab aligns and stripes tables by rules of its own; these go before them.
_CELL = "padding:.15em .5em;white-space:nowrap"


@dataclasses.dataclass(frozen=True)
class Safe:
    """Markup that is put in as it is; a string is escaped."""

    markup: str


def card(title: str, about: str, *parts: Safe) -> str:
    """A heading, a line in grey, and what stands below.

    Example:
        >>> card("a < b", "2 clients")[28:51]
        '<div><b>a &lt; b</b> <s'
    """
    head = f'<div><b>{_text(title)}</b> <span style="{_GREY}">{_text(about)}</span></div>'
    return f'<div style="max-width:72em">{head}{"".join(part.markup for part in parts)}</div>'


def table(names: Sequence[str], rows: Iterable[Sequence[str | Safe]], left: int = 1) -> Safe:
    """Rows under names; the first columns flush left, numbers flush right."""

    def cells(tag: str, values: Sequence[str | Safe], more: str = "") -> str:
        side = ["left"] * left + ["right"] * len(values)
        return "".join(
            f'<{tag} style="text-align:{side[i]};{_CELL}{more}">{_text(value)}</{tag}>'
            for i, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return Safe(
        f'<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:.4em 0">'
        f"<thead><tr>{cells('th', names, f';{_LINE}')}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def line(text: str) -> Safe:
    """A sentence in grey."""
    return Safe(f'<div style="{_GREY}">{_text(text)}</div>')


def shares(parts: Sequence[float], titles: Sequence[str]) -> Safe:
    """A row of small squares, darker the larger its part; each says what it is."""
    top = max([*parts, 0]) or 1
    dark = [0.08 + 0.92 * part / top if part else 0.04 for part in parts]
    cells = "".join(
        f'<rect x="{14 * i}" width="13" height="13" fill="{_INK}" fill-opacity="{opacity:.2f}">'
        f"<title>{_text(title)}</title></rect>"
        for i, (opacity, title) in enumerate(zip(dark, titles, strict=True))
    )
    return _picture(14 * len(parts), 13, cells)


def bar(part: float, whole: float) -> Safe:
    """A bar as long as its share of the longest."""
    width = 0 if not whole else max(1, round(90 * part / whole))
    return _picture(90, 11, f'<rect width="{width}" height="11" fill="{_INK}" fill-opacity=".7"/>')


def heat_map(columns: Sequence[Sequence[float]], width: int = 480) -> Safe:
    """Columns of cells, darker the larger: of very many clients, which classes they have."""
    rows = len(columns[0]) if columns else 0
    if not rows:
        return Safe("")
    wide, high = width / len(columns), max(3, min(12, 120 // rows))
    top = max(max(column) for column in columns) or 1
    cells = "".join(
        f'<rect x="{wide * i:.1f}" y="{high * j}" width="{wide:.1f}" height="{high}" '
        f'fill-opacity="{value / top:.2f}"/>'
        for i, column in enumerate(columns)
        for j, value in enumerate(column)
        if value / top >= 0.01
    )
    return _picture(width, high * rows, f'<g fill="{_INK}">{cells}</g>', framed=True)


def curve(values: Sequence[float], width: int = 160, height: int = 36) -> Safe:
    """How a number went, without axes: what is not finite is left out."""
    known = [(i, v) for i, v in enumerate(values) if math.isfinite(v)]
    if len(known) < 2:
        return Safe("")
    low, high = min(v for _, v in known), max(v for _, v in known)
    across, up = (width - 4) / (known[-1][0] - known[0][0]), (height - 4) / ((high - low) or 1)
    # More points than pixels show nothing more.
    known = known[:: max(1, len(known) // (2 * width))] + known[-1:]
    points = " ".join(
        f"{2 + across * (i - known[0][0]):.1f},{height - 2 - up * (v - low):.1f}" for i, v in known
    )
    path = f'<polyline points="{points}" fill="none" stroke="{_INK}" stroke-width="1.6"/>'
    return _picture(width, height, path)


def _picture(width: int, height: int, inside: str, framed: bool = False) -> Safe:
    frame = ";border:1px solid rgba(128,128,128,.3);margin:.4em 0" if framed else ""
    return Safe(
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="vertical-align:middle{frame}">{inside}</svg>'
    )


def _text(value: str | Safe) -> str:
    return value.markup if isinstance(value, Safe) else html.escape(str(value))
