"""The table of a comparison: rounds, bytes and seconds to a target, as the papers print it."""

from rich import box
from rich.table import Table

from holdfast.metrics import Spread
from holdfast.metrics.figures import digits_of_megabytes, in_figures, saving
from holdfast.runs.results import MethodResult, Results


def table(results: Results, baseline: str | None = None) -> Table:
    """One row per method."""
    metric, target = results.metric, results.target
    against = results.baseline(baseline)
    goal = f" by {metric}" if target is None else f" to {metric} {target:g}"
    count = len(results.methods)
    title = f"{count} method{'s' * (count > 1)}{goal}"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    shown.add_column("method", min_width=12, overflow="fold")
    columns = ["rounds", "saving", "MB", "saving", "seconds"] if target is not None else ["MB"]
    for name in (*columns, "final"):
        shown.add_column(name, justify="right", no_wrap=True)
    for method in results.methods:
        shown.add_row(*_row(method, against, metric, target))
    if target is not None:
        shown.caption = (
            f"Saving against {against.label}: how many times fewer. "
            f"> means not reached within the rounds run."
        )
        shown.caption_justify = "left"
    return shown


def _row(
    method: MethodResult, against: MethodResult, metric: str, target: float | None
) -> list[str]:
    total = sum(h["bytes_down"].sum() + h["bytes_up"].sum() for h in method.histories)
    total /= len(method.histories) * 1e6
    name = f"{method.label} ({method.state})" if method.state else method.label
    final = _figures(method.last(metric), 3)
    digits = digits_of_megabytes(total)
    if target is None:
        return [name, f"{total:.{digits}f}", final]
    rounds, bytes_ = method.rounds_to(target, metric), method.bytes_to(target, metric)
    megabytes = Spread(tuple(None if v is None else v / 1e6 for v in bytes_.values))
    return [
        name,
        _figures(rounds, 0, f"> {method.rounds}"),
        saving(against.rounds_to(target, metric), rounds),
        _figures(megabytes, digits, f"> {total:.{digits}f}"),
        saving(against.bytes_to(target, metric), bytes_),
        _figures(method.seconds_to(target, metric), 1),
        final,
    ]


def _figures(spread: Spread, digits: int, otherwise: str = "-") -> str:
    # A terminal has no room for spaces in the middle of a number.
    return in_figures(spread, otherwise, digits, between="±")
