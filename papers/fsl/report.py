"""Tables and figures of the study."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only: there may be no screen
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter, ScalarFormatter

from papers.fsl.curves import Curve
from papers.fsl.settings import ON_CLASSES, PLUS, Setting

LONG_NAMES = {
    "FL": "FL (FedAvg)",
    "DS": "DS (data sharing)",
    "FSL-p": "FSL-p (server as a client)",
    "FSL": "FSL (FedAvg+)",
}
# Okabe and Ito's palette, which colour-blind readers can tell apart; line styles differ too.
LOOKS: dict[str, dict[str, Any]] = {
    "FL": {"color": "#666666", "linestyle": "--"},
    "DS": {"color": "#E69F00", "linestyle": "-."},
    "FSL-p": {"color": "#009E73", "linestyle": (0, (4, 1, 1, 1, 1, 1))},
    "FSL": {"color": "#0072B2", "linestyle": "-", "linewidth": 2.2},
}
BEFORE, AFTER = LOOKS["FL"], LOOKS["FSL"]
PAPER = {  # its table I, EMNIST, Dirichlet(0.1): rounds to 80 % and to 82 %
    "FedAvg": (134, 238),
    "FedAvg+": (49, 91),
    "SCAFFOLD": (187, 248),
    "SCAFFOLD+": (38, 65),
    "FedDyn": (97, 168),
    "FedDyn+": (53, 88),
    "FedDC": (85, 119),
    "FedDC+": (47, 74),
}


LEGEND: dict[str, Any] = {"fontsize": 9, "columnspacing": 1.2, "handlelength": 2.4}


# Tables


def classes_table(own: Sequence[Curve], same: Sequence[Curve], setting: Setting) -> str:
    """Comparison 1: with each method's own step sizes, and with the same for all."""
    target = setting.targets[0]
    header = (
        "classes per client",
        "method",
        f"rounds to {percent(target)}",
        "final accuracy, %",
        "swing, %",
        f"rounds to {percent(target)}, same step sizes for all",
    )
    rows = [
        (
            group,
            LONG_NAMES[name],
            rounds_cell(mine, target),
            accuracy_cell(mine),
            swing_cell(mine),
            rounds_cell(pick(same, group, name), target),
        )
        for group in groups(own)
        for name in ON_CLASSES
        for mine in [pick(own, group, name)]
    ]
    return markdown(header, rows)


def wins(curves: Sequence[Curve], setting: Setting) -> str:
    """In how many seeds FSL reaches the target before FL, in words."""
    never = setting.rounds + 1
    target = setting.targets[0]
    counts = []
    for group in groups(curves):
        fl, fsl = (
            [c.rounds_to(target) or never for c in pick(curves, group, name)]
            for name in ("FL", "FSL")
        )
        fewer = sum(b < a for a, b in zip(fl, fsl, strict=True))
        counts.append(f"{fewer} of {len(fl)} at {group}")
    return f"FSL reached {percent(target)} in fewer rounds than FL in {', '.join(counts)}."


def gamma_table(curves: Sequence[Curve], setting: Setting) -> str:
    """Comparison 2."""
    target = setting.targets[0]
    header = (
        "clients' step size",
        "gamma",
        f"rounds to {percent(target)}",
        "final accuracy, %",
        "swing, %",
    )
    rows = [
        (
            group,
            name,
            rounds_cell(found, target),
            accuracy_cell(found),
            swing_cell(found),
        )
        for group in groups(curves)
        for name in methods(curves)
        for found in [pick(curves, group, name)]
    ]
    return markdown(header, rows)


