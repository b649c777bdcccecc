"""Figures fit for a paper: one column wide unless told otherwise, 8 point type, fonts embedded."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import HoldfastError, file_errors_said
from holdfast.report import curves, fairness, palette
from holdfast.report.appearance import COLUMN, PLAIN, Appearance
from holdfast.report.splits import Split, splits
from holdfast.report.sweeps import Key, sweeps
from holdfast.runs.names import in_words
from holdfast.runs.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTS = 300  # per inch
_STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # as TrueType: publishers refuse type 3
    "xtick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 8,
    "ytick.major.width": 0.6,
}
_HEAT = ("#f3f6f9", "#0a4a7c")
_GREY = "#8a949f"
_MOST_NAMES = 30  # of classes written beside the picture
_TALL = 0.72  # height by width
_AXES = {"rounds": "round", "megabytes": "megabytes, down and up"}


@file_errors_said()
def write(results: Results, folder: Path, appearance: Appearance = PLAIN) -> list[Path]:
    """Save every figure as PDF and PNG; where they are."""
    drawn = figures(results, appearance)
    folder.mkdir(parents=True, exist_ok=True)
    with _style():
        return [path for name, figure in drawn.items() for path in _save(folder / name, figure)]


def figures(results: Results, appearance: Appearance = PLAIN) -> "dict[str, Figure]":
    """By name: the metric over rounds, megabytes and swept values, the clients' own results, the split."""
    with _style():
        return {name: _drawn(draw, appearance) for name, draw in _drawings(results, appearance)}


def _style() -> AbstractContextManager[None]:
    try:
        from matplotlib import rc_context
    except ImportError:
        raise HoldfastError(
            'report: figures need matplotlib; install it with `pip install "holdfast[figures]"`.'
        ) from None
    return rc_context(_STYLE)  # type: ignore[arg-type]  # its keys are literals


def _drawings(
    results: Results, appearance: Appearance
) -> list[tuple[str, Callable[["Figure"], None]]]:
    """Names, and how to draw them."""
    found: list[tuple[str, Callable[[Figure], None]]] = []
    for axis in _AXES:
        name = _file_name(f"{results.metric}-{axis}")
        found.append((name, partial(_draw_curves, results, axis, appearance)))
    for key in sweeps(results):
        name = _file_name(f"sweep-{key.name}")
        found.append((name, partial(_draw_sweep, results, key, appearance)))
    for metric in fairness.metrics(results)[:1]:
        name = _file_name(f"clients-{metric}")
        found.append((name, partial(_draw_clients, results, metric, appearance)))
    different = splits(results)
    for number, split in enumerate(different, 1):
        name = "split" if len(different) == 1 else f"split-{number}"
        found.append((name, partial(_draw_split, split)))
    return found


def _drawn(draw: Callable[["Figure"], None], appearance: Appearance) -> "Figure":
    from matplotlib.figure import Figure

    height = appearance.height or _TALL * appearance.width
    figure = Figure(figsize=(appearance.width, height), layout="constrained")
    draw(figure)
    return figure


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)


def _save(path: Path, figure: "Figure") -> list[Path]:
    pdf, png = (path.with_name(f"{path.name}.{ending}") for ending in ("pdf", "png"))
    # Without the time, the same results make the same file.
    figure.savefig(pdf, metadata={"CreationDate": None})
    figure.savefig(png, dpi=_DOTS)
    return [pdf, png]


