"""A sweep as lines: one key along the axis, and a line for every setting of the rest."""

import dataclasses
import math
from typing import Any, Literal

from holdfast.runs.results import MethodResult, Results
from holdfast.sweeps.naming import brief, label

Scale = Literal["linear", "log", "category"]
_DECADE = 10 * (1 - 1e-9)  # times apart, but for rounding: from here on the axis is logarithmic


@dataclasses.dataclass(frozen=True)
class Line:
    """What differs along the axis alone: its points by number of method, in order."""

    label: str
    methods: tuple[int, ...]
    x: tuple[Any, ...]  # numbers, or words on an axis of categories
    words: tuple[str, ...]  # as they are written


@dataclasses.dataclass(frozen=True)
class Key:
    """One key that was swept."""

    name: str
    scale: Scale
    lines: tuple[Line, ...]

    @property
    def ticks(self) -> dict[Any, str]:
        """Every value on the axis, and how it is written."""
        return {x: word for line in self.lines for x, word in zip(line.x, line.words, strict=True)}


def sweeps(results: Results) -> list[Key]:
    """Every key with at least two values, in order of appearance; none without a sweep."""
    swept = [(i, m) for i, m in enumerate(results.methods) if m.swept]
    names = dict.fromkeys(name for _, method in swept for name in method.swept)
    found = []
    for name in names:
        having = [(i, m) for i, m in swept if name in m.swept]
        if len({brief(m.swept[name]) for _, m in having}) > 1:
            found.append(_key(name, having))
    return found


def _key(name: str, having: list[tuple[int, MethodResult]]) -> Key:
    scale = scale_of([method.swept[name] for _, method in having])
    grouped: dict[str, list[tuple[Any, int, str]]] = {}
    for number, method in having:
        rest = {n: v for n, v in method.swept.items() if n != name}
        called = f"{method.of} {label(rest)}" if rest else method.of
        value = method.swept[name]
        word = brief(value)
        x = word if scale == "category" else float(value)
        grouped.setdefault(called, []).append((x, number, word))
    lines = []
    for called, points in grouped.items():
        ordered = points if scale == "category" else sorted(points)
        places, methods, words = zip(*ordered, strict=True)
        lines.append(Line(called, methods, places, words))
    return Key(name, scale, tuple(lines))


def scale_of(values: list[Any]) -> Scale:
    """The axis that values ask for.

    Example:
        >>> scale_of([0.01, 0.1, 1]), scale_of([1, 2, 5]), scale_of(["keep", "drop"])
        ('log', 'linear', 'category')
    """
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        return "category"
    if not all(map(math.isfinite, values)):
        return "category"
    return "log" if min(values) > 0 and max(values) >= _DECADE * min(values) else "linear"
