"""A word where the model moves as it never did before, in runs in which nothing bounds a reply."""

import collections
import logging
import math

import jax
import numpy as np
from jax import tree

from holdfast.trees import Tree

log = logging.getLogger("holdfast")

# Numbers of an array that are looked at, evenly over it. All of ten million took a sixth of such a round.
_LOOKED = 1 << 16
# How many times as far as in a usual round of late, and of how many rounds at least.
_FAR, _ROUNDS, _LATE = 100.0, 5, 10


def moved(before: Tree, after: Tree) -> float:
    """How far a model is from another, of large arrays by a part of their numbers."""
    total = 0.0
    for p, q in zip(tree.leaves(before), tree.leaves(after), strict=True):
        flat = [np.asarray(a).reshape(-1) for a in (p, q)]
        step = -(-flat[0].size // _LOOKED) or 1
        a, b = (part[::step].astype(np.float64) for part in flat)
        total += step * float(np.vdot(b - a, b - a))
    return math.sqrt(total) if math.isfinite(total) else math.inf


class Jumps:
    """Looks at the model alone, on the host and beside the round's program: no run changes by a bit.

    On an accelerator it is silent, since the model would have to be fetched.
    """

    def __init__(self) -> None:
        self._late: collections.deque[float] = collections.deque(maxlen=_LATE)
        self._said = jax.default_backend() != "cpu"

    def look(self, round: int, before: Tree, after: Tree) -> None:
        """After a round; says something once a run."""
        if self._said:
            return
        way = moved(before, after)
        usual = float(np.median(self._late)) if len(self._late) >= _ROUNDS else math.inf
        if way > _FAR * usual:
            self._said = True
            log.warning(
                "round %d: the model moved %s times as far as in a usual round before. One reply alone may "
                "have done that; aggregate=hf.aggregates.NormBounded() bounds them all and says whose.",
                round,
                f"{way / usual:.3g}" if usual else "infinitely many",
            )
        self._late.append(way)
