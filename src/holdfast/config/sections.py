"""What a file has, with every name and argument in it checked. Nothing here needs JAX or touches data.

`refuse_mistakes` knows names and arguments from `described.json`, which is written from the code
(`python -m holdfast.config.describe`); building a study asks the code itself.
"""

from collections.abc import Callable
from typing import Any

from holdfast.config import described, schema, sweep
from holdfast.config.file import ExperimentFile, KeyPath
from holdfast.config.schema import FileSchema
from holdfast.errors import HoldfastError

# Checks a table of a kind of thing against what it names.
Check = Callable[[ExperimentFile, KeyPath, str, dict[str, Any]], Any]
NAMED = ("data", "partition", "model", "cohort")


def sections(file: ExperimentFile, named: Check) -> FileSchema:
    """What the file has; the first mistake is raised with its line."""
    found: Any = schema.check(file, (), FileSchema, file.values)
    for kind in NAMED:
        named(file, (kind,), kind, getattr(found, kind))
    if found.attack is not None:
        named(file, ("attack",), "attack", found.attack)
    for number, table in enumerate(found.evaluate.metrics):
        named(file, ("evaluate", "metrics", number), "metric", table)
    for number, table in enumerate(found.evaluate.also):
        named(file, ("evaluate", "also", number), "evaluator", table)
    for i, own in enumerate(found.population):
        for kind in NAMED:
            if getattr(own, kind) is not None:
                named(file, ("population", i, kind), kind, getattr(own, kind))
    for swept in sweep.swept_methods(file, found.sweep, found.algorithm):
        named(swept.file, swept.at, "algorithm", swept.table)
    return found


def refuse_mistakes(file: ExperimentFile) -> None:
    """Refuse what is no experiment file, before anything that takes long is imported: syntax, sections,
    keys, names and types. Whether values go together is known when the study is built."""
    found = sections(file, _named)
    for swept in sweep.swept_methods(file, found.sweep, found.algorithm):
        own = swept.table.get("local") or {}
        at: KeyPath = (*swept.at, "local") if own else ("local",)
        # Of several populations each may add keys of its own.
        if not found.population:
            _local(swept.file, at, sweep.over(swept.local, own))
        for kind in ("wire", "aggregate"):
            if kind in swept.table:
                inside = schema.as_table(swept.table[kind])
                _named(swept.file, (*swept.at, kind), kind, inside)


def _model(fields: dict[str, str], kind: str = "") -> Any:
    return schema.model(described.unmarked(fields), schema.ALSO.get(kind))


def _local(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> None:
    if "name" in table:
        raise file.error((*at, "name"), f"unknown key `name` in [{at[-1]}]; remove it.")
    schema.check(file, at, _model(described.local()), {"name": "", **table})


def _named(file: ExperimentFile, at: KeyPath, kind: str, table: dict[str, Any]) -> None:
    name = table["name"]
    if kind == "metric":
        schema.check(file, at, schema.MetricSection, table)
        # Some have a number in their name, so that not all are listed: building the study tells.
        return
    if ":" in name:  # code of one's own: only running it tells
        return
    try:
        about = described.find(kind, name)
    except HoldfastError as error:
        raise file.error((*at, "name"), str(error)) from None
    schema.check(file, at, _model(about.fields, kind), table)
    for argument, inside in about.tables.items():
        if table.get(argument) is not None:
            _named(file, (*at, argument), inside, schema.as_table(table[argument]))
