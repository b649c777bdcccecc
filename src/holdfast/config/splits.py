"""`[partition] repeats` and `splits`: the same study on several draws of who has and who is tested on what.

A draw is the file with its number as the seed of the partition and of the loader's test rows, as if it
stood there.
"""

import copy
import dataclasses
import inspect
from typing import Any

from holdfast.config import schema
from holdfast.config.file import ExperimentFile, KeyPath
from holdfast.config.making import find, located
from holdfast.config.schema import FileSchema

_KEYS = ("repeats", "splits")


def numbers(file: ExperimentFile, given: FileSchema) -> tuple[int, ...]:
    """The draws that a file asks for; none where it says nothing on that."""
    for i, table in enumerate(given.population):
        for key in _KEYS:
            if key in (table.partition or {}):
                raise file.error(
                    ("population", i, "partition", key),
                    f"`{key}` is for all populations at once; give it in [partition].",
                )
    repeats, listed = (given.partition.get(key) for key in _KEYS)
    if repeats is not None and listed is not None:
        raise file.error(
            ("partition", "splits"), "`repeats` and `splits` are both given; leave one of them out."
        )
    if listed is not None and len(set(listed)) != len(listed):
        raise file.error(("partition", "splits"), f"splits are {listed}; give each once.")
    if repeats is not None:
        return tuple(range(repeats)) if repeats > 1 else ()
    return () if listed is None else tuple(listed)


def of(file: ExperimentFile, given: FileSchema, number: int) -> ExperimentFile:
    """The file of one draw."""
    values = copy.deepcopy(file.values)
    for at, kind, table in _places(given):
        with located(file, at):
            function = find(file, kind, table["name"])
        if "seed" not in inspect.signature(function).parameters:
            continue
        if "seed" in table:
            raise file.error(
                (*at, "seed"),
                f"`seed` is {table['seed']}, and [partition] gives splits, which are seeds; leave one out.",
            )
        here: Any = values
        for key in at[:-1]:
            here = here[key]
        here[at[-1]] = schema.as_table(here[at[-1]]) | {"seed": number}
    return dataclasses.replace(file, values=values)


def _places(given: FileSchema) -> list[tuple[KeyPath, str, dict[str, Any]]]:
    """Where data and partitions stand that a draw changes."""
    found: list[tuple[KeyPath, str, dict[str, Any]]] = []
    for kind in ("data", "partition"):
        own = [getattr(table, kind) for table in given.population]
        if not own or any(table is None for table in own):
            found.append(((kind,), kind, getattr(given, kind)))
        found += [
            (("population", i, kind), kind, table)
            for i, table in enumerate(own)
            if table is not None
        ]
    return found
