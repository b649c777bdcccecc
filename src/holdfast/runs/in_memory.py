"""Results of `simulate` as a run folder: whatever reads folders reads them too, and comes to the same."""

import dataclasses
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, finalize

import tomlkit

from holdfast.core.wire import Wire
from holdfast.data.clients import Clients, count
from holdfast.data.held_out import matched_test
from holdfast.deploy.evaluation import HeldOut
from holdfast.deploy.federate import Elsewhere
from holdfast.engine.experiment import Experiment
from holdfast.engine.objective import adapts_by, averages_over
from holdfast.engine.role import role
from holdfast.engine.saving import Saving
from holdfast.engine.simulate import Run
from holdfast.errors import HoldfastError, brief
from holdfast.evaluate.evaluators import Personal, ServerModel
from holdfast.metrics import Metric
from holdfast.record.history import BOOKKEEPING
from holdfast.record.identity import describe, digest
from holdfast.runs.execute import split_of
from holdfast.runs.folder import RunFolder, SeedFolder, description
from holdfast.runs.one_run import write_results
from holdfast.sweeps.naming import folder_name

# One method with several seeds.
Methods = dict[str, tuple[Run, ...]]
# Checksums that tell one split of the data from another.
Split = tuple[str, ...]
_written: WeakKeyDictionary[Run, Path] = WeakKeyDictionary()
_told_apart: WeakKeyDictionary[Run, Split] = WeakKeyDictionary()
_NOTE = (
    "Made from results of hf.simulate: this says what was run, and cannot be run again by itself."
)


def by_label(runs: Mapping[str, Run | Sequence[Run]] | Iterable[Run], of: str) -> Methods:
    """Runs by the method they are of, each with a seed or a split of the data of its own.

    Without labels, those of one name are one method if nothing but seed and data tells them apart.
    """
    found: dict[str, list[Run]] = {}
    if isinstance(runs, Mapping):
        for label, given in runs.items():
            found[str(label)] = [given] if isinstance(given, Run) else list(given)
    else:
        for run in runs:
            found.setdefault(run.experiment.algorithm.name, []).append(run)
    for label, several in found.items():
        _check(label, several, of)
    return {label: tuple(several) for label, several in found.items()}


def _check(label: str, runs: list[Run], of: str) -> None:
    named = f'give them labels, {of}({{"one": run, "other": [run, run]}})'
    if not runs:
        raise HoldfastError(f"{of}: `{label}` has no runs; give at least one.", about=("runs",))
    if label in BOOKKEEPING or not folder_name(label):
        raise HoldfastError(f"{of}: a method called {label!r}; give it a name.", about=("runs",))
    for run in runs:
        if not len(run.history):
            raise HoldfastError(
                f"{of}: a run of `{label}` has no rounds; run at least one.", about=("runs",)
            )
        other = _difference(runs[0].experiment, run.experiment)
        if other is not None:
            raise HoldfastError(
                f"{of}: two runs are called `{label}` and differ in their {other}; {named}.",
                about=("runs",),
            )
    draws = [(run.experiment.seed, _data(run)) for run in runs]
    twice = next((draw for draw in draws if draws.count(draw) > 1), None)
    if twice is not None:
        raise HoldfastError(
            f"{of}: two runs of `{label}` have seed {twice[0]} and the same data; give each a seed of its "
            f"own, or {named}.",
            about=("runs",),
        )


def _data(run: Run) -> Split:
    """Which examples are trained on by whom, by whom which are tested on, and the test set as a whole."""
    given = run.experiment
    if run not in _told_apart:
        tests, _ = _tests(given)
        of = () if tests is None else (tests.contents, tests.examples)
        _told_apart[run] = tuple(map(digest, (given.clients.contents, *of)))
    return _told_apart[run]


def _splits(methods: Methods) -> dict[Split, int]:
    """Splits of the data by number, in the order of runs."""
    data = dict.fromkeys(_data(run) for runs in methods.values() for run in runs)
    return {key: number for number, key in enumerate(data)}


def _about_splits(splits: dict[Split, int], one: Run) -> dict[str, Any] | None:
    """What a folder says of several splits; None of a single one."""
    if len(splits) == 1:
        return None
    tests, _ = _tests(one.experiment)
    # Test rows that are drawn with the split, and not the same ones again.
    first, *others = (split[-1] for split in splits)
    own = tests is not None and first not in others
    trained = int(one.experiment.clients.sizes.sum())
    share = count(tests.examples) / max(1, trained) if own and tests is not None else None
    return {"numbers": list(splits.values()), "tested_per_trained": share}


def _difference(one: Experiment, other: Experiment) -> str | None:
    """What two experiments differ in, but for seed and data."""
    parts = {
        "algorithm": "algorithm",
        "model": "model",
        "local": "local training",
        "cohort": "cohort",
    }
    parts |= {"server": "server", "select": "select", "stop": "early stopping"}
    return next(
        (
            words
            for name, words in parts.items()
            if describe(getattr(one, name)) != describe(getattr(other, name))
        ),
        None,
    )


