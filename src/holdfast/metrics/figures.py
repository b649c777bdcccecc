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
    """A mean with its deviation; where not every seed has one a lower bound, and how many have.

    Args:
        spread: the figure.
        otherwise: what stands where there is not even a bound.
        digits: after the point; as many as its size asks for unless given.
        precision: how many that is for numbers below 10.
        between: what stands before the deviation.

    Example:
        >>> in_figures(Spread((0.95, 0.96))), in_figures(Spread((2e-7,)))
        ('0.9550 ± 0.0071', '2.00e-07')
        >>> in_figures(Spread((1.2e-5, 1.3e-5))), in_figures(Spread((1e-5, 1e-5 + 1e-20)))
        ('1.25e-05 ± 0.07e-05', '1.00e-05 ± 0.00e-05')
        >>> in_figures(Spread((60, None, 64), spent=(100, 100, 100)), digits=0)
        '> 74 (2 of 3)'
    """
    if spread.mean is None:
        some = f" ({len(spread.reached)} of {len(spread.values)})" if spread.reached else ""
        least = spread.more_than
        if least is None:
            return otherwise + some
        # Rounded down: it is more than that.
        size = math.floor(math.log10(least)) if least > 0 else 0
        shown = _down(least, max(0, precision - size) if digits is None else digits)
        return f"> {shown}{some}"
    # A loss that overflowed has no size, and its deviation is no number either.
    if digits is None and not math.isfinite(spread.mean):
        return str(spread.mean)
    form = _form(spread.mean, precision) if digits is None else f".{digits}f"
    text = format(spread.mean, form)
    if len(spread.values) == 1:
        return text
    if form.endswith("e"):
        # In units of the mean's last digit: `1.20e-05 ± 0.03e-05` can be read at a glance.
        power = text.partition("e")[2]
        return f"{text}{between}{spread.deviation / float(f'1e{power}'):.2f}e{power}"
    return f"{text}{between}{spread.deviation:{form}}"


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


def _down(value: float, digits: int) -> str:
    unit = 10**digits
    # What was a number of this many digits stays it, whatever rounding did to it.
    return f"{math.floor(value * unit * (1 + 1e-12)) / unit:.{digits}f}"


def times_fewer(theirs: Spread, mine: Spread) -> float | None:
    """How many times less than theirs mine is."""
    if theirs.mean is None or not mine.mean:
        return None
    return theirs.mean / mine.mean


def more_times_fewer(theirs: Spread, mine: Spread) -> float | None:
    """More than how many times less mine is, where theirs has a lower bound only."""
    return theirs.more_than / mine.mean if theirs.more_than and mine.mean else None


def saving(theirs: Spread, mine: Spread) -> str:
    """The same in figures; `>` where theirs is a lower bound, `<` where mine is, none where both are.

    Example:
        >>> never = Spread((None,), spent=(100,))
        >>> saving(Spread((60,)), Spread((24,))), saving(never, Spread((60,)))
        ('2.50x', '> 1.66x')
        >>> saving(Spread((60,)), never), saving(never, never)
        ('< 0.60x', '-')
    """
    times, more = times_fewer(theirs, mine), more_times_fewer(theirs, mine)
    if times is not None:
        return f"{times:.2f}x"
    if more is not None:
        return f"> {_down(more, 2)}x"
    if theirs.mean and mine.more_than:
        return f"< {math.ceil(100 * theirs.mean / mine.more_than * (1 - 1e-12)) / 100:.2f}x"
    return "-"


def in_columns(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, flush right under each other."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines
    )
