"""The table of a comparison: rounds, bytes and seconds to a target, as the papers print it."""

from rich import box
from rich.table import Table

from holdfast.runs.results import MethodResult, Results, Spread


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
    name = method.label + (
        "" if method.complete else " (diverged)" if method.failed else " (unfinished)"
    )
    final = show(method.last(metric), 3)
    if target is None:
        return [name, f"{total:.{_digits(total)}f}", final]
    rounds, bytes_ = method.rounds_to(target, metric), method.bytes_to(target, metric)
    megabytes = Spread(tuple(None if v is None else v / 1e6 for v in bytes_.values))
    seconds = method.seconds_to(target, metric)
    return [
        name,
        show(rounds, 0, f"> {method.rounds}"),
        saving(against.rounds_to(target, metric), rounds),
        show(megabytes, _digits(total), f"> {total:.{_digits(total)}f}"),
        saving(against.bytes_to(target, metric), bytes_),
        show(seconds, 1, "-"),
        final,
    ]


def _digits(megabytes: float) -> int:
    """After the point, so that small models show something too."""
    return 1 if megabytes >= 1 else 4


def show(spread: Spread, digits: int, otherwise: str = "-") -> str:
    """A mean with its deviation, or how many seeds reached it."""
    if spread.mean is None:
        some = f" ({len(spread.reached)} of {len(spread.values)})" if spread.reached else ""
        return otherwise + some
    text = f"{spread.mean:.{digits}f}"
    return f"{text}±{spread.deviation:.{digits}f}" if len(spread.values) > 1 else text


def saving(theirs: Spread, mine: Spread) -> str:
    """How many times less than the baseline."""
    if theirs.mean is None or mine.mean is None or mine.mean == 0:
        return "-"
    return f"{theirs.mean / mine.mean:.2f}x"
