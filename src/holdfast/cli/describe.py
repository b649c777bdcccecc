"""What is about to run, before it does."""

import math
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from holdfast.cli.console import err, out, printable

if TYPE_CHECKING:
    from holdfast.config.build import Study


def describe(study: "Study") -> None:
    """What is about to run, in a few lines."""
    import jax

    from holdfast.core.keys import host_key
    from holdfast.data import split
    from holdfast.runs.compare import different_objectives

    shapes = jax.eval_shape(study.model.init, host_key(0), study.clients.examples)
    size = sum(int(leaf.size) for leaf in jax.tree.leaves(shapes))
    lines = Table.grid(padding=(0, 2))

    def add(title: str, text: str) -> None:
        lines.add_row(title, Text(printable(text)))  # names of the file, never markup

    add("data", f"{study.data_name}, {study.clients}")
    add("model", f"{study.model.name}, {size:,} parameters")
    names = ", ".join(dict.fromkeys(m.of for m in study.methods))
    seeds = f"{len(study.seeds)} seed{'s' * (len(study.seeds) > 1)}"
    add("methods", f"{names}; {study.rounds} rounds, {seeds} each")
    if study.splits:
        listed = ", ".join(map(str, study.splits))
        redrawn = "with test rows of their own" if study.tested_per_trained else "same test rows"
        add("splits", f"{listed}; {redrawn}; the first is shown")
    for steps in dict.fromkeys(m.adapt for m in study.methods if m.adapt):
        who = ", ".join(m.label for m in study.methods if m.adapt == steps)
        add("adapt", f"{who}: clients' own models after {steps} on their data")
    swept = [m for m in study.methods if m.swept.values]
    if swept:
        for of in dict.fromkeys(m.of for m in swept):
            points = [m.swept.values for m in swept if m.of == of]
            count = f"{len(points)} point{'s' * (len(points) > 1)}"
            add("sweep", f"{of}: {count}, {_ranges(points)}")
    if swept or study.splits:
        splits = f" x {len(study.splits)} splits" if study.splits else ""
        add("runs", f"{len(study.methods)} methods{splits} x {seeds} = {study.runs} runs")
    out.print(lines)
    several = different_objectives(study.objectives)
    if several is not None:
        err.print(f"[bold yellow]warning[/] {escape(several)}", highlight=False, soft_wrap=True)
    if study.has_labels:
        out.print(
            split.sketch(study.clients, first=8, label_names=study.label_names),
            markup=False,
            highlight=False,
        )


def _ranges(points: list[dict[str, Any]]) -> str:
    """What is tried of each key, such as `alpha 0.01, 0.1 x learning_rate 0.05, 0.1`."""
    from holdfast.sweeps.naming import brief, label

    tried = {key: list(dict.fromkeys(brief(p[key]) for p in points)) for key in points[0]}
    if len(points) < math.prod(map(len, tried.values())):  # paired
        return "; ".join(map(label, points))
    return " x ".join(f"{key} {', '.join(values)}" for key, values in tried.items())