def plus_table(own: Sequence[Curve], same: Sequence[Curve], setting: Setting) -> str:
    """Comparison 3, beside the paper's table I."""
    low, high = setting.targets
    (group,) = groups(own)
    header = (
        "method",
        f"rounds to {percent(low)}",
        f"rounds to {percent(high)}",
        "final accuracy, %",
        f"rounds to {percent(low)} / {percent(high)}, same step sizes for all",
        "paper, EMNIST: rounds to 80 % / 82 %",
    )
    rows = []
    for name in PLUS:
        mine, alike = pick(own, group, name), pick(same, group, name)
        rows.append(
            (
                name,
                rounds_cell(mine, low),
                rounds_cell(mine, high),
                accuracy_cell(mine),
                f"{mean_rounds(alike, low)} / {mean_rounds(alike, high)}",
                "{} / {}".format(*PAPER[name]),
            )
        )
    return markdown(header, rows)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)) + "\n"


def rounds_cell(curves: Sequence[Curve], target: float) -> str:
    """Mean over seeds, and from the least to the most."""
    found = [c.rounds_to(target) for c in curves]
    reached = [r for r in found if r is not None]
    never = f"> {len(curves[0].accuracy)}"
    if not reached:
        return never
    most = str(max(reached)) if len(reached) == len(found) else never
    return f"{mean_rounds(curves, target)} ({min(reached)} to {most})"


def mean_rounds(curves: Sequence[Curve], target: float) -> str:
    """Mean over seeds; a lower bound if some seed did not get there."""
    limit = len(curves[0].accuracy)
    found = [c.rounds_to(target) for c in curves]
    mean = float(np.mean([limit if r is None else r for r in found]))
    return f"{'> ' if None in found else ''}{mean:.0f}"


def accuracy_cell(curves: Sequence[Curve]) -> str:
    """Final accuracy: mean over seeds, and from the least to the most."""
    values = [100 * c.final for c in curves]
    return f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def swing_cell(curves: Sequence[Curve]) -> str:
    """Mean over seeds."""
    return f"{100 * np.mean([c.swing for c in curves]):.1f}"


def percent(share: float) -> str:
    """As in "90 %"."""
    return f"{100 * share:.0f} %"


def write_csv(path: Path, curves: dict[str, Sequence[Curve]], targets: Sequence[float]) -> None:
    """One line per run; `curves` by how step sizes were chosen."""
    reached = [f"rounds_to_{100 * target:.0f}" for target in targets]
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["step_sizes", "group", "method", "seed", *reached, "final", "swing"])
        for choice, runs in curves.items():
            for c in runs:
                rounds = [c.rounds_to(target) or "" for target in targets]
                numbers = (f"{c.final:.4f}", f"{c.swing:.4f}")
                out.writerow([choice, c.group, c.method, c.seed, *rounds, *numbers])


# Figures


def classes_figure(curves: Sequence[Curve], setting: Setting, alone: float) -> Figure:
    """Comparison 1: a panel for each number of classes per client."""
    shown = groups(curves)
    figure, panels = _panels(len(shown), columns=2)
    for panel, group in zip(panels, shown, strict=True):
        for name in ON_CLASSES:
            draw(panel, pick(curves, group, name), LONG_NAMES[name], LOOKS[name])
        _reference_lines(panel, setting.targets, alone)
        count = group.removeprefix("C = ")
        panel.set_title(f"{count} class{'' if count == '1' else 'es'} per client")
    _finish(figure, panels, setting.rounds, columns=4)
    return figure


def gamma_figure(curves: Sequence[Curve], setting: Setting, alone: float) -> Figure:
    """Comparison 2: a panel for each step size of the clients."""
    shown = groups(curves)
    figure, panels = _panels(len(shown), columns=2)
    names = methods(curves)
    constant = [name for name in names if name != "0" and "decaying" not in name]
    shades = plt.get_cmap("viridis_r")(np.linspace(0.1, 1.0, len(constant)))
    looks: dict[str, dict[str, Any]] = {
        name: {"color": shade} for name, shade in zip(constant, shades, strict=True)
    }
    looks["0"] = LOOKS["FL"]
    for panel, group in zip(panels, shown, strict=True):
        for name in names:
            look = looks.get(name, {"color": "#D55E00", "linestyle": ":", "linewidth": 2.2})
            draw(panel, pick(curves, group, name), rf"$\gamma$ = {name}", look, band=False)
        _reference_lines(panel, setting.targets, alone)
        panel.set_title(f"clients' step size {group}")
    _finish(figure, panels, setting.rounds, columns=7)
    return figure


