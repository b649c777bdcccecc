"""What runs achieved: histories by method and seed, and the papers' figures made from them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.record.history import History
from holdfast.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure over seeds: its mean and standard deviation, over those that reached it."""

    values: tuple[float | None, ...]

    @property
    def reached(self) -> list[float]:
        """The seeds that have one."""
        return [v for v in self.values if v is not None]

    @property
    def mean(self) -> float | None:
        """Their mean, if every seed has one: a mean over the lucky ones would flatter."""
        return float(np.mean(self.reached)) if self.reached and self.all_reached else None

    @property
    def deviation(self) -> float:
        """Their standard deviation; 0 for a single seed."""
        return float(np.std(self.reached, ddof=1)) if len(self.reached) > 1 else 0.0

    @property
    def all_reached(self) -> bool:
        """Whether every seed has one."""
        return len(self.reached) == len(self.values)


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

    @property
    def rounds(self) -> int:
        """Rounds run, of the seed that got least far."""
        return min(len(h) for h in self.histories)

    def last(self, metric: str) -> Spread:
        """The metric when it was last measured."""
        return Spread(tuple(_last_measured(h, metric) for h in self.histories))

    def rounds_to(self, target: float, metric: str) -> Spread:
        """Rounds to the target."""
        return self._over_seeds(History.rounds_to, target, metric)

    def bytes_to(self, target: float, metric: str) -> Spread:
        """Bytes in both directions up to the target."""
        return self._over_seeds(History.bytes_to, target, metric)

    def seconds_to(self, target: float, metric: str) -> Spread:
        """Seconds up to the target."""
        return self._over_seeds(History.seconds_to, target, metric)

    def _over_seeds(self, figure: Callable[..., Any], target: float, metric: str) -> Spread:
        # A seed stopped before its first evaluation has measured nothing.
        known = (metric in history.columns for history in self.histories)
        pairs = zip(self.histories, known, strict=True)
        return Spread(tuple(figure(h, target, metric) if k else None for h, k in pairs))


def _last_measured(history: History, metric: str) -> float | None:
    values = [row[metric] for row in history if row.get(metric) is not None]
    return float(values[-1]) if values else None


@dataclasses.dataclass(frozen=True)
class Results:
    """What one or several run folders hold, and by what they are compared."""

    methods: tuple[MethodResult, ...]
    metric: str
    target: float | None
    folders: tuple[RunFolder, ...]

    def baseline(self, asked: str | None = None) -> MethodResult:
        """The method others are compared with: the one asked for, or the first."""
        labels = [m.label for m in self.methods]
        if asked is None:
            return self.methods[0]
        if asked not in labels:
            raise HoldfastError(f"no method `{asked}`; {did_you_mean(asked, labels)}")
        return self.methods[labels.index(asked)]


def load(
    paths: Sequence[str | Path], target: float | None = None, metric: str | None = None
) -> Results:
    """Read run folders; methods of the same name in several folders keep the folder's name."""
    folders = [RunFolder.open(p) for p in paths]
    described = [f.description() for f in folders]
    labels = [m["label"] for d in described for m in d["methods"]]
    methods = []
    for folder, about in zip(folders, described, strict=True):
        for method in about["methods"]:
            label = method["label"]
            if labels.count(label) > 1:
                label = f"{label} ({folder.path.name})"
            found = _method(folder, label, method["folder"])
            if found:
                methods.append(_as_point(found, method.get("point"), folder, len(folders) > 1))
    if not methods:
        raise HoldfastError(
            f"{paths[0]}: no method has run a round yet; go on with `holdfast resume {paths[0]}`."
        )
    metric = metric or described[0]["metric"]
    _check_metric(metric, methods)
    target = described[0]["target"] if target is None else target
    return Results(tuple(methods), metric, target, tuple(folders))


def _method(folder: RunFolder, label: str, name: str) -> MethodResult | None:
    histories = {s: s.history() for s in folder.seeds(name)}
    seeds = [s for s, history in histories.items() if len(history)]
    if not seeds:
        return None
    return MethodResult(
        label=label,
        histories=tuple(histories[s] for s in seeds),
        clients=tuple(s.clients() for s in seeds if s.complete),
        complete=all(s.complete for s in seeds),
        failed=any((s.path / "failed.json").exists() for s in seeds),
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
