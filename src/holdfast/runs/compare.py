"""The table of a comparison: what it took to reach a target, as the papers print it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from holdfast.metrics import Spread
from holdfast.metrics.figures import digits_of_megabytes, in_figures, saving
from holdfast.runs.flags import flags
from holdfast.runs.results import MethodResult, Results

# Names of columns and cells, one row per method.
Column = tuple[str, list[str]]
# Characters of a label that a line has at least.
_NAME = 12


def table(results: Results, baseline: str | None = None, console: Console | None = None) -> Group:
    """One row per method, ends of the comparison last; where a line has no room for all columns, the rest
    in a second table. The columns come in the order of what matters, and every table names the methods."""
    against = results.baseline(baseline)
    # Stable: of each kind in the order of the file.
    order = sorted(range(len(results.methods)), key=lambda i: results.methods[i].is_reference)
    names = [named(results.methods[i]) for i in order]
    listed = [(name, [cells[i] for i in order]) for name, cells in columns(results, against)]
    contestants = sum(not m.is_reference for m in results.methods)
    count = len(results.methods)
    aim = "by" if results.target is None else "to"
    title = f"{count} method{'s' * (count > 1)} {aim} {results.goal}"
    parts: list[Any] = [Text(title, style="italic")]
    for few in _fitting(names, listed, console or Console()):
        parts.append(_table(names, few, contestants))
    parts += [Text(flag.text, style="bold") for flag in flags(results)]
    parts += [Text(line, style="dim italic") for line in notes(results, against)]
    return Group(*parts)


def named(method: MethodResult) -> str:
    """A method's label, and its state if it is not through."""
    return f"{method.label} ({method.state})" if method.state else method.label


def _table(names: Sequence[str], columns: Sequence[Column], contestants: int = 0) -> Table:
    shown = Table(box=box.SIMPLE_HEAD)
    shown.add_column("method", min_width=_NAME, overflow="fold")
    for name, cells in columns:
        # Rich would take from these what a line lacks; a figure cut short is another figure.
        widest = max(map(len, [name, *cells]))
        shown.add_column(Text(name), justify="right", no_wrap=True, min_width=widest)
    for row, (label, *cells) in enumerate(
        zip(names, *(cells for _, cells in columns), strict=True), 1
    ):
        shown.add_row(Text(label), *cells, end_section=row == contestants < len(names))
    return shown


def _fitting(
    names: Sequence[str], columns: list[Column], console: Console
) -> Iterator[list[Column]]:
    """Columns in as many tables as it takes for each to fit the terminal."""
    now: list[Column] = []
    # A table is never wider than where it is measured, and names are folded if they must be. A dumb
    # terminal is 80 wide whatever is asked for, unless its height is given too.
    anywhere, short = Console(width=10_000, height=25), [name[:_NAME] for name in names]
    for column in columns:
        whole = Measurement.get(anywhere, anywhere.options, _table(short, [*now, column])).maximum
        if now and whole > console.width:
            yield now
            now = []
        now.append(column)
    yield now


def columns(results: Results, against: MethodResult) -> Iterator[Column]:
    """Names of columns, and a cell for each method."""
    methods, metric, target, window = (
        results.methods,
        results.metric,
        results.target,
        results.window,
    )
    final = (
        "final",
        [in_figures(m.last(metric, window), precision=3, between="±") for m in methods],
    )
    total = [m.in_all("bytes_down", "bytes_up").per(1e6) for m in methods]
    if target is None:
        # The deviation is of no interest: it is how many rounds were run.
        yield "MB", [f"{s.mean:.{_digits(s)}f}" if s.mean else "0" for s in total]
        yield final
        yield from _over_splits(results)
    else:
        rounds = [m.rounds_to(target, metric, window) for m in methods]
        base = against.rounds_to(target, metric, window)
        yield "rounds", [_brief(s, 0) for s in rounds]
        yield "saving", _savings(base, rounds, methods)
        bytes_ = [m.bytes_to(target, metric, window).per(1e6) for m in methods]
        base = against.bytes_to(target, metric, window).per(1e6)
        yield "MB", [_spent(s, _digits(all_), all_) for s, all_ in zip(bytes_, total, strict=True)]
        yield "saving", _savings(base, bytes_, methods)
        yield final
        yield from _over_splits(results)
        models = [m.models_to(target, metric, window) for m in methods]
        if any(s.spent for s in models):
            pairs = zip(models, total, strict=True)
            yield "models", [_spent(s, 1, all_) for s, all_ in pairs]
        yield "seconds", [_brief(m.seconds_to(target, metric, window), 1) for m in methods]
    work = [m.average("mflop_per_client") for m in methods]
    if any(s.reached for s in work):
        yield "Mflop", [_brief(s, _digits(s)) for s in work]
    rise = [m.rise_time(metric, window) for m in methods]
    if any(s.reached for s in rise):
        yield "rise", [_brief(s, 0) for s in rise]


