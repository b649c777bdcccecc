"""What a notebook shows of a run."""

import math
from collections.abc import Iterator

from jax import tree

from holdfast import markup
from holdfast.engine.experiment import Experiment
from holdfast.metrics import find
from holdfast.metrics.figures import digits_of_megabytes
from holdfast.record.history import BOOKKEEPING, History
from holdfast.record.state import RunState


def run_as_html(experiment: Experiment, state: RunState, ended: str | None) -> str:
    """What was run, what was measured first, at best and last, what it cost, and why it ended early."""
    history = state.history
    size = sum(leaf.size for leaf in tree.leaves(state.params))
    about = (
        f"round {state.round:,}, {len(experiment.clients):,} clients, {experiment.model.name} with "
        f"{size:,} parameters, seed {experiment.seed}"
    )
    rows = list(_measured(history))
    parts = [markup.table(["", "", "first", "best", "in round", "last"], rows)] if rows else []
    down, up, seconds = (
        sum(record.get(name, 0) for record in history)
        for name in ("bytes_down", "bytes_up", "seconds")
    )
    digits = digits_of_megabytes(max(down, up) / 1e6)
    cost = f"{down / 1e6:.{digits}f} MB down, {up / 1e6:.{digits}f} MB up, {seconds:.1f} s"
    left_out = sum(record.get("left_out", 0) for record in history)
    if left_out:
        cost += f"; {left_out} replies were not finite and left out"
    lines = [markup.line(line) for line in (cost, ended) if line]
    return markup.card(experiment.algorithm.name, about, *parts, *lines)


def _measured(history: History) -> Iterator[list[str | markup.Safe]]:
    """A row for each metric: how it went, and three of its values."""
    for name in history.columns:
        if name in BOOKKEEPING:
            continue
        found = [(r["round"], r[name]) for r in history if isinstance(r.get(name), int | float)]
        if not found:
            continue
        values = [float(value) for _, value in found]
        about = find(name, history.directions)
        finite = [(t, v) for t, v in found if math.isfinite(v)]
        best, when = "", ""
        if about is not None and finite:
            top = max if about.greater_is_better else min
            round_, value = top(finite, key=lambda pair: pair[1])
            best, when = _figure(value), str(round_)
        yield [name, markup.curve(values), _figure(values[0]), best, when, _figure(values[-1])]


def _figure(value: float) -> str:
    return f"{value:.4g}"
