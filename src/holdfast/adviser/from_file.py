"""Advice on an experiment file, and a file with what was advised."""

import contextlib
import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from holdfast import algorithms
from holdfast.adviser.advice import Advice
from holdfast.adviser.advise import advise
from holdfast.adviser.budget import Budget
from holdfast.adviser.problem import SHARE
from holdfast.config.build import sections
from holdfast.config.file import ExperimentFile, KeyPath, locate
from holdfast.config.joined import Federation, federation, metric_names
from holdfast.config.making import find, located, make_local
from holdfast.config.population import load_dataset
from holdfast.config.schema import FileSchema
from holdfast.config.server import at_server
from holdfast.config.sweep import swept_methods
from holdfast.core.keys import host_key
from holdfast.core.local import Local
from holdfast.engine.server import Server
from holdfast.errors import HoldfastError
from holdfast.trees import Tree

# Keys that would change what methods are judged by, and what is so in a race.
_REFUSED: tuple[tuple[KeyPath, str], ...] = (
    (
        ("population",),
        "several populations have no one measure to rank methods by; ask for each on its own",
    ),
    (("select",), "`select` changes no result, only what travels; leave it out here"),
    (("window",), "a target is reached at the first evaluation there; leave out `window`"),
    (("evaluate", "patience"), "methods are judged by their last round; leave out `patience`"),
    (("evaluate", "keep"), "methods are judged by their last round; leave out `keep`"),
    (("evaluate", "choose_by"), "methods are judged by their last round; leave out `choose_by`"),
    (("evaluate", "adapt"), "local steps of clients' own are tried anyway; leave out `adapt`"),
    (("server", "data_sharing"), "no method is tried with shared data; leave out `data_sharing`"),
    (("partition", "repeats"), "advice is on one split of the data; leave out `repeats`"),
    (("partition", "splits"), "advice is on one split of the data; leave out `splits`"),
)


def without_methods(file: ExperimentFile) -> ExperimentFile:
    """The file with FedAvg alone, which is what a file without a method stands for."""
    values = {k: v for k, v in file.values.items() if k not in ("algorithm", "sweep")}
    return dataclasses.replace(file, values={**values, "algorithm": [{"name": "fedavg"}]})


class Asked(NamedTuple):
    """What a file says of a problem, whatever methods it names."""

    trained: Federation
    local: Local
    server: Server | None
    # Where all methods begin, if the server trains before; its seed is 0.
    params: Tree
    rounds: int
    target: float | None


def asked(file: ExperimentFile) -> Asked:
    """The problem of a file; refuses what a race would judge otherwise."""
    _refuse(file)
    plain = without_methods(file)
    given = sections(plain)
    trained = federation(plain, given)
    _check_metric(file, given, trained)
    (swept,) = swept_methods(plain, {}, given.algorithm)
    own = at_server(swept, algorithms.fedavg(), trained.server_data)
    params = None
    if own.pretraining is not None:
        params = own.pretraining.start(trained.model, 0)
    local = make_local(plain, ("local",), given.local)
    return Asked(trained, local, own.server, params, given.rounds, given.target)


def _refuse(file: ExperimentFile) -> None:
    for at, why in _REFUSED:
        if _written(file, at):
            raise file.error(at, f"{why}.")


def _check_metric(file: ExperimentFile, given: FileSchema, trained: Federation) -> None:
    """Refuse what methods are not ranked by."""
    shapes = jax.eval_shape(trained.model.init, host_key(0), trained.clients.examples)
    measured = metric_names(trained.model, shapes, trained.clients.examples)
    ranked = "accuracy" if "accuracy" in measured else "loss"
    # A target is counted by the server's model, quality by what clients would use.
    known = (None, ranked) if given.target is not None else (None, ranked, f"personal_{ranked}")
    if given.metric not in known:
        target = " until a target is reached" if given.target is not None else ""
        raise file.error(
            ("metric",),
            f"methods are ranked by {ranked} on held-out examples{target}, and `metric` is "
            f"{given.metric}; leave it out.",
        )


