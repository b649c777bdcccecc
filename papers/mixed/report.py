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

from papers.mixed import common

RESULTS = Path(__file__).parent / "results"

# Okabe and Ito's palette, which colour-blind people can tell apart; dashes for what is no mixed method.
COLOURS = {
    common.FEDERATED: "#D55E00",
    common.CENTRAL: "#CC79A7",
    common.PARALLEL: "#E69F00",
    common.ONE_WAY: "#0072B2",
    common.TWO_WAY: "#009E73",
    common.SCAFFOLD_ONE_WAY: "#CC79A7",
    common.ORACLE: "#000000",
}
MARKERS = {
    common.PARALLEL: "o",
    common.ONE_WAY: "s",
    common.TWO_WAY: "^",
    common.SCAFFOLD_ONE_WAY: "D",
}
DASHED = {common.FEDERATED, common.CENTRAL, common.ORACLE}


def style_of(method: str) -> dict[str, Any]:
    """Colour and dashes of a method, the same in all figures."""
    return {
        "color": COLOURS.get(method, "#56B4E9"),
        "linestyle": "--" if method in DASHED else "-",
        "linewidth": 1.8,
    }


def panels(count: int, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A row of empty plots."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        1, count, figsize=(4.8 * count, height), layout="constrained", squeeze=False
    )
    for one in axes[0]:
        one.grid(alpha=0.25)
    return figure, list(axes[0])


def band(axes: Axes, rounds: np.ndarray, curves: np.ndarray, method: str) -> None:
    """The mean over seeds (first axis) and the range between the lowest and the highest."""
    axes.plot(rounds, curves.mean(0), label=method, **style_of(method))
    if len(curves) > 1:
        colour = style_of(method)["color"]
        axes.fill_between(rounds, curves.min(0), curves.max(0), color=colour, alpha=0.15, lw=0)


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


def sampled_dissimilarity(measured: dict[str, float], paper: tuple[float, float]) -> str:
    """Our column of the paper's table 4 beside its own."""
    rows = [
        ("max G̃²", f"{measured['G2']:.3g}", paper[0]),
        ("max B̃²", f"{measured['B2']:.3g}", paper[1]),
    ]
    return markdown(["rounds 10 to 100, one step a round", "here", "paper, table 4"], rows)
