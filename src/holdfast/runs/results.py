"""What runs achieved: histories by method and seed, and the papers' figures made from them."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError, did_you_mean, file_errors_said
from holdfast.metrics import Spread, find
from holdfast.metrics.metric import Declared, check_target
from holdfast.record.history import History
from holdfast.runs.folder import RunFolder, SeedFolder
from holdfast.runs.names import method_name
from holdfast.runs.predictions import Predictions

# Reported numbers of the FSL paper are means over a rolling window of so many rounds.
FSL_WINDOW = 10
# Ends of the scale on which federated methods stand.
REFERENCES = {"local_only": "alone", "centralised": "pooled"}


@dataclasses.dataclass(frozen=True)
class MethodResult:
    """One method: its histories, one per seed."""

    label: str
    histories: tuple[History, ...]
    clients: tuple[dict[str, Any], ...]  # every client's own result, one per complete seed
    complete: bool  # every seed reached its last round
    failed: bool = False  # a seed diverged
    of: str = ""  # of a point of a sweep: the method without its values
    swept: dict[str, Any] = dataclasses.field(default_factory=dict)  # and these values
    adapt: str = ""  # the local steps after which clients use their models, in words
    averages_over: str = ""  # what its objective is a mean over, if that is known
    role: str = "federated"  # or `alone`, `pooled` (the ends of a comparison) or `personal`
    files: tuple[SeedFolder, ...] = ()  # where each history is from
    algorithm: str = ""  # what the file calls it, whatever its label
    starts: tuple[
        dict[str, float], ...
    ] = ()  # what was measured before the first round, one per seed
    choices: tuple[dict[str, Any], ...] = ()  # `SeedFolder.chosen` of each seed

    @property
    def name(self) -> str:
        """Its label in words."""
        return method_name(self.label)

    @property
    def rounds(self) -> int:
        """Rounds run, of the seed that got least far."""
        return min(len(h) for h in self.histories)

    @property
    def is_reference(self) -> bool:
        """Whether it is an end of the comparison and no method to choose: alone, or with pooled data."""
        return self.role in ("alone", "pooled")

    @functools.cached_property
    def predictions(self) -> dict[tuple[int, int], Predictions]:
        """By split and seed what was predicted of every client's test rows, of runs that have ended."""
        found = {(f.split or 0, f.seed): f.predictions() for f in self.files}
        return {key: known for key, known in found.items() if known is not None}

    @functools.cached_property
    def masks(self) -> dict[str, list[int]]:
        """What `mask = "auto"` came to, in words, and with which seeds, of runs that have ended."""
        found: dict[str, list[int]] = {}
        for files in self.files:
            mask = files.mask()
            if mask is not None:
                found.setdefault(str(mask), []).append(files.seed)
        return found

    @property
    def splits(self) -> tuple[int, ...]:
        """The split of the data that each history is of; empty where there is one split."""
        found = tuple(f.split for f in self.files if f.split is not None)
        return found if len(found) == len(self.histories) else ()

    @property
    def state(self) -> str:
        """Empty for a method that is through, else `diverged` or `unfinished`."""
        return "" if self.complete else "diverged" if self.failed else "unfinished"

    @property
    def directions(self) -> Declared:
        """Whether greater is better, by the name of a metric, where a folder declares it."""
        return self.histories[0].directions

    @property
    def kept_rounds(self) -> tuple[int | None, ...]:
        """The round that each seed's results are of, where early stopping kept another than the last."""
        return tuple(
            about["kept_round"] if about and about["kept_round"] < about["last_round"] else None
            for about in self._chosen
        )

    @property
    def best_rounds(self) -> tuple[int | None, ...]:
        """The best round of each seed by the metric of early stopping; None without."""
        return tuple(about.get("best_round") for about in self._chosen)

    @property
    def stopped(self) -> tuple[str | None, ...]:
        """Why each seed ended early; None if it did not."""
        return tuple(about.get("stopped") for about in self._chosen)

    @property
    def chosen_by(self) -> str | None:
        """The metric of early stopping; None without."""
        return next((about["metric"] for about in self._chosen if about), None)

    @property
    def _chosen(self) -> tuple[dict[str, Any], ...]:
        """What early stopping said of each seed; empty for those it said nothing of."""
        return self.choices or ({},) * len(self.histories)

    def last(self, metric: str, window: int = 1) -> Spread:
        """The metric when it was last measured, or its mean over the last evaluations; of the round that is
        kept, if that is another."""
        pairs = zip(self.histories, self.kept_rounds, strict=True)
        kept = [h if t is None else h.until(t) for h, t in pairs]
        known = [h.final(metric, window) if metric in h.columns else None for h in kept]
        return Spread(tuple(known), splits=self.splits)

    def rounds_to(self, target: float, metric: str, window: int = 1) -> Spread:
        """Rounds to the target."""
        run = [len(h) for h in self.histories]
        return self._to(self._reached(target, metric, window), run)

    def bytes_to(self, target: float, metric: str, window: int = 1) -> Spread:
        """Bytes in both directions up to the target."""
        return self._spent(("bytes_down", "bytes_up"), self._reached(target, metric, window))

    def models_to(self, target: float, metric: str, window: int = 1) -> Spread:
        """Models transmitted up to the target; none in folders that are older than the count."""
        return self._spent(("models",), self._reached(target, metric, window))

    def seconds_to(self, target: float, metric: str, window: int = 1) -> Spread:
        """Seconds up to the target."""
        return self._spent(("seconds",), self._reached(target, metric, window))

    def in_all(self, *names: str) -> Spread:
        """Sums of columns over all rounds run."""
        return self._spent(names, [_last_round(h) for h in self.histories])

    def average(self, name: str) -> Spread:
        """The mean of a column over the rounds that have it; none where no round has."""
        return Spread(
            tuple(float(np.nanmean(h[name])) if name in h.columns else None for h in self.histories)
        )

    def rise_time(self, metric: str, window: int = 1) -> Spread:
        """Rounds to 90 % of where each seed ended; none for a metric that is better low."""
        about = find(metric, self.directions)
        if about is None or not about.greater_is_better:
            return Spread((None,) * len(self.histories))
        return Spread(
            tuple(
                h.rise_time(metric, window=window) if metric in h.columns else None
                for h in self.histories
            )
        )

    def _reached(self, target: float, metric: str, window: int) -> list[int | None]:
        # A seed stopped before its first evaluation has measured nothing.
        return [
            h.rounds_to(target, metric, window=window) if metric in h.columns else None
            for h in self.histories
        ]

    def _spent(self, names: tuple[str, ...], until: Sequence[int | None]) -> Spread:
        pairs = zip(self.histories, until, strict=True)
        in_all = [h.spent(names, _last_round(h)) for h in self.histories]
        return self._to([h.spent(names, last) for h, last in pairs], in_all)

    def _to(self, values: Sequence[Any], in_all: Sequence[Any]) -> Spread:
        known = all(spent is not None for spent in in_all)
        return Spread(tuple(values), tuple(in_all) if known else ())


