"""One method with many hyper-parameters and seeds: the points, checked, and their runs."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal, Unpack

import jax
import numpy as np

from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.engine.experiment import Experiment, Settings, described
from holdfast.engine.setup import checked
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.jobs.worker import settings as settings_of_jax
from holdfast.models.model import Model
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.progress import of_sweep
from holdfast.sweeps import side_by_side
from holdfast.sweeps.grid import WAYS, combinations
from holdfast.sweeps.naming import Point, folder_name, label
from holdfast.sweeps.paths import at_point
from holdfast.sweeps.results import Sweep
from holdfast.sweeps.run import own_folder
from holdfast.sweeps.side_by_side import OnRound, SideBySide
from holdfast.sweeps.work import Work


def sweep(
    algorithm: Algorithm | Experiment,
    model: Model | None = None,
    clients: Clients | None = None,
    local: Local | None = None,
    rounds: int | None = None,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] = 1,
    how: Literal["grid", "paired"] = "grid",
    checkpoint: Checkpoint | str | Path | None = None,
    progress: bool | None = None,
    on_round: OnRound | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    **settings: Unpack[Settings],
) -> Sweep:
    """One method with many hyper-parameters and seeds, in one compiled program and on all cores.

    Every run has the bits it has alone with `simulate`, wherever it is carried out. Points are built
    and checked before the first round. Numbers compile nothing anew; what is part of the program's
    structure (`epochs`, `batch_size`, a number where there was None) is compiled once per value. A
    point that diverges does not stop the others.

    Args:
        algorithm: the method, or an `hf.Experiment`; what `over` does not name stays as it is.
        model: the model.
        clients: the population.
        local: what a client does in a round; `over` may name its fields too.
        rounds: number of rounds of every run.
        over: values to try, by where they stand: `"rule.alpha"`, `"rule.rules.1.alpha"` in a chain,
            `"wire.compressor.k"`, `"local.learning_rate"`, `"server.local.learning_rate"`.
        seeds: so many, from 0 on, or a list of them.
        how: `"grid"` tries every combination, `"paired"` the first values of all, the second, ...
        checkpoint: a folder; every point and seed has one of its own in it, and goes on from it.
        progress: a progress bar; unless given, only where someone is looking.
        on_round: called with state, point and seed after every round, in this process and one call at a
            time; of runs side by side as their rounds end, and on an executor of yours once per run, with
            its last state.
        jobs: how many runs at once on this machine, one core each. Unless given as many as there are
            cores, as soon as it is seen that all runs will take long enough for it, and one after another
            where rounds are so large that devices share them. 1: all in this process.
        executor: where runs are carried out instead: any `concurrent.futures.Executor`, such as
            dask.distributed's `client.get_executor()` or one of submitit's. A run whose worker dies is
            submitted again, and goes on from its `checkpoint` if there is one.
        settings: `cohort`, `evaluate`, `params`, `engine`, `server`, `select`, `storage` and `stop` of
            `hf.Experiment`.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients, apart = hf.data.set_apart(hf.data.partition.iid(train, clients=4))
        >>> found = hf.sweep(
        ...     hf.algorithms.fedprox(mu=0.1),
        ...     hf.models.softmax_regression(classes=10),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, steps=2, batch_size=8),
        ...     rounds=2,
        ...     over={"rule.mu": [0.0, 0.1], "local.learning_rate": [0.01, 0.5]},
        ...     evaluate=hf.evaluate.on(apart.pooled()[0], name="validation"),
        ... )
        >>> len(found), found.best()["local.learning_rate"]
        (4, 0.5)
    """
    own = (
        "rounds",
        "over",
        "seeds",
        "how",
        "checkpoint",
        "progress",
        "on_round",
        "jobs",
        "executor",
    )
    if "seed" in settings:
        raise HoldfastError("sweep: `seed` is given; give seeds=, how many or a list of them.")
    given = described("sweep", algorithm, model, clients, local, settings, own)
    if not isinstance(rounds, int | np.integer) or rounds < 0:
        raise HoldfastError(f"sweep: rounds={rounds!r}; give a whole number of at least 0.")
    chosen = _seeds(seeds)
    if isinstance(algorithm, Experiment) and algorithm.seed not in chosen:
        raise HoldfastError(
            f"sweep: the experiment has seed {algorithm.seed}, and seeds are {list(chosen)}; give "
            f"seeds=[{algorithm.seed}, ...], or an experiment with one of them."
        )
    points = _points(over or {}, how)
    store = Checkpoint(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
    swept: list[list[Experiment]] = []
    for point in points:
        with _said_of(point):
            changed = at_point(given, point)
            swept.append([dataclasses.replace(changed, seed=seed) for seed in chosen])
    for point, experiments in zip(points, swept, strict=True):
        with _said_of(point):
            _check(experiments, [own_folder(store, point, seed) for seed in chosen])
    count = side_by_side.check(jobs, executor, [experiments[0] for experiments in swept])
    work = Work(
        dataclasses.replace(given),
        tuple(points),
        chosen,
        int(rounds),
        store,
        on_round is not None,
        settings_of_jax(),
        made=swept,
    )
    with of_sweep(given.algorithm.name, len(work), rounds, progress) as bar:
        runs = SideBySide(work, bar, on_round)
        results = runs.here(count) if executor is None else runs.on(executor)
    structure = jax.tree.structure(checked(swept[0][0]).params)
    found = [
        results[number].swept(work.place(number)[0], work.of(number), structure)
        for number in range(len(work))
    ]
    each = len(chosen)
    rows = tuple(tuple(found[i : i + each]) for i in range(0, len(found), each))
    return Sweep(given.algorithm.name, tuple(points), chosen, rows)


def _seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    chosen = tuple(range(given)) if whole else given  # type: ignore[arg-type]
    if isinstance(chosen, str) or not isinstance(chosen, Sequence | np.ndarray) or not len(chosen):
        raise HoldfastError(
            f"sweep: seeds={given!r}; give how many, at least 1, or a list of them."
        )
    for seed in chosen:
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
            raise HoldfastError(f"sweep: seed {seed!r}; give whole numbers in 0..{2**31 - 1}.")
    seeds = tuple(int(seed) for seed in chosen)
    if len(set(seeds)) != len(seeds):
        raise HoldfastError(f"sweep: seeds={list(seeds)}; give each once.")
    return seeds


def _points(over: Mapping[str, Sequence[Any]], how: str) -> list[Point]:
    if how not in WAYS:
        raise HoldfastError(f"sweep: how={how!r}; {did_you_mean(str(how), WAYS)}")
    if not isinstance(over, Mapping) or not over:
        raise HoldfastError(
            'sweep: over names nothing; give values by path, such as {"local.learning_rate": [0.05, 0.1]}.'
        )
    for path, values in over.items():
        several = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
        if not several or not len(values):
            raise HoldfastError(
                f"sweep: `{path}` is {values!r}; give a list of values to try, such as [0.01, 0.1]."
            )
    lengths = {path: len(values) for path, values in over.items()}
    if how == "paired" and len(set(lengths.values())) > 1:
        numbers_of = ", ".join(f"{n} of `{path}`" for path, n in lengths.items())
        raise HoldfastError(f"sweep: paired values are {numbers_of}; give as many of each.")
    points = [
        dict(zip(over, map(_plain, values), strict=True))
        for values in combinations(list(over.values()), how)
    ]
    folders = [folder_name(label(point)) for point in points]
    for i, folder in enumerate(folders):
        if folders.index(folder) != i:
            raise HoldfastError(
                f"sweep: the point {label(points[i])} is there twice; give each value once."
            )
    return points


def _plain(value: Any) -> Any:
    """A number of numpy as Python's, so that points print and compare as they were written."""
    return value.item() if isinstance(value, np.generic) else value


def _check(experiments: Sequence[Experiment], stores: Sequence[Checkpoint | None]) -> None:
    """Put a point together once, and look whether its saves are its own."""
    checked(experiments[0])
    for experiment, store in zip(experiments, stores, strict=True):
        if store is not None and store.files():
            store.refuse_another(checked(experiment).identity())


@contextlib.contextmanager
def _said_of(point: Point) -> Iterator[None]:
    """A message of the library, with the point it is about."""
    try:
        yield
    except HoldfastError as error:
        message = str(error)
        about = "" if message.startswith("sweep: ") else f"sweep, {label(point)}: "
        raise HoldfastError(about + message, about=error.about) from None
