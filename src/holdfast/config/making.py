"""Make what a table of the file names, with messages that say where it stands."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.config import catalogue, schema
from holdfast.config.file import ExperimentFile, ExperimentFileError, KeyPath
from holdfast.core.hyper import PerClient
from holdfast.core.local import Local
from holdfast.errors import HoldfastError


def make(
    file: ExperimentFile,
    at: KeyPath,
    kind: str,
    table: dict[str, Any],
    known: dict[str, Any] | None = None,
    first: tuple[Any, ...] = (),
) -> Any:
    """What a table names, made with its other keys as arguments."""
    function, checked = named(file, at, kind, table)
    given = {n: v for n, v in checked.model_dump(exclude_unset=True).items() if n != "name"}
    given = {n: v for n, v in given.items() if n in catalogue.settings(function)}
    for name, value in (known or {}).items():
        if name in catalogue.settings(function) and value is not None:
            given.setdefault(name, value)
    by_local = kind == "optimizer" and at[-1] == "optimizer"  # Local gives it the step size
    missing = [
        n
        for n, p in catalogue.settings(function).items()
        if p.default is p.empty and n not in given and not (by_local and n == "learning_rate")
    ]
    if missing:
        raise file.error(at, f"`{missing[0]}` is missing in [{at[0]}]; add {missing[0]} = ...")
    arguments = {n: convert(file, (*at, n), n, v) for n, v in given.items()}
    arguments = {n: _per_client(function, n, v) for n, v in arguments.items()}
    with placed(file, at):
        if by_local:
            return functools.partial(function, **arguments) if arguments else function
        return function(*first, **arguments)


def named(
    file: ExperimentFile, at: KeyPath, kind: str, table: dict[str, Any]
) -> tuple[Callable[..., Any], Any]:
    """The function a table names, and the table checked against its arguments."""
    with placed(file, (*at, "name") if (*at, "name") in file.lines else at):
        function = catalogue.find(kind, table["name"])
    return function, schema.check(
        file, at, schema.arguments(function, schema.ALSO.get(kind)), table
    )


def make_local(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> Local:
    """Local training from its table."""
    checked = schema.check(file, at, schema.arguments(Local), {"name": "", **table})
    given = checked.model_dump(exclude_unset=True)
    settings = {n: convert(file, (*at, n), n, v) for n, v in given.items() if n != "name"}
    with placed(file, at):
        return Local(**settings)


def convert(file: ExperimentFile, at: KeyPath, name: str, value: Any) -> Any:
    """A value of the file as the function wants it: schedules, masks and nested tables."""
    if name in schema.NESTED:
        return make(file, at, schema.NESTED[name], value)
    if name in schema.MASKS:
        return Begins(tuple(value))
    if isinstance(value, dict) and "schedule" in value:
        rest = {n: v for n, v in value.items() if n != "schedule"}
        return make(file, at, "schedule", {"name": value["schedule"], **rest})
    return value


def _per_client(function: Any, name: str, value: Any) -> Any:
    """A list where a number is wanted has one value for each client."""
    wanted = schema.hints(function).get(name, Any) is Any
    return PerClient(value) if wanted and isinstance(value, list) else value


@dataclasses.dataclass(frozen=True)
class Begins:
    """A mask: parameters whose names begin with one of these words; after `!`, all others."""

    words: tuple[str, ...]

    def __call__(self, path: str) -> bool:
        unwanted = tuple(w[1:] for w in self.words if w.startswith("!"))
        wanted = tuple(w for w in self.words if not w.startswith("!"))
        chosen = path.startswith(wanted) if wanted else True
        return chosen and not (unwanted and path.startswith(unwanted))


@contextlib.contextmanager
def placed(file: ExperimentFile, at: KeyPath) -> Iterator[None]:
    """Give a message of the library its line in the file."""
    try:
        yield
    except ExperimentFileError:
        raise
    except HoldfastError as error:
        raise file.error(key_named(file, at, str(error)), str(error)) from None


def key_named(file: ExperimentFile, at: KeyPath, message: str) -> KeyPath:
    """The key of this table that a message speaks of, by name or else by value."""
    inside = [key for key in file.lines if key[:-1] == at]
    table = _at(file.values, at)
    for words in (lambda key: key[-1], lambda key: table.get(key[-1])):
        for key in inside:
            word = words(key)
            if isinstance(word, str | int | float) and speaks_of(message, str(word)):
                return key
    return at


def speaks_of(message: str, word: str) -> bool:
    """Whether a message has this word in it, whole."""
    return bool(word) and re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", message) is not None


def _at(values: Any, at: KeyPath) -> dict[str, Any]:
    for key in at:
        values = values[key] if isinstance(key, int) else values.get(key, {})
    return values if isinstance(values, dict) else {}