def _last_round(history: History) -> int:
    return int(history[-1]["round"])


@dataclasses.dataclass(frozen=True)
class Results:
    """What one or several run folders hold, and by what they are compared."""

    methods: tuple[MethodResult, ...]
    metric: str
    target: float | None
    folders: tuple[RunFolder, ...]
    window: int = 1  # evaluations whose mean must be at the target

    @property
    def directions(self) -> Declared:
        """Whether greater is better, by the name of a metric, where a folder declares it."""
        return self.methods[0].directions

    @property
    def goal(self) -> str:
        """What is to be reached, and how that is counted."""
        if self.target is None:
            return self.metric
        return f"{self.metric} {self.target:g} ({self.counting})"

    @property
    def counting(self) -> str:
        """Which round counts as the one that reached the target."""
        return (
            "first evaluation there" if self.window == 1 else f"mean of {self.window} evaluations"
        )

    def other_order(self, window: int = FSL_WINDOW) -> dict[str, Spread]:
        """Rounds to the target with another window, of methods that change places by it."""
        if self.target is None or max(self._evaluations) < window:
            return {}
        now, then = (
            [m.rounds_to(self.target, self.metric, w) for m in self.methods]
            for w in (self.window, window)
        )
        turned = {
            number
            for i, a in enumerate(now)
            for j, b in enumerate(now)
            if _before(a, b) and _before(then[j], then[i])
            for number in (i, j)
        }
        ordered = sorted(turned, key=lambda i: (then[i].mean is None, then[i].mean))
        return {self.methods[i].label: then[i] for i in ordered}

    @property
    def _evaluations(self) -> list[int]:
        """How often each seed of each method was measured."""
        return [
            sum(record.get(self.metric) is not None for record in history)
            for method in self.methods
            for history in method.histories
        ]

    def baseline(self, asked: str | None = None) -> MethodResult:
        """The method others are compared with: the one asked for, or the first that is no reference."""
        labels = [m.label for m in self.methods]
        if asked is None:
            return next((m for m in self.methods if not m.is_reference), self.methods[0])
        if asked not in labels:
            raise HoldfastError(f"no method `{asked}`; {did_you_mean(asked, labels)}")
        return self.methods[labels.index(asked)]


