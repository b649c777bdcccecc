"""Examples in batches of bounded size, of which all sets share a few shapes."""

from collections.abc import Iterator

import numpy as np
from jax import tree

from holdfast.data.clients import count
from holdfast.trees import Tree

_LARGEST_BATCH = 2048


def in_batches(examples: Tree) -> Iterator[tuple[np.ndarray, Tree]]:
    """Row numbers and examples of each batch; -1 where a row only fills it up."""
    n = count(examples)
    # Sizes are powers of two, padded with -1: clients of all sizes share a few programs.
    size = min(_LARGEST_BATCH, 1 << max(0, n - 1).bit_length())
    for begin in range(0, n, size):
        rows = np.arange(begin, begin + size)
        rows = np.where(rows < n, rows, -1)
        yield rows, tree.map(lambda a, r=rows: np.asarray(a)[np.maximum(r, 0)], examples)