def _savings(base: Spread, own: Sequence[Spread], methods: Sequence[MethodResult]) -> list[str]:
    """How many times less; none for the ends of a comparison, which are no methods to choose."""
    pairs = zip(own, methods, strict=True)
    return ["-" if m.is_reference else saving(base, s) for s, m in pairs]


def _over_splits(results: Results) -> Iterator[Column]:
    """Deviations of the final figure over splits and over seeds, where there are several splits."""
    if not any(m.splits for m in results.methods):
        return
    finals = [m.last(results.metric, results.window) for m in results.methods]
    for name, values in (
        ("± splits", [s.over_splits for s in finals]),
        ("± seeds", [s.over_seeds for s in finals]),
    ):
        yield name, ["-" if v is None else f"{v:.3f}" for v in values]


def _digits(total: Spread) -> int:
    return digits_of_megabytes(total.mean or 0)


def _spent(spread: Spread, digits: int, in_all: Spread) -> str:
    """What it took in traffic; 0 where nothing travels at all."""
    return "0" if in_all.mean == 0 else _brief(spread, digits)


def _brief(spread: Spread, digits: int) -> str:
    # A terminal has no room for spaces in the middle of a number.
    return in_figures(spread, "-", digits, between="±")


def different_objectives(objectives: Mapping[str, str]) -> str | None:
    """Of methods and what they average over: a sentence if they do not all minimise the same mean."""
    kinds = dict.fromkeys(kind for kind in objectives.values() if kind)
    if len(kinds) < 2:
        return None
    told = "; ".join(
        f"over {kind}: {', '.join(name for name, own in objectives.items() if own == kind)}"
        for kind in kinds
    )
    return (
        f"Clients have unequal amounts of data, and the methods minimise different means of their losses "
        f"({told}); give all of them one weighting to compare methods and not objectives."
    )


def notes(results: Results, against: MethodResult) -> Iterator[str]:
    """What stands below the table: how its columns are counted, and what is said too boldly by it."""
    if any(m.average("mflop_per_client").reached for m in results.methods):
        yield "Mflop: millions of floating-point operations of a client in a round."
    several = different_objectives({m.label: m.averages_over for m in results.methods})
    if several is not None:
        yield several
    if results.target is not None:
        when = (
            "at the first evaluation there"
            if results.window == 1
            else f"when the mean of the last {results.window} evaluations is there"
        )
        yield (
            f"Counted {when}. Saving: how many times less than {against.label}. > and <: not "
            f"reached by every seed, a bound of the mean by the rounds run. Models: traffic "
            f"relative to FedAvg rounds of the same cohorts."
        )
        other = results.other_order() if results.window == 1 else {}
        if other:
            told = ", ".join(f"{label} {_brief(spread, 0)}" for label, spread in other.items())
            yield (
                f"By the mean of 10 evaluations (--window 10) the order is another: {told} rounds."
            )
    if any(m.splits for m in results.methods):
        yield (
            "± splits: deviation of the means of splits; ± seeds: between seeds of one split; beside a "
            "figure: between all runs."
        )
    ends = [m.label for m in results.methods if m.is_reference]
    if ends and len(ends) < len(results.methods):
        yield f"{', '.join(ends)}: ends of the comparison, which win and save nothing."
    for method in results.methods:
        if method.role == "alone" and any(
            0 in about.get("examples", []) for about in method.clients
        ):
            yield f"{method.label}: who trained nothing is judged by the model as it began."
    yield from _adapting(results)
    yield from _masking(results)
    yield from _choosing(results)
    if any(m.rise_time(results.metric, results.window).reached for m in results.methods):
        yield "Rise: rounds to 90 % of the method's own final value."


