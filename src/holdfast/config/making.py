"""Make what a table of the file names, with messages that name its line."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax

from holdfast.attacks import Attack
from holdfast.config import catalogue, own_code, schema, signatures
from holdfast.config.file import ExperimentFile, ExperimentFileError, KeyPath
from holdfast.config.memory import no_more_than_there_is
from holdfast.core.algorithm import Algorithm
from holdfast.core.hyper import PerClient
from holdfast.core.local import Local
from holdfast.core.mean import Mean
from holdfast.core.wire import Wire
from holdfast.data import Clients, Dataset
from holdfast.errors import HoldfastError
from holdfast.metrics.by_name import as_metric
from holdfast.metrics.metric import Metric
from holdfast.models import Model
from holdfast.models.constructor import with_constructor
from holdfast.solvers import Solver
from holdfast.wires import Compressor


def make(
    file: ExperimentFile,
    at: KeyPath,
    kind: str,
    table: dict[str, Any],
    known: dict[str, Any] | None = None,
    first: tuple[Any, ...] = (),
    by_step_size: bool = False,
) -> Any:
    """What a table names, made with its other keys as arguments.

    An optimiser `by_step_size` is not made yet: `Local` gives it the step size.
    """
    if kind == "metric":
        return make_metric(file, at, table)
    function, checked = named(file, at, kind, table)
    wanted, hints = catalogue.settings(function), signatures.hints(function)
    # The key `name` names the function; what a function calls so, if it does, is known otherwise.
    told = checked.model_dump(exclude_unset=True, exclude={"name"})
    given = {n: v for n, v in told.items() if n in wanted}
    for name, value in (known or {}).items():
        if name in wanted and value is not None:
            given.setdefault(name, value)
    missing = [
        n
        for n, p in wanted.items()
        if p.default is p.empty and n not in given and not (by_step_size and n == "learning_rate")
    ]
    if missing:
        raise file.error(at, f"`{missing[0]}` is missing in [{at[0]}]; add {missing[0]} = ...")
    # What is known is no text of the file, but the thing itself.
    arguments = {
        n: convert(file, (*at, n), hints[n], v) if n in told else v for n, v in given.items()
    }
    if by_step_size:
        return functools.partial(function, **arguments) if arguments else function
    with located(file, at):
        if not own_code.is_own(table["name"]):
            return function(*first, **arguments)
        with own_code.explained(f"{kind} `{table['name']}`"):
            made = function(*first, **arguments)
        _check_made(kind, table["name"], made)
        # One that a function of hf.models made is made again by that one, without the file.
        if kind == "model" and made.constructor is None:
            return with_constructor(made, table["name"], arguments)
        return made


# What a function of one's own must return: a type, or what the thing can do, and what it is called.
_RESULTS: dict[str, tuple[type | tuple[str, ...], str]] = {
    "algorithm": (Algorithm, "an hf.Algorithm"),
    "data": (Dataset, "an hf.data.Dataset"),
    "partition": (Clients, "hf.Clients"),
    "model": (Model, "an hf.Model"),
    "cohort": (("check", "draw", "steady"), "a cohort with `check`, `draw` and `steady`"),
    "schedule": (("__call__",), "a function of the round"),
    "wire": (Wire, "an hf.Wire"),
    "aggregate": (Mean, "an hf.aggregates.Mean"),
    "attack": (Attack, "an hf.attacks.Attack"),
    "compressor": (Compressor, "an hf.wires.Compressor"),
    "solver": (Solver, "an hf.solvers.Solver"),
    "loss": (("__call__",), "a function of the parameters"),
    "evaluator": (
        ("__call__", "check", "every", "keeps_last_models"),
        "an hf.evaluate.Evaluator with `check`, `every` and `keeps_last_models`",
    ),
    "optimizer": (optax.GradientTransformation, "an optax.GradientTransformation"),
}


def _check_made(kind: str, name: str, made: Any) -> None:
    wanted, called = _RESULTS[kind]
    fits = (
        isinstance(made, wanted)
        if isinstance(wanted, type)
        else all(hasattr(made, attribute) for attribute in wanted)
    )
    if not fits:
        what = "None" if made is None else f"a {type(made).__name__}"
        raise HoldfastError(f"{kind} `{name}` returned {what}; return {called}.")


def named(
    file: ExperimentFile, at: KeyPath, kind: str, table: dict[str, Any]
) -> tuple[Callable[..., Any], Any]:
    """The function a table names, and the table checked against its arguments."""
    with located(file, (*at, "name")):
        function = find(file, kind, table["name"])
        arguments = signatures.arguments(function, schema.ALSO.get(kind))
    return function, schema.check(file, at, arguments, table)


def find(file: ExperimentFile, kind: str, name: str) -> Callable[..., Any]:
    """The function of a name of the file, with as much trust as the file has."""
    if not own_code.is_own(name):
        return catalogue.find(kind, name)
    found = own_code.find(kind, name, own_code.Trust(file.path, file.trusted))
    with own_code.explained(f"{kind} `{name}`"):  # such as types that do not exist
        signatures.hints(found)
    return found


def make_local(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> Local:
    """Local training from its table."""
    made: Local = make_plain(file, at, Local, table)
    return made


def make_plain(file: ExperimentFile, at: KeyPath, kind: Callable[..., Any], table: Any) -> Any:
    """What a table without a name is for, made with its keys as arguments."""
    if "name" in table:
        raise file.error((*at, "name"), f"unknown key `name` in [{at[-1]}]; remove it.")
    checked = schema.check(file, at, signatures.arguments(kind), {"name": "", **table})
    given = checked.model_dump(exclude_unset=True, exclude={"name"})
    hints = signatures.hints(kind)
    settings = {n: convert(file, (*at, n), hints[n], v) for n, v in given.items()}
    with located(file, at):
        return kind(**settings)


def make_metric(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> Metric:
    """A metric of a set: one of the library's by name, or a function of one's own."""
    given: Any = schema.check(file, at, schema.MetricSection, table)
    own = own_code.is_own(given.name)
    if given.greater_is_better is not None and not own:
        raise file.error(
            (*at, "greater_is_better"),
            f"which way `{given.name}` is better is known; take `greater_is_better` out.",
        )
    with located(file, at):
        function = find(file, "metric", given.name) if own else given.name
        return as_metric(function, given.greater_is_better)


def convert(file: ExperimentFile, at: KeyPath, hint: Any, value: Any) -> Any:
    """A value of the file as its type wants it: nested tables, masks, schedules, one per client."""
    kind = signatures.nested(hint)
    if kind:
        return make(file, at, kind, value, by_step_size=signatures.makes_optimizer(hint))
    if signatures.is_local(hint) and isinstance(value, dict):
        return make_local(file, at, value)
    if signatures.is_mask(hint):
        # Where the method may choose it, and names of parameters elsewhere.
        chosen = [word for word in signatures.choices(hint) if value == [word]]
        return chosen[0] if chosen else Begins(tuple(value))
    if signatures.is_hyper(hint):
        return _hyper(file, at, value)
    if signatures.is_path(hint):
        return [file.found(v) for v in value] if isinstance(value, list) else file.found(value)
    if isinstance(value, list | tuple):
        types_of = signatures.entries(hint, len(value))
        return type(value)(
            convert(file, (*at, i), inside, v)
            for i, (inside, v) in enumerate(zip(types_of, value, strict=True))
        )
    return value


def _hyper(file: ExperimentFile, at: KeyPath, value: Any) -> Any:
    if schema.is_schedule(value):
        if "name" in value:
            raise file.error((*at, "name"), "unknown key `name` in a schedule; remove it.")
        rest = {n: v for n, v in value.items() if n != "schedule"}
        return make(file, at, "schedule", {"name": value["schedule"], **rest})
    return PerClient(value) if isinstance(value, list) else value


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
def located(file: ExperimentFile, at: KeyPath) -> Iterator[None]:
    """Give a message of the library its line: that of what it is about in the table `at`."""
    try:
        with fitting(file, at):
            yield
    except ExperimentFileError:
        raise
    except HoldfastError as error:
        raise file.error((*at, *error.about), str(error)) from None


@contextlib.contextmanager
def fitting(file: ExperimentFile, at: KeyPath) -> Iterator[None]:
    """Name the line of numbers that this machine can make no array with."""
    try:
        # What overflows is infinite, which is refused on its line; NumPy's warning is another one.
        with no_more_than_there_is(), np.errstate(over="ignore", invalid="ignore"):
            yield
    except (MemoryError, OverflowError, jax.errors.JaxRuntimeError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in said:
            raise
        raise file.error(
            at, f"a number is too large for this machine ({said}); give smaller sizes."
        ) from None