def plus_figure(curves: Sequence[Curve], setting: Setting, alone: float) -> Figure:
    """Comparison 3: a panel for each baseline."""
    (group,) = groups(curves)
    baselines = PLUS[::2]
    figure, panels = _panels(len(baselines), columns=2)
    for panel, name in zip(panels, baselines, strict=True):
        draw(panel, pick(curves, group, name), "as published", BEFORE)
        draw(panel, pick(curves, group, f"{name}+"), "with server learning (+)", AFTER)
        _reference_lines(panel, setting.targets, alone)
        panel.set_title(f"{name} and {name}+")
    _finish(figure, panels, setting.rounds, columns=2)
    return figure


def draw(
    panel: Axes, curves: Sequence[Curve], label: str, look: dict[str, Any], band: bool = True
) -> None:
    """The median over seeds as a line (a seed may diverge), and from the least to the most as a band."""
    values = np.stack([c.smooth for c in curves])
    rounds = np.arange(1, values.shape[1] + 1)
    panel.plot(rounds, np.median(values, axis=0), label=label, **({"linewidth": 1.6} | look))
    if band:
        low, high = values.min(axis=0), values.max(axis=0)
        panel.fill_between(rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _panels(count: int, columns: int) -> tuple[Figure, list[Axes]]:
    rows = -(-count // columns)
    size = (4.6 * columns, 2.9 * rows + 0.6)
    figure, grid = plt.subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    panels = list(grid.flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def _reference_lines(panel: Axes, targets: Sequence[float], alone: float) -> None:
    for target in targets:
        panel.axhline(target, color="#BBBBBB", linewidth=0.8, zorder=0)
        _label(panel, target, f"target {percent(target)}", "#777777")
    panel.axhline(alone, color="#CC79A7", linewidth=1.2, linestyle=":", zorder=0)
    _label(panel, alone, "server's data alone", "#A0477F")


def _label(panel: Axes, height: float, text: str, color: str) -> None:
    """At the left end of a horizontal line, where curves have not yet come."""
    panel.annotate(
        text,
        (0.01, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 1),
        textcoords="offset points",
        va="bottom",
        fontsize=7.5,
        color=color,
    )


def _finish(figure: Figure, panels: Sequence[Axes], rounds: int, columns: int) -> None:
    for panel in panels:
        # Logarithmic, since methods differ by factors and most happens early.
        panel.set_xscale("log")
        panel.set_xlim(1, rounds)
        panel.set_xticks([t for t in (1, 2, 5, 10, 20, 50, 100, 200) if t <= rounds])
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_ylim(top=1.0)
        panel.spines[["top", "right"]].set_visible(False)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        place = panel.get_subplotspec()
        assert place is not None
        if place.is_first_col():
            panel.set_ylabel("test accuracy")
        if place.is_last_row():
            panel.set_xlabel("round")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, frameon=False, **LEGEND
    )


def save(figure: Figure, path: Path) -> None:
    """As PNG, without the date that would make every run differ."""
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


# Choosing from curves


def groups(curves: Sequence[Curve]) -> list[str]:
    """In order of appearance."""
    return list(dict.fromkeys(c.group for c in curves))


def methods(curves: Sequence[Curve]) -> list[str]:
    """In order of appearance."""
    return list(dict.fromkeys(c.method for c in curves))


def pick(curves: Sequence[Curve], group: str, method: str) -> list[Curve]:
    """One method's curves, a seed each."""
    return [c for c in curves if c.group == group and c.method == method]
