"""How lists of values make points."""

import itertools
from collections.abc import Sequence
from typing import Any

WAYS = ("grid", "paired")


def combinations(lists: Sequence[Sequence[Any]], how: str) -> list[tuple[Any, ...]]:
    """Every combination in a grid; paired, the first values of all, then the second, ...

    Without lists there is one point, with nothing in it.

    Example:
        >>> combinations([[1, 2], "ab"], "grid")
        [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')]
        >>> combinations([[1, 2], "ab"], "paired"), combinations([], "paired")
        ([(1, 'a'), (2, 'b')], [()])
    """
    if how == "paired" and lists:
        return list(zip(*lists, strict=True))
    return list(itertools.product(*lists))
