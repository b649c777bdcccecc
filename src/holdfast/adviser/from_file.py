"""Advice on an experiment file, and a file with what was advised."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.adviser.advice import Advice
from holdfast.adviser.advise import advise
from holdfast.adviser.budget import Budget
from holdfast.config.build import sections
from holdfast.config.file import ExperimentFile, locate
from holdfast.config.joined import federation
from holdfast.config.making import located, make_local
from holdfast.core.local import Local
from holdfast.engine.server import Server
from holdfast.errors import HoldfastError

_SHARE = 0.2


def without_methods(file: ExperimentFile) -> ExperimentFile:
    """The file with FedAvg alone, which is what a file without a method stands for."""
    values = {k: v for k, v in file.values.items() if k not in ("algorithm", "sweep")}
    return dataclasses.replace(file, values={**values, "algorithm": [{"name": "fedavg"}]})


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
    plain = without_methods(file)
    given = sections(plain)
    for section, why in (
        ("population", "several populations have no one measure to rank methods by"),
    ):
        if getattr(given, section):
            raise file.error((section,), f"{why}; ask for each population on its own.")
    if given.select:
        raise file.error(
            ("select",), "`select` changes no result, only what travels; leave it out here."
        )
    plain = _with_validation(plain, given)
    given = sections(plain)
    trained = federation(plain, given)
    local = make_local(plain, ("local",), given.local)
    server = _server(plain, given, trained.server_data, local)
    target = given.target
    if given.metric not in (None, "accuracy", "loss", "personal_accuracy", "personal_loss"):
        raise file.error(
            ("metric",),
            f"methods are ranked by accuracy or loss on held-out examples, and `metric` is {given.metric}; "
            f"leave it out.",
        )
    if trained.validations is None:
        raise file.error(
            ("evaluate", "validation"), "no client has examples to judge by; give a larger share."
        )
    rounds = budget.rounds or given.rounds
    with located(plain, ()):
        return advise(
            trained.model,
            trained.clients,
            local,
            dataclasses.replace(budget, rounds=rounds),
            goal=goal,  # type: ignore[arg-type]
            target=target,
            held_out=trained.validations,
            cohort=trained.cohort,
            server=server,
            methods=methods,
            race=race,
            folder=folder,
            jobs=jobs,
            progress=progress,
        )


def _with_validation(file: ExperimentFile, given: Any) -> ExperimentFile:
    """With examples set apart to judge by, if the file has none; data that has some is left alone."""
    if given.evaluate.validation is not None:
        return file
    from holdfast.config.population import load_dataset

    dataset = load_dataset(file, ("data",), given.data)
    if dataset.validation is not None:
        return file
    evaluate = {**file.values.get("evaluate", {}), "validation": _SHARE}
    return dataclasses.replace(file, values={**file.values, "evaluate": evaluate})


def _server(file: ExperimentFile, given: Any, source: Any, local: Local) -> Server | None:
    if given.server is None:
        return None
    own = given.server.local
    trains = local if own is None else make_local(file, ("server", "local"), own)
    with located(file, ("server",)):
        return Server(source, trains, gradient_batch_size=given.server.gradient_batch_size)


def advised_file(file: ExperimentFile, advice: Advice) -> str:
    """The text of the file with the advised method, FedAvg and the two ends instead of its own methods."""
    import tomlkit

    document = tomlkit.parse(file.as_used())
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
    text = tomlkit.dumps(document)
    if not locate(text):
        raise HoldfastError("advise: the advised file came out empty.")
    return text
