"""Held-out rows in two: to calibrate with, and to test on."""

import dataclasses
from typing import Any

import numpy as np
from jax import tree

from holdfast.core.keys import Purpose, host_generator
from holdfast.data.clients import Clients, count
from holdfast.errors import HoldfastError, explain_arguments


@explain_arguments
def divide(examples: Any, share: float = 0.5, seed: int = 0) -> tuple[Any, Any]:
    """Held-out examples in two: some to calibrate with, the rest to test on, none in both.

    Drawn uniformly at random and not by label, so that the two are exchangeable, which is what coverage
    rests on. Of clients each one's own examples are divided; these must be theirs alone.

    Args:
        examples: a data set, or every client's own as `Clients`.
        share: of the examples that are to calibrate with.
        seed: the choice is a function of it.

    Example:
        >>> import holdfast as hf
        >>> train, held_out = hf.data.digits()
        >>> calibration, test = hf.conformal.divide(held_out, share=0.25)
        >>> len(calibration.y), len(test.y)
        (90, 269)
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise HoldfastError(
            f"conformal: share={share!r}; give more than 0 and less than 1, such as 0.5.",
            about=("share",),
        )
    if not isinstance(examples, Clients):
        few, rest = rows_in_two(count(examples), share, seed)
        _check_parts(share, len(few), len(rest))
        return (
            tree.map(lambda a: np.asarray(a)[few], examples),
            tree.map(lambda a: np.asarray(a)[rest], examples),
        )
    check_unshared(examples, "divide")
    halves = [rows_in_two(int(n), share, seed, i) for i, n in enumerate(examples.sizes)]
    _check_parts(share, *(sum(len(half[part]) for half in halves) for part in (0, 1)))

    def of(part: int) -> Clients:
        rows = [examples.rows(i)[half[part]] for i, half in enumerate(halves)]
        sizes = [len(r) for r in rows]
        return dataclasses.replace(
            examples,
            order=np.concatenate(rows),
            offsets=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        )

    return of(0), of(1)


def rows_in_two(
    n: int, share: float, seed: int = 0, client: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of rows, some and the rest, each in order."""
    few = round(share * n)
    order = host_generator(Purpose.SETS, seed, 2, client).permutation(n)
    return np.sort(order[:few]), np.sort(order[few:])


def _check_parts(share: float, few: int, rest: int) -> None:
    if not few or not rest:
        raise HoldfastError(
            f"conformal: share={share} of {few + rest} examples is {few}, and both parts need some; give "
            f"more examples, or another share.",
            about=("share",),
        )


def check_unshared(clients: Clients, what: str) -> None:
    """Refuse clients that have the same rows: these would be counted twice, or be in both parts."""
    if len(np.unique(clients.order)) < len(clients.order):
        raise HoldfastError(
            f"conformal.{what}: clients share examples (as those of hf.data.matched_test do), so that one "
            f"would count several times; divide the data set first, and give every client its own.",
            about=("calibration",),
        )
