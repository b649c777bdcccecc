"""The keys of a FLIX method that are about what its paper proves."""

from typing import Any

from holdfast import flix
from holdfast.engine.experiment import Experiment
from holdfast.flix.start import check_by_theory

_KEYS = {"start_at": "average", "step_size": "theory"}


def asks_theory(table: dict[str, Any]) -> bool:
    """Whether an entry of `[[algorithm]]` has one of these keys."""
    return any(table.get(key) == value for key, value in _KEYS.items())


def by_theory(experiment: Experiment, table: dict[str, Any], solve: bool) -> Experiment:
    """The experiment as these keys have it; without `solve` it is only checked, and nothing looked for."""
    if not asks_theory(table):
        return experiment
    start, step = (table.get(key) == value for key, value in _KEYS.items())
    if not solve:
        check_by_theory(experiment, step)
        return experiment
    return flix.by_theory(experiment, start=start, step=step)