def _written(file: ExperimentFile, at: KeyPath) -> bool:
    found: Any = file.values
    for key in at:
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return found
    # A window of one evaluation is none, and one split is what advice is on.
    once = found == 1 and at in (("window",), ("partition", "repeats"))
    return not once and found not in (None, [])


def advise_file(
    file: ExperimentFile,
    budget: Budget,
    goal: str | None = None,
    methods: Sequence[str] | None = None,
    race: bool = True,
    folder: Path | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
) -> Advice:
    """Which method the data of an experiment file needs; its methods, if it has any, are not looked at."""
    # Before any data is read, which several populations have elsewhere.
    _refuse(file)
    plain, share = _held_out(file)
    found = asked(plain)
    if share is None and found.trained.validations is None:
        raise file.error(
            ("evaluate", "validation"), "no client has examples to judge by; give a larger share."
        )
    with located(plain, ()):
        return advise(
            found.trained.model,
            found.trained.clients,
            found.local,
            dataclasses.replace(budget, rounds=budget.rounds or found.rounds),
            goal=goal,  # type: ignore[arg-type]
            target=found.target,
            held_out=found.trained.validations if share is None else share,
            cohort=found.trained.cohort,
            server=found.server,
            params=found.params,
            methods=methods,
            race=race,
            folder=folder,
            jobs=jobs,
            progress=progress,
        )


def _held_out(file: ExperimentFile) -> tuple[ExperimentFile, float | None]:
    """The file, and the share of every client's examples to judge by; None where the data says which.

    A share is drawn by the race, several times. Rows that belong together, and those divided by time, are
    divided once, by the loader, which knows them.
    """
    given = sections(without_methods(file))
    dataset = load_dataset(file, ("data",), given.data)
    share = given.evaluate.validation
    if dataset.validation is not None:
        return file, None
    if not dataset.ordered:
        evaluate = {k: v for k, v in file.values.get("evaluate", {}).items() if k != "validation"}
        values = {k: v for k, v in file.values.items() if k != "evaluate"}
        values |= {"evaluate": evaluate} if evaluate else {}
        return dataclasses.replace(file, values=values), SHARE if share is None else share
    loader = find(file, "data", given.data["name"])
    if (
        share is None
        and "validation_share" in inspect.signature(loader).parameters
        and _natural(given)
    ):
        data = {**given.data, "validation_share": SHARE}
        divided = dataclasses.replace(file, values={**file.values, "data": data})
        # Not where the rows themselves say what they are for.
        with contextlib.suppress(HoldfastError):
            load_dataset(divided, ("data",), data)
            return divided, None
    # Refused in the words of the file's section.
    evaluate = {**file.values.get("evaluate", {}), "validation": share or SHARE}
    return dataclasses.replace(file, values={**file.values, "evaluate": evaluate}), None


def _natural(given: FileSchema) -> bool:
    """Whether the data says whose examples are, those set apart too."""
    return bool(given.partition["name"] == "natural") and "split" not in given.data


def advised_file(file: ExperimentFile, advice: Advice) -> str:
    """The text of the file with the advised method, FedAvg and the two ends instead of its own methods."""
    import tomlkit

    document = tomlkit.parse(file.as_used())
    document["rounds"] = advice.rounds
    for key in ("algorithm", "sweep"):
        document.pop(key, None)
    several = tomlkit.aot()
    for number, entry in enumerate(advice.entries):
        table = tomlkit.table()
        if number == 0:
            table.comment("advised")
        for name, value in entry.items():
            if isinstance(value, dict):
                inline = tomlkit.inline_table()
                inline.update(value)
                value = inline
            table.add(name, value)
        several.append(table)
    document.append("algorithm", several)
    # Of training alone, one of the ends, the server's model is as it began: there is nothing to calibrate.
    asked: Any = document.get("conformal")
    if asked is not None and asked.get("by", "server") == "server":
        asked["by"] = "each client"
        asked["by"].comment('was "server", which training alone has no model for')
    text = tomlkit.dumps(document)
    if not locate(text):
        raise HoldfastError("advise: the advised file came out empty.")
    return text
