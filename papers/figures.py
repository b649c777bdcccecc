"""Figures of studies: panels side by side, written to a file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def panels(path: Path, count: int, most: int = 3) -> Iterator[list[Any]]:
    """So many axes to draw into, at most so many beside each other; the picture is written at the end."""
    from matplotlib.figure import Figure

    across = max(1, min(count, most))
    down = -(-max(1, count) // across)
    drawn = Figure(figsize=(4.2 * across, 3.2 * down), layout="constrained")
    axes = list(drawn.subplots(down, across, squeeze=False).flat)
    yield axes[:count]
    for axis in axes[count:]:
        axis.remove()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=110)
