"""Interactive figures for a notebook, from the same curves, colours and marks as the page."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.diagnose.where import FirstLayer
from holdfast.engine.simulate import Run
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.report import curves, palette
from holdfast.runs import in_memory
from holdfast.runs.names import metric_name
from holdfast.runs.results import MethodResult

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

AXES = {"rounds": "round", "megabytes": "megabytes, down and up", "seconds": "seconds"}
_GREY = "#8a949f"


def plot(
    methods: Sequence[MethodResult], metric: str, x: str = "rounds", target: float | None = None
) -> "Figure":
    """A metric of each method, its mean over seeds with a band of one standard deviation."""
    if x not in AXES:
        raise HoldfastError(f"plot: x={x!r}; {did_you_mean(str(x), AXES)}", about=("x",))
    from plotly import graph_objects as plotly

    figure = plotly.Figure()
    tables = [curves.measured(method) for method in methods]
    known = list(dict.fromkeys(name for t in tables for name in curves.metrics([t], metric)))
    if metric not in known:
        raise HoldfastError(
            f"plot: nothing called `{metric}` was measured; {did_you_mean(metric, known)}",
            about=("metric",),
        )
    for number, (method, table) in enumerate(zip(methods, tables, strict=True)):
        curve = curves.curve(table, metric)
        if curve is None:
            continue
        for trace in _traces(method, curve.thinned(), number, x):
            figure.add_trace(trace)
    if target is not None:
        line = {"color": _GREY, "width": 1, "dash": "dash"}
        figure.add_hline(target, line=line, annotation_text=f"{target:g}")
    figure.update_layout(
        template="plotly_white",
        height=400,
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        hovermode="x unified",
        showlegend=len(methods) > 1,
    )
    figure.update_xaxes(title_text=AXES[x], rangemode="tozero")
    figure.update_yaxes(title_text=metric_name(metric))
    return figure


def plot_run(run: Run, metric: str | None = None, x: str = "rounds") -> "Figure":
    """The same of one run in memory."""
    name = run.experiment.algorithm.name
    metric = metric or in_memory.metric_of({name: (run,)})
    start = run.simulation.measure_start()
    return plot([MethodResult(name, (run.history,), (), True, starts=(start,))], metric, x)


def _traces(method: MethodResult, curve: curves.Curve, number: int, x: str) -> list[Any]:
    """A line, and below it a band where there are several seeds."""
    from plotly import graph_objects as plotly

    look, across = palette.look(number), getattr(curve, x)
    name = _as_text(method.name)
    line = plotly.Scatter(
        x=across,
        y=curve.mean,
        name=name,
        legendgroup=str(number),
        mode="lines+markers",
        line={"color": look.light, "dash": look.dash, "width": 2},
        # A few marks tell lines apart where colours do not.
        marker={"symbol": look.symbol, "size": 7, "maxdisplayed": 8},
    )
    if curve.seeds.max() < 2:
        return [line]
    band = plotly.Scatter(
        x=[*across, *across[::-1]],
        y=[*(curve.mean + curve.deviation), *(curve.mean - curve.deviation)[::-1]],
        fill="toself",
        fillcolor=_faint(look.light),
        line={"width": 0},
        hoverinfo="skip",
        legendgroup=str(number),
        showlegend=False,
    )
    return [band, line]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.17)"


def _as_text(label: str) -> str:
    """A label that plotly takes for no markup."""
    return label.replace("&", "&amp;").replace("<", "&lt;")


def plot_first_layer(found: FirstLayer) -> "Figure":
    """The metric by where variance reduction begins, above the drift diversity of the layers."""
    from plotly import graph_objects as plotly
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    names = [_as_text(row.layer or "none (FedAvg)") for row in found.rows]
    look, other = palette.look(0), palette.look(1)
    measured = [(n, row.final) for n, row in zip(names, found.rows, strict=True)]
    ended = [(n, final) for n, final in measured if final.mean is not None]
    line = plotly.Scatter(
        x=[name for name, _ in ended],
        y=[final.mean for _, final in ended],
        error_y={"type": "data", "array": [final.deviation for _, final in ended]},
        name=metric_name(found.metric),
        mode="lines+markers",
        line={"color": look.light, "width": 2},
        marker={"symbol": look.symbol, "size": 8},
    )
    figure.add_trace(line, row=1, col=1)
    chosen = {names[one.first]: found.rows[one.first].final.mean for one in found.suggested}
    marks = plotly.Scatter(
        x=list(chosen),
        y=list(chosen.values()),
        name="suggested by drift",
        mode="markers",
        marker={"symbol": "circle-open", "size": 18, "color": other.light, "line": {"width": 3}},
    )
    figure.add_trace(marks, row=1, col=1)
    diversity = found.diversity
    bars = plotly.Bar(
        x=[_as_text(name) for name in diversity],
        y=list(diversity.values()),
        name="drift diversity",
        marker={"color": _GREY},
    )
    figure.add_trace(bars, row=2, col=1)
    figure.update_layout(
        template="plotly_white",
        height=480,
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        legend={"orientation": "h", "y": 1.1},
    )
    # In the order of the model, whichever trace names a layer first.
    figure.update_xaxes(categoryorder="array", categoryarray=names)
    figure.update_xaxes(title_text="variance reduction from", row=2, col=1)
    figure.update_yaxes(title_text=metric_name(found.metric), row=1, col=1)
    figure.update_yaxes(title_text="drift diversity", rangemode="tozero", row=2, col=1)
    return figure
