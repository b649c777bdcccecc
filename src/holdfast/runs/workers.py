"""How many runs go side by side, and the processes for them, started before anything else takes long."""

import functools
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.file import ExperimentFile
from holdfast.errors import HoldfastError
from holdfast.jobs import machine
from holdfast.jobs.local import LocalExecutor

if TYPE_CHECKING:
    from holdfast.config.build import Study


def begun(
    file: ExperimentFile, asked: int | None, environment: Mapping[str, str], complete: int = 0
) -> LocalExecutor:
    """Workers for the runs of a file that was just read; they import and build while this process does.

    Must come before JAX is used: of several accelerators this process takes the first.

    Args:
        file: the experiment.
        asked: how many at once; unless given, as many as cores or accelerators, fewer where memory is short.
        environment: of the workers, over this process's own.
        complete: runs that need not be carried out.
    """
    places: list[str | None] = [*accelerators()] or [None] * machine.cores()
    most = len(places) if asked is None else asked
    count = max(1, min(most, _runs(file.values) - complete, machine.room_for_processes()))
    if count == 1:
        return LocalExecutor(1)
    own = [dict(environment) | _alone(places[k % len(places)]) for k in range(count)]
    if places[0] is not None:
        os.environ.update(_alone(places[0]))
    # Imported there, not here.
    return LocalExecutor(count, functools.partial(_prepare, file), own[1:])


def settle(executor: LocalExecutor, study: "Study", asked: int | None) -> None:
    """Now that the study is built: no workers where devices share rounds, nor more than memory is for."""
    devices = None if study.engine is None else study.engine.devices
    if devices is not None and devices > 1:
        if asked is not None and asked > 1:
            raise study.file.error(
                ("engine", "devices"),
                f"`devices` is {devices}, and --jobs {asked} gives every run a device of its own; leave one "
                f"of them out.",
            )
        executor.reduce(1)
    if asked is None and study.shares_rounds and not accelerators():
        executor.reduce(1)
    room = machine.room_for_processes(as_this_one=True)
    executor.reduce(max(1, min(study.runs, room, *study.most_at_once.values())))


def refuse_beside_processes(jobs: int | None, processes: int) -> None:
    """Refuse several runs at once where each is divided among processes."""
    if jobs is not None and jobs > 1 and processes > 1:
        raise HoldfastError(
            f"--jobs {jobs} (or HOLDFAST_JOBS) with --processes {processes}: a run that is divided "
            f"among processes takes all of them; give one or the other."
        )


def accelerators() -> list[str]:
    """What this machine calls its graphics cards, if JAX can use them; asked without starting JAX."""
    if not any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return []
    if "cpu" in os.environ.get("JAX_PLATFORMS", ""):
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").glob("nvidia*"))
    return sorted((match[1] for match in found if match), key=int)


def _alone(accelerator: str | None) -> dict[str, str]:
    """What a process must be told to have one accelerator, or one device of a CPU."""
    if accelerator is not None:
        return {"CUDA_VISIBLE_DEVICES": accelerator}
    return machine.one_device()


def _prepare(file: ExperimentFile) -> None:
    from holdfast.runs.one_run import prepare

    prepare(file)


def _runs(values: Mapping[str, Any]) -> int:
    """How many runs a file asks for, before it is checked; mistakes in it are somebody else's to tell."""
    partition, sweep = values.get("partition"), values.get("sweep")
    given = partition if isinstance(partition, dict) else {}
    found = max(1, _count(values.get("algorithm"))) * _count(values.get("seeds", 1))
    found *= _count(given.get("splits", given.get("repeats", 1)))
    for swept in (sweep if isinstance(sweep, dict) else {}).values():
        found *= _count(swept)
    return found


def _count(given: Any) -> int:
    if isinstance(given, list):
        return max(1, len(given))
    return max(1, given) if isinstance(given, int) else 1