def _before(one: Spread, other: Spread) -> bool:
    """Whether every seed of one got there, in fewer rounds on average than the other at best."""
    least = other.mean if other.more_than is None else other.more_than
    return one.mean is not None and least is not None and one.mean < least


@file_errors_said()
def load(
    paths: Sequence[str | Path],
    target: float | None = None,
    metric: str | None = None,
    window: int | None = None,
) -> Results:
    """Read run folders; methods of the same name in several folders keep the folder's name.

    Args:
        paths: the folders.
        target: the value to reach; the first folder's unless given, for the metric it is meant for.
        metric: what is compared; the first folder's unless given.
        window: evaluations whose mean must be at the target; the first folder's unless given.
    """
    folders = [RunFolder.open(p) for p in paths]
    described = [f.description() for f in folders]
    labels = [m["label"] for d in described for m in d["methods"]]
    directions = _directions(folders, described)
    methods = []
    for folder, about in zip(folders, described, strict=True):
        for method in about["methods"]:
            label = method["label"]
            if labels.count(label) > 1:
                label = f"{label} ({folder.path.name})"
            found = _method(folder, label, method["folder"], directions)
            if found:
                known = {
                    k: method[k]
                    for k in ("adapt", "averages_over", "algorithm", "role")
                    if k in method
                }
                # Folders older than the field have the name in the label.
                called = method.get("algorithm") or method["label"].split(" ")[0]
                known.setdefault("role", REFERENCES.get(called, "federated"))
                found = dataclasses.replace(found, **known)
                methods.append(_as_point(found, method.get("point"), folder, len(folders) > 1))
    if not methods:
        raise HoldfastError(
            f"{paths[0]}: no method has run a round yet; go on with `holdfast resume {paths[0]}`."
        )
    own = described[0]
    # A target belongs to its metric: a loss is not at 0.95 when an accuracy is.
    if target is None and metric in (None, own["metric"]):
        target = own["target"]
    metric = metric or own["metric"]
    _check_metric(metric, methods)
    size = own.get("window", 1) if window is None else window
    loaded = Results(tuple(methods), metric, target, tuple(folders), size)
    _check_window(loaded)
    # Somebody's own accuracy may be in percent; then it is above 1 somewhere.
    if target is not None and not any(
        np.nanmax(h[metric].astype(float), initial=0) > 1
        for m in methods
        for h in m.histories
        if metric in h.columns
    ):
        check_target(metric, target, directions)
    return loaded


def _check_window(results: Results) -> None:
    most = max(results._evaluations)
    if not results.window <= max(most, 1):
        raise HoldfastError(
            f"window {results.window}: `{results.metric}` was measured {most} times at most, so no mean of "
            f"{results.window} evaluations is there; give a smaller one."
        )


def _method(
    folder: RunFolder, label: str, name: str, directions: dict[str, bool]
) -> MethodResult | None:
    histories = {s: s.history(directions) for s in folder.seeds(name)}
    seeds = [s for s, history in histories.items() if len(history)]
    if not seeds:
        return None
    return MethodResult(
        label=label,
        histories=tuple(histories[s] for s in seeds),
        clients=tuple(s.clients() for s in seeds if s.ended),
        complete=all(s.ended for s in seeds),
        failed=any((s.path / "failed.json").exists() for s in seeds),
        starts=tuple(s.start() for s in seeds),
        choices=tuple(s.chosen() for s in seeds),
        files=tuple(seeds),
    )


def _as_point(
    found: MethodResult, point: dict[str, Any] | None, folder: RunFolder, several: bool
) -> MethodResult:
    if point is None:
        return found
    of = f"{point['of']} ({folder.path.name})" if several else point["of"]
    return dataclasses.replace(found, of=of, swept=point["values"])


def _check_metric(metric: str, methods: list[MethodResult]) -> None:
    known = list(dict.fromkeys(c for m in methods for h in m.histories for c in h.columns))
    if metric not in known:
        raise HoldfastError(
            f"nothing called `{metric}` was measured; {did_you_mean(metric, known)}"
        )


def _directions(folders: list[RunFolder], described: list[dict[str, Any]]) -> dict[str, bool]:
    """What any of the folders declares, for all of them: one may be older than the declaration."""
    found: dict[str, bool] = {}
    for folder, about in zip(folders, described, strict=True):
        for name, up in about.get("greater_is_better", {}).items():
            if found.setdefault(name, up) != up:
                raise HoldfastError(
                    f"{folder.path}: `{name}` is better {'high' if up else 'low'}, and in another folder "
                    f"{'low' if up else 'high'}; compare them apart."
                )
    return found
