"""Tables as Markdown, figures as PNG, in one style."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")  # no window: figures go to files
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def panels(count: int, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A row of empty plots."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        1, count, figsize=(4.8 * count, height), layout="constrained", squeeze=False
    )
    for one in axes[0]:
        one.grid(alpha=0.25)
    return figure, list(axes[0])


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a PNG and forget the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110)
    plt.close(figure)


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table, numbers on the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def write(folder: Path, name: str, *parts: str) -> None:
    """Tables and notes of one part, one below the other."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def spread(values: Any, digits: int = 4) -> str:
    """Mean over seeds, and the standard deviation where there are several."""
    values = np.asarray(values, float)
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {values.std(ddof=1):.{digits}f}"