def _look(number: int, points: int) -> dict[str, Any]:
    look = palette.look(number)
    return {
        "color": look.light,
        "linestyle": look.paper_line,
        "marker": look.paper_marker,
        # A few marks tell lines apart; staggered, they do not hide each other.
        "markevery": (number % 4 * points // 32, max(1, points // 8)),
        "markeredgewidth": 0,
    }


def _draw_curves(results: Results, axis: str, appearance: Appearance, figure: "Figure") -> None:
    axes = figure.subplots()
    lines = [] if results.target is None else [results.target]
    shown: list[curves.Curve] = []
    compete = not all(m.is_reference for m in results.methods)
    for number, method in enumerate(results.methods):
        curve = curves.curve(curves.measured(method), results.metric)
        if curve is None:
            continue
        look, name = _look(number, len(curve)), _as_is(appearance.method(method))
        if compete and method.is_reference:
            # Where it ended: rounds and bytes mean nothing there.
            ended = float(curve.mean[-1])
            lines.append(ended)
            colour = look["color"]
            axes.axhline(ended, color=colour, linewidth=1, linestyle=(0, (7, 2, 1, 2)), label=name)
            continue
        shown.append(curve)
        curve = curve.thinned()
        x = getattr(curve, axis)
        axes.plot(x, curve.mean, label=name, **look)
        if len(method.histories) > 1:
            low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
            axes.fill_between(x, low, high, color=look["color"], alpha=0.17, linewidth=0)
    if results.target is not None:
        axes.axhline(results.target, color=_GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(left=0)
    seen = appearance.range or curves.where_lines_differ(shown, lines, axis)
    if seen is not None:
        axes.set_ylim(seen)
    axes.set_xlabel(_AXES[axis])
    axes.set_ylabel(_as_is(appearance.metric(results.metric)))
    _name_methods(figure, axes)


def _draw_sweep(results: Results, key: Key, appearance: Appearance, figure: "Figure") -> None:
    axes = figure.subplots()
    for number, line in enumerate(key.lines):
        points = [(x, results.methods[i]) for x, i in zip(line.x, line.methods, strict=True)]
        final = [(x, method.last(results.metric)) for x, method in points if not method.failed]
        known = [(x, s.mean, s.deviation) for x, s in final if s.mean is not None]
        if known:
            look = _look(number, 1)
            x, mean, deviation = zip(*known, strict=True)
            axes.errorbar(
                x,
                mean,
                deviation,
                label=_as_is(appearance.label(line.label)),
                elinewidth=0.8,
                **look,
            )
    if key.scale != "category":
        axes.set_xscale(key.scale)
        axes.set_xticks(list(key.ticks), list(key.ticks.values()))
        axes.minorticks_off()
    axes.set_xlabel(_as_is(in_words(key.name)))
    axes.set_ylabel(_as_is(f"final {appearance.metric(results.metric)}"))
    _name_methods(figure, axes)


def _draw_clients(results: Results, metric: str, appearance: Appearance, figure: "Figure") -> None:
    axes = figure.subplots()
    axes.axvspan(0, 10, color=_GREY, alpha=0.18, linewidth=0)
    for number, method in enumerate(results.methods):
        found = fairness.distribution(method, metric)
        if found is not None:
            look = _look(number, len(found.shares))
            axes.plot(
                100 * found.shares, found.values, label=_as_is(appearance.method(method)), **look
            )
    axes.set_xlim(-1, 101)
    axes.set_xlabel("% of clients, from the worst served to the best")
    axes.set_ylabel(_as_is(f"client {appearance.metric(metric)}"))
    _name_methods(figure, axes)


def _name_methods(figure: "Figure", axes: "Axes") -> None:
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    room = figure.get_figwidth() / COLUMN
    columns = max(1, int(room * (3 if longest <= 12 else 2 if longest <= 24 else 1)))
    height = figure.get_figheight() + 0.16 * -(-len(labels) // columns)
    figure.set_figheight(height)  # names stand below, and take nothing from the picture
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        columnspacing=1.2,
        handlelength=2.4,
    )


def _as_is(text: str) -> str:
    """Without dollars meaning formulas."""
    return text.replace("$", r"\$")


def _draw_split(split: Split, figure: "Figure") -> None:
    if split.counts is None:
        _draw_sizes(split, figure)
        return
    from matplotlib.colors import LinearSegmentedColormap

    axes = figure.subplots()
    axes.grid(False)
    colours = LinearSegmentedColormap.from_list("examples", _HEAT)
    image = axes.imshow(split.counts, aspect="auto", cmap=colours, vmin=0, interpolation="nearest")
    axes.set_xticks([])
    axes.set_xlabel(f"{split.counts.shape[1]:,} clients, by their commonest class")
    if split.named and len(split.names) <= _MOST_NAMES:
        turned = 0 if sum(map(len, split.names)) <= 24 else 30
        names = [_as_is(name) for name in split.names]
        axes.set_xticks(
            np.arange(len(names)), names, rotation=turned, ha="right" if turned else "center"
        )
    axes.set_ylabel("class")
    if len(split.classes) <= _MOST_NAMES:
        every = 1 if len(split.classes) <= 12 else 2
        axes.set_yticks(np.arange(len(split.classes))[::every], split.classes[::every])
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=25)
    bar.set_label("examples")
    bar.outline.set_visible(False)


def _draw_sizes(split: Split, figure: "Figure") -> None:
    axes = figure.subplots()
    edges, numbers = split.histogram()
    axes.bar(edges[:-1], numbers, np.diff(edges), align="edge", color=_GREY, edgecolor="white")
    axes.set_xlabel("examples of a client")
    axes.set_ylabel("clients")
