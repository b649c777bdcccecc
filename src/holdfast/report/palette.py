"""What tells methods apart: a colour that colour-blind readers can tell from the others, and a mark.

Colours are Okabe and Ito's, each darkened for white paper or lightened for a dark screen until it
stands out from the ground at least 3 to 1. Colour never stands alone: the mark differs too, and past
eight methods the dash.
"""

import dataclasses

_LIGHT = (
    "#3d3d3d",
    "#0072b2",
    "#d55e00",
    "#00855f",
    "#b8579a",
    "#b07800",
    "#3a93cf",
    "#8a7d00",
)
_DARK = (
    "#d6d6d6",
    "#4aa8e8",
    "#ff8640",
    "#2cc495",
    "#e391c4",
    "#f0b42f",
    "#8fd0fb",
    "#e8dc4a",
)
# Names are plotly's; beside them matplotlib's.
_MARKS = (
    ("circle", "o"),
    ("square", "s"),
    ("diamond", "D"),
    ("triangle-up", "^"),
    ("triangle-down", "v"),
    ("cross", "P"),
    ("x", "X"),
    ("star", "*"),
)
_DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))


@dataclasses.dataclass(frozen=True)
class Look:
    """How one method is drawn, on the page and on paper."""

    light: str
    dark: str
    symbol: str
    dash: str
    paper_marker: str
    paper_line: str


def look(number: int) -> Look:
    """Of the method with this number; the first 32 all differ.

    Example:
        >>> look(1).light, look(1).symbol, look(9).dash
        ('#0072b2', 'square', 'dash')
    """
    place, turn = number % len(_LIGHT), number // len(_LIGHT) % len(_DASHES)
    (symbol, marker), (dash, line) = _MARKS[place], _DASHES[turn]
    return Look(_LIGHT[place], _DARK[place], symbol, dash, marker, line)
