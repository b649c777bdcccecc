"""How figures are printed, in a terminal and on the page."""

import math
from collections.abc import Sequence
from typing import Any

from holdfast.metrics.spread import Spread


def number(value: Any) -> float | None:
    """A value as a finite number, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def in_figures(
    spread: Spread,
    otherwise: str = "-",
    digits: int | None = None,
    precision: int = 4,
    between: str = " ± ",
) -> str:
    """A mean with its deviation, or how many seeds reached it.

    Args:
        spread: the figure.
        otherwise: what stands where not every seed has one.
        digits: after the point; as many as its size asks for unless given.
        precision: how many that is for numbers below 10.
        between: what stands before the deviation.

    Example:
        >>> in_figures(Spread((0.95, 0.96))), in_figures(Spread((2e-7,)))
        ('0.9550 ± 0.0071', '2.00e-07')
        >>> in_figures(Spread((60, None, 64)), "> 100")
        '> 100 (2 of 3)'
    """
    if spread.mean is None:
        some = f" ({len(spread.reached)} of {len(spread.values)})" if spread.reached else ""
        return otherwise + some
    # A loss that overflowed has no size, and its deviation is no number either.
    if digits is None and not math.isfinite(spread.mean):
        return str(spread.mean)
    form = _form(spread.mean, precision) if digits is None else f".{digits}f"
    text = format(spread.mean, form)
    return f"{text}{between}{spread.deviation:{form}}" if len(spread.values) > 1 else text


def _form(size: float, precision: int) -> str:
    if size == 0:
        return f".{precision}f"
    places = math.floor(math.log10(abs(size)))
    if places < -2 or places > 5:
        return ".2e"
    return f".{max(0, precision - max(0, places))}f"


def digits_of_megabytes(megabytes: float) -> int:
    """After the point, so that small models show something too."""
    return 1 if megabytes >= 1 else 4


def times_fewer(theirs: Spread, mine: Spread) -> float | None:
    """How many times less than theirs mine is."""
    if theirs.mean is None or not mine.mean:
        return None
    return theirs.mean / mine.mean


def saving(theirs: Spread, mine: Spread) -> str:
    """The same in figures.

    Example:
        >>> saving(Spread((60,)), Spread((24,))), saving(Spread((60,)), Spread((None,)))
        ('2.50x', '-')
    """
    times = times_fewer(theirs, mine)
    return "-" if times is None else f"{times:.2f}x"


def in_columns(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, flush right under each other."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines
    )
