"""What runs achieved: histories by method and seed, and the papers' figures made from them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics import Spread
from holdfast.metrics.metric import Declared
from holdfast.record.history import History
from holdfast.runs.folder import RunFolder


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

    @property
    def state(self) -> str:
        """Empty for a method that is through, else `diverged` or `unfinished`."""
        return "" if self.complete else "diverged" if self.failed else "unfinished"

    @property
    def directions(self) -> Declared:
        """Whether greater is better, by the name of a metric, where a folder declares it."""
        return self.histories[0].directions

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
    values = [record[metric] for record in history if record.get(metric) is not None]
    return float(values[-1]) if values else None


@dataclasses.dataclass(frozen=True)
class Results:
    """What one or several run folders hold, and by what they are compared."""

    methods: tuple[MethodResult, ...]
    metric: str
    target: float | None
    folders: tuple[RunFolder, ...]

    @property
    def directions(self) -> Declared:
        """Whether greater is better, by the name of a metric, where a folder declares it."""
        return self.methods[0].directions

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
    directions = _directions(folders, described)
    methods = []
    for folder, about in zip(folders, described, strict=True):
        for method in about["methods"]:
            label = method["label"]
            if labels.count(label) > 1:
                label = f"{label} ({folder.path.name})"
            found = _method(folder, label, method["folder"], directions)
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