def metric_of(methods: Methods) -> str:
    """What is compared unless told: accuracy, or the first that was measured."""
    columns = dict.fromkeys(
        name for runs in methods.values() for run in runs for name in run.history.columns
    )
    known = [name for name in columns if name not in BOOKKEEPING]
    if not known:
        raise HoldfastError(
            "compare: the runs measured nothing; give simulate(evaluate=hf.evaluate.on(test)).",
            about=("runs",),
        )
    plain = "accuracy" if "accuracy" in known else known[0]
    roles = {role(run.simulation.setup) for runs in methods.values() for run in runs}
    # Whose clients use models of their own is judged by those, if they were measured.
    own = f"personal_{plain}"
    everywhere = all(own in run.history.columns for runs in methods.values() for run in runs)
    judged = roles & {"alone", "personal"} or any(map(_asks_personal, methods.values()))
    return own if everywhere and judged else plain


def _asks_personal(runs: tuple[Run, ...]) -> bool:
    """Whether a deployed experiment file says `personal`, by which its simulation is judged too."""
    asked = runs[0].experiment.evaluate
    several = asked if isinstance(asked, list | tuple) else [asked]
    return any(isinstance(one, HeldOut) and one.personal and one.server for one in several)


def write(methods: Methods, path: Path) -> RunFolder:
    """A folder as `holdfast run` would leave it."""
    first = {label: runs[0] for label, runs in methods.items()}
    one = next(iter(first.values()))
    folders = dict(zip(methods, _folders(methods), strict=True))
    metric, splits = metric_of(methods), _splits(methods)
    about = description(
        list(folders.items()),
        None,
        metric,
        greater_is_better=one.history.directions,
        adapt={
            label: adapts_by(run.experiment.algorithm, run.experiment.local)
            for label, run in first.items()
        },
        objectives={label: averages_over(run.simulation.setup) for label, run in first.items()},
        algorithms={label: run.experiment.algorithm.name for label, run in first.items()},
        roles={label: role(run.simulation.setup) for label, run in first.items()},
        splits=_about_splits(splits, one),
    )
    text = _experiment_file(methods, metric)
    folder = RunFolder.create(path, text, split_of(one.experiment.clients), about)
    for label, runs in methods.items():
        for run in runs:
            split = splits[_data(run)] if len(splits) > 1 else None
            files = folder.seed_folder(folders[label], run.experiment.seed, split)
            shutil.copytree(_files_of(run), files.path)
    return folder


def _files_of(run: Run) -> Path:
    """A run's own files, written once for as long as it is there: every client is asked for predictions."""
    if run not in _written:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
        finalize(run, shutil.rmtree, folder, ignore_errors=True)
        files = SeedFolder(folder / "files")
        clients = run.experiment.clients
        saving = None
        if isinstance(clients, Elsewhere):
            kept = run.kept, clients.columns
            saving = Saving(run.simulation, run.deployed, None, None, {}, *kept)
        write_results(run, files, clients, *_tests(run.experiment), saving)
        _written[run] = files.path
    return _written[run]


def _folders(labels: Iterable[str]) -> list[str]:
    """A folder for each label; labels that would share one get a number."""
    names: list[str] = []
    for label in labels:
        name = folder_name(label)
        taken = sum(other == name or other.startswith(f"{name}~") for other in names)
        names.append(f"{name}~{taken + 1}" if taken else name)
    return names


def _tests(given: Experiment) -> tuple[Clients | None, tuple[Metric, ...]]:
    """Every client's own test examples, and metrics of whole sets: as they were measured by, or of the test
    set some like its own."""
    if not given.clients.here:
        return None, ()
    several = given.evaluate if isinstance(given.evaluate, list | tuple) else [given.evaluate]
    # One with a name measures something else, such as validation examples.
    evaluators = [one for one in several if not getattr(one, "name", "")]
    for evaluator in evaluators:
        if isinstance(evaluator, Personal) and isinstance(evaluator.examples, Clients):
            return evaluator.examples, evaluator.metrics
    if given.clients.populations is not None:
        return None, ()
    for evaluator in evaluators:
        if isinstance(evaluator, ServerModel) and hasattr(evaluator.examples, "y"):
            return matched_test(evaluator.examples, given.clients), evaluator.metrics
    return None, ()


def _experiment_file(methods: Methods, metric: str) -> str:
    """What was run, by the keys of an experiment file."""
    runs = [run for several in methods.values() for run in several]
    given = runs[0].experiment
    file = tomlkit.document()
    file.add(tomlkit.comment(_NOTE))
    values: dict[str, Any] = {
        "rounds": max(run.state.round for run in runs),
        "seeds": list(dict.fromkeys(int(run.experiment.seed) for run in runs)),
        "metric": metric,
        "model": {"name": given.model.name},
        "algorithm": [_method(label, several[0]) for label, several in methods.items()],
    }
    if not isinstance(given.local, tuple | list):
        values["local"] = _settings(given.local)
    if given.cohort is not None:
        values["cohort"] = {"name": type(given.cohort).__name__.lower(), **_settings(given.cohort)}
    file.update(values)
    return tomlkit.dumps(file)


def _method(label: str, run: Run) -> dict[str, Any]:
    algorithm = run.experiment.algorithm
    about = {"name": algorithm.name, "label": label, **_settings(algorithm.rule)}
    if type(algorithm.wire) is not Wire:
        about["wire"] = brief(algorithm.wire)
    return about


def _settings(of: Any) -> dict[str, Any]:
    """Fields that are not as they would be unless given; what is no plain value in words."""
    if not dataclasses.is_dataclass(of):
        return {}
    found = {}
    for field in dataclasses.fields(of):
        value = getattr(of, field.name)
        if field.name.startswith("_") or value is None or value is field.default:
            continue
        plain = isinstance(value, bool | int | float | str)
        if not plain or value != field.default:
            found[field.name] = value if plain else brief(value)
    return found
