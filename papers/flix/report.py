"""Tables and figures of the two studies of logistic regression."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no window: figures go to files
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from papers.flix.curves import Curve
from papers.flix.logistic import DCGD, DIANA, GD, Found
from papers.mixed.report import markdown, save, write

RESULTS = Path(__file__).parent / "results"
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00")  # Okabe and Ito's
DASHES = ("-", "--", ":", "-.")
ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
LOWEST = 1e-13  # gaps below are rounding errors

Read = Callable[[Curve], np.ndarray]
Axis = tuple[str, Read]
ROUNDS: Axis = ("rounds", lambda c: c.rounds)
FLOATS: Axis = ("thousands of floats sent by a client", lambda c: c.floats / 1000)
GAP: Axis = ("objective gap", lambda c: c.gap)
DISTANCE: Axis = ("mean squared distance\nof deployed models", lambda c: c.distance)


def pick(found: Found, method: str, clients: int, data: str | None = None) -> list[Curve]:
    """The curves of one method on so many clients."""
    return [
        curve
        for curve in found.curves
        if curve.setting.method == method
        and curve.setting.clients == clients
        and data in (None, curve.setting.data)
    ]


def names(found: Found) -> list[str]:
    """The data sets, in the order they were run in."""
    return list(dict.fromkeys(curve.setting.data for curve in found.curves))


def _grid(found: Found, axes: Sequence[tuple[Axis, Axis]]) -> tuple[Figure, np.ndarray]:
    """One column of empty plots per data set, one row per pair of what to plot."""
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    columns = names(found)
    figure, plots = plt.subplots(
        len(axes),
        len(columns),
        figsize=(1.2 + 4.1 * len(columns), 0.8 + 2.9 * len(axes)),
        layout="constrained",
        squeeze=False,
    )
    for plot in plots.flat:
        plot.grid(alpha=0.25)
        plot.set_yscale("log")
    for row, (horizontal, vertical) in zip(plots, axes, strict=True):
        row[0].set_ylabel(vertical[0])
        for plot, name in zip(row, columns, strict=True):
            plot.set_xlabel(horizontal[0])
            # Communication differs by orders of magnitude.
            plot.set_xscale("log" if horizontal is FLOATS else "linear")
            plot.set_title(_title(found, name))
    return figure, plots


def _title(found: Found, name: str) -> str:
    return f"{name} (generated)" if name in found.generated else name


def _draw(plot: Axes, curve: Curve, axes: tuple[Axis, Axis], colour: str, dashes: str) -> None:
    (_, read_x), (_, read_y) = axes
    x, y = read_x(curve), read_y(curve)
    shown = (y > LOWEST) & ((x > 0) | (plot.get_xscale() == "linear"))
    plot.plot(x[shown], y[shown], color=colour, linestyle=dashes, linewidth=1.6)


def _legend(figure: Figure, entries: Iterable[tuple[str, str, str]]) -> None:
    """Below all plots: labels with their colour and dashes."""
    lines = [Line2D([], [], color=c, linestyle=d, label=label) for label, c, d in entries]
    figure.legend(
        handles=lines, loc="outside lower center", ncols=min(len(lines), 8), frameon=False
    )


def plot_mixtures(found: Found, folder: Path, name: str) -> None:
    """Gradient descent for several alphas (the paper's figure 2), and what theorem 2 allows."""
    axes = ((ROUNDS, GAP), (ROUNDS, DISTANCE))
    figure, plots = _grid(found, axes)
    alphas = found.study.alphas
    shades = [matplotlib.colormaps["viridis"](v) for v in np.linspace(0, 0.9, len(alphas))]
    colours = {a: matplotlib.colors.to_hex(s) for a, s in zip(alphas, shades, strict=True)}
    for column, data in enumerate(names(found)):
        curves = pick(found, GD, found.study.many, data)
        for curve in curves:
            for plot, pair in zip(plots[:, column], axes, strict=True):
                _draw(plot, curve, pair, colours[curve.setting.alpha], "-")
        worst = max(curves, key=lambda c: c.setting.alpha)
        bound = worst.promise.first_gap * (1 - worst.promise.rate) ** worst.rounds
        plots[0, column].plot(worst.rounds, bound, color="black", linestyle=":", linewidth=1.2)
    lines = [(f"{ALPHA} = {a:g}", colours[a], "-") for a in alphas]
    _legend(figure, [*lines, (f"theorem 2, {ALPHA} = {max(alphas):g}", "black", ":")])
    save(figure, folder, name)


def plot_compressed(found: Found, method: str, clients: int, folder: Path, name: str) -> None:
    """One compressed method against rounds and against communication; colours are k, dashes α.

    With whatever else ran on the same clients, in black: GD, or DIANA beside DCGD.
    """
    axes = ((ROUNDS, GAP), (FLOATS, GAP))
    figure, plots = _grid(found, axes)
    alphas = found.study.compressed_alphas
    dashes = dict(zip(alphas, DASHES, strict=False))
    other = DIANA if method == DCGD else GD
    for column, data in enumerate(names(found)):
        compressed = pick(found, method, clients, data)
        sizes = sorted({c.setting.k for c in compressed})
        colours = dict(zip(sizes, COLOURS, strict=False))
        beside = [c for c in pick(found, other, clients, data) if c.setting.alpha in dashes]
        for curve in (*beside, *compressed):
            own = curve.setting.method == method
            colour = colours[curve.setting.k] if own else "black"
            for plot, pair in zip(plots[:, column], axes, strict=True):
                _draw(plot, curve, pair, colour, dashes[curve.setting.alpha])
        plots[0, column].legend(
            handles=[
                *(Line2D([], [], color=colours[k], label=f"{method}, k = {k}") for k in sizes),
                *(Line2D([], [], color="black", label=label(c)) for c in beside[:1]),
            ],
            fontsize=8,
            frameon=False,
        )
    _legend(figure, [(f"{ALPHA} = {a:g}", "grey", dashes[a]) for a in alphas])
    save(figure, folder, name)


def label(curve: Curve) -> str:
    """A method in a legend."""
    return GD if curve.setting.method == GD else f"{curve.setting.method}, k = {curve.setting.k}"


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"


def count(value: float | None) -> str:
    """A whole number, or a dash."""
    return "-" if value is None or not math.isfinite(value) else f"{round(value):,}"


Column = tuple[str, Callable[[Curve], str]]
ALPHA_COLUMN: Column = (ALPHA, lambda c: f"{c.setting.alpha:g}")
PER_DIGIT: tuple[Column, ...] = (
    ("rounds per digit", lambda c: number(None if c.promise.limit else c.rounds_per_digit)),
    ("at most", lambda c: number(c.promise.rounds_per_digit)),
)


def _rounds_column(found: Found) -> Column:
    study = found.study
    goal = f"{study.accuracy:g} of the first gap" if study.relative else f"{study.accuracy:g}"
    return f"rounds to {goal}", lambda c: count(c.needed)


def _table(curves: Sequence[Curve], columns: Sequence[Column]) -> str:
    return markdown([head for head, _ in columns], [[f(c) for _, f in columns] for c in curves])


def mixtures_table(found: Found) -> str:
    """Rounds of gradient descent, measured and as theorems 1 and 2 bound them."""
    columns: list[Column] = [
        ("data", lambda c: c.setting.data),
        ALPHA_COLUMN,
        ("gap at x_avg", lambda c: number(c.gap[0])),
        ("at most (theorem 1)", lambda c: number(c.promise.first_gap)),
        _rounds_column(found),
        ("at most (theorem 2)", lambda c: count(c.promise.rounds)),
        *PER_DIGIT,
    ]
    return _table(pick(found, GD, found.study.many), columns)


def compressed_table(found: Found) -> str:
    """Every run with the alphas of the compressed methods: rounds, communication, where it ends."""

    def sent(curve: Curve, each: float) -> str:
        return count(None if curve.needed is None else curve.needed * each)

    columns: list[Column] = [
        ("data", lambda c: c.setting.data),
        ("clients", lambda c: f"{c.setting.clients}"),
        ("method", lambda c: c.setting.method),
        ("k", lambda c: f"{c.setting.k}"),
        ALPHA_COLUMN,
        _rounds_column(found),
        ("floats up", lambda c: sent(c, c.setting.k)),
        ("kilobits up", lambda c: sent(c, c.bits / 1000)),
        ("gap at x_avg", lambda c: f"{c.gap[0]:.1e}"),
        ("in the end", lambda c: f"{c.end:.1e}"),
        ("after", lambda c: f"{c.rounds[-1]}"),
    ]
    strongly: list[Column] = [("theory's limit", lambda c: number(c.promise.limit)), *PER_DIGIT]
    chosen = [c for c in found.curves if c.setting.alpha in found.study.compressed_alphas]
    return _table(chosen, [*columns, *strongly] if found.study.l2 else columns)


def problems_table(found: Found) -> str:
    """What the difficulty depends on."""
    rows = []
    for problem in found.problems:
        known, objectives = problem.constants, problem.objectives
        rows.append(
            (
                _title(found, problem.name),
                f"{len(problem.clients)}",
                f"{problem.size}",
                number(known.smoothness.mean()),
                number(known.smoothness.max()),
                number(known.spread(1.0)),
                f"{problem.optima.gradient_norms.max():.1e}",
                f"{problem.separable}",
                f"{max(o.steepness for o in objectives.values()):.0e}",
            )
        )
    head = [
        "data",
        "clients",
        "d",
        "mean L_i",
        "max L_i",
        "V",
        "largest ‖∇f_i(x_i)‖",
        "x_i without a mistake",
        "largest ‖∇f̃‖ at f̃*",
    ]
    return markdown(head, rows)


def present(found: Found, folder: Path, name: str) -> str:
    """Write tables and figures of a study; returns the Markdown."""
    study = found.study
    generated = ", ".join(found.generated)
    parts = [
        f"λ = {study.l2:g}. Constants of the problems, and how exactly they were solved beforehand:",
        problems_table(found),
    ]
    if generated:
        parts.insert(0, f"GENERATED STAND-INS, not the real data: {generated}.")
    if study.l2:
        plot_mixtures(found, folder, f"{name}-gd")
        parts += [f"Gradient descent from x_avg, {study.many} clients:", mixtures_table(found)]
    parts += [
        "All methods from x_avg (floats and kilobits: what one client sent from there on, bits with "
        "the places of the k numbers):",
        compressed_table(found),
    ]
    plot_compressed(found, DIANA, study.many, folder, f"{name}-diana")
    plot_compressed(found, DCGD, study.few, folder, f"{name}-dcgd")
    write(folder, name, *parts)
    return "\n\n".join(parts)
