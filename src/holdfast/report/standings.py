"""Where each method stands: what it took to the target, where it ended, and what it spent."""

import dataclasses

from holdfast.metrics import Spread
from holdfast.report.appearance import PLAIN, Appearance
from holdfast.runs.results import MethodResult, Results


@dataclasses.dataclass(frozen=True)
class Standing:
    """One method's figures over seeds; those to the target have no values where there is no target."""

    label: str
    name: str  # what it is called
    is_reference: bool  # an end of the scale, which wins nothing
    state: str  # "", "unfinished" or "diverged"
    seeds: int
    rounds: Spread
    megabytes: Spread
    models: Spread
    seconds: Spread
    rise: Spread
    final: Spread
    megabytes_in_all: Spread
    seconds_in_all: Spread


def standings(results: Results, appearance: Appearance = PLAIN) -> list[Standing]:
    """In the order of the methods."""
    return [_standing(method, results, appearance) for method in results.methods]


def contestants(stands: list[Standing]) -> list[Standing]:
    """Those that are compared: all but the ends of the scale, or all if there is nobody else."""
    return [s for s in stands if not s.is_reference] or stands


def _standing(method: MethodResult, results: Results, appearance: Appearance) -> Standing:
    metric, target, window = results.metric, results.target, results.window
    none = Spread((None,) * len(method.histories))
    if target is None:
        to = dict.fromkeys(("rounds", "megabytes", "models", "seconds"), none)
    else:
        to = {
            "rounds": method.rounds_to(target, metric, window),
            "megabytes": method.bytes_to(target, metric, window).per(1e6),
            "models": method.models_to(target, metric, window),
            "seconds": method.seconds_to(target, metric, window),
        }
    return Standing(
        label=method.label,
        name=appearance.method(method),
        is_reference=method.is_reference,
        state=method.state,
        seeds=len(method.histories),
        rise=method.rise_time(metric, window),
        final=method.last(metric, window),
        megabytes_in_all=method.in_all("bytes_down", "bytes_up").per(1e6),
        seconds_in_all=method.in_all("seconds"),
        **to,
    )