def _masking(results: Results) -> Iterator[str]:
    """Which layers were masked where the first round chose."""
    for method in results.methods:
        each = [
            f"{words} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(set(seeds))))})"
            for words, seeds in method.masks.items()
        ]
        if each:
            yield f"{method.label}: by the drift of the first round {'; '.join(each)}."


def _choosing(results: Results) -> Iterator[str]:
    """Which rounds were kept and why runs ended; and whether points of a sweep are told by test examples."""
    for method in results.methods:
        if not any(method.best_rounds):
            continue
        rounds = [str(t) for t in method.best_rounds if t is not None]
        of = f"round{'s' * (len(rounds) > 1)} {', '.join(rounds)}"
        kept = "kept" if any(method.kept_rounds) else "best"
        ended = sum(why is not None for why in method.stopped)
        early = f"; {ended} of {len(method.stopped)} runs ended early" if ended else ""
        yield f"{method.label}: {of} {kept}, by {method.chosen_by}{early}."
    known = any(
        name.startswith("validation_")
        for method in results.methods
        for history in method.histories
        for name in history.columns
    )
    if any(method.swept for method in results.methods) and not known:
        yield (
            f"Points of the sweep are told apart by {results.metric} of the test examples, which say too "
            f"much of the best one; validation = 0.1 in [evaluate] sets others apart to choose by."
        )


def _adapting(results: Results) -> Iterator[str]:
    """Who is judged by models that clients have adapted, and who is not although they would."""
    told: dict[str, list[str]] = {}
    for method in results.methods:
        if method.adapt:
            told.setdefault(method.adapt, []).append(method.label)
    judged = "personal_" in results.metric
    own = [m.label for m in results.methods if m.role in ("alone", "personal") and not m.adapt]
    if own and not judged:
        yield (
            f"{', '.join(own)}: {results.metric} is of the server's model, and clients use models of "
            f"their own (personal_{results.metric})."
        )
    for steps, labels in told.items():
        who = ", ".join(labels)
        yield (
            f"{who}: clients' own models are taken after {steps} on their own data."
            if judged
            else f"{who}: {results.metric} is of the server's model; what clients use is that after "
            f"{steps} on their own data (personal_{results.metric})."
        )


def records(results: Results, baseline: str | None = None) -> list[dict[str, Any]]:
    """Plain numbers, one dictionary per method; `_more_than` is a bound where not every seed got there."""
    metric, target, window = results.metric, results.target, results.window
    found = []
    for method in results.methods:
        figures = {"final": method.last(metric, window), "rise": method.rise_time(metric, window)}
        if target is not None:
            figures |= {
                "rounds": method.rounds_to(target, metric, window),
                "models": method.models_to(target, metric, window),
                "megabytes": method.bytes_to(target, metric, window).per(1e6),
                "seconds": method.seconds_to(target, metric, window),
            }
        row: dict[str, Any] = {
            "method": method.label,
            "role": method.role,
            "state": method.state,
            "metric": metric,
            "target": target,
            "window": window,
            "adapt": method.adapt,
            "runs": len(method.histories),
            "splits": max(len(set(method.splits)), 1),
            "seeds": len(method.histories) // max(len(set(method.splits)), 1),
        }
        for name, spread in figures.items():
            row |= {name: spread.mean, f"{name}_deviation": spread.deviation}
            if name == "final":
                row |= {
                    "final_over_splits": spread.over_splits,
                    "final_over_seeds": spread.over_seeds,
                }
            if name not in ("final", "rise"):
                row |= {f"{name}_more_than": spread.more_than, f"{name}_seeds": len(spread.reached)}
        if target is not None:
            base = results.baseline(baseline)
            row["saving"] = saving(base.rounds_to(target, metric, window), figures["rounds"])
            theirs = base.bytes_to(target, metric, window).per(1e6)
            row["saving_in_megabytes"] = saving(theirs, figures["megabytes"])
        found.append(row)
    return found
