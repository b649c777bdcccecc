"""What an experiment file may contain. The arguments of a name are those of its function."""

import collections.abc
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Union, get_args, get_origin

import pydantic
from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, StrictInt, StrictStr

from holdfast.config.catalogue import settings
from holdfast.config.file import ExperimentFile, ExperimentFileError, KeyPath
from holdfast.errors import did_you_mean

StrictNumber = Annotated[float, Strict()]
Count = Annotated[int, Strict(), Field(ge=1)]
Share = Annotated[float, Strict(), Field(gt=0, lt=1)]


def _a_number(value: Any) -> Any:
    """A number, one per client, or a schedule over rounds."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    numbers = isinstance(value, list) and all(isinstance(v, int | float) for v in value)
    if number or numbers or (isinstance(value, dict) and "schedule" in value):
        return value
    raise ValueError(
        "expected a number, a list with one number per client, or a schedule over rounds such as "
        '{ schedule = "exponential", value = 0.1, decay = 0.998 }'
    )


def _a_table(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return value
    raise ValueError('expected a name in quotes or a table such as { name = "...", ... }')


def _prefixes(value: Any) -> Any:
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list) and words and all(isinstance(w, str) for w in words):
        return words
    raise ValueError(
        'expected how names of parameters begin, such as "classifier", ["dense_1", "classifier"], or '
        '"!classifier" for all others'
    )


def _a_number_or_switch(value: Any) -> Any:
    return value if isinstance(value, bool) else _a_number(value)


Number = Annotated[Any, pydantic.BeforeValidator(_a_number)]
OPTAX = Annotated[Any, pydantic.BeforeValidator(_a_number_or_switch)]
Table = Annotated[Any, pydantic.BeforeValidator(_a_table)]
Prefixes = Annotated[Any, pydantic.BeforeValidator(_prefixes)]

# Arguments that are tables of their own, and the kind of thing they name.
NESTED = {
    "by": "algorithm",
    "compressor": "compressor",
    "inner": "wire",
    "wire": "wire",
    "solver": "solver",
    "optimizer": "optimizer",
    "server_optimizer": "optimizer",
    "merge_optimizer": "optimizer",
}
MASKS = ("mask", "momentum_on")
FROM_DATA = ("classes", "vocabulary")  # known from the data set unless given
_SECTION = ConfigDict(extra="forbid")


class Evaluate(BaseModel):
    """What is measured, besides the server's model on the test set."""

    model_config = _SECTION
    every: Count = 1
    train: StrictBool = False  # the server's model on all clients' training data
    average: StrictBool = False  # the average of every client's latest model, as FedDyn reports
    personal: StrictBool = False  # every client's own model on test data like its own


class Checkpoints(BaseModel):
    """How often a run is saved."""

    model_config = _SECTION
    every: Count = 10
    keep: Count = 2


class EngineSection(BaseModel):
    """How a round is computed; chosen by the machine and the model unless given."""

    model_config = _SECTION
    devices: Count | None = None
    width: Count | None = None  # clients that a device works on at a time


class StorageSection(BaseModel):
    """How much memory clients' states and examples may take, and where states go beyond it."""

    model_config = _SECTION
    memory: StrictInt | StrictStr | None = None
    device: StrictInt | StrictStr | None = None
    folder: StrictStr | None = None


class ServerSection(BaseModel):
    """What the server has of its own: give one of the first five."""

    model_config = _SECTION
    examples: Count | None = None  # so many of the training examples, which no client has then
    share: Share | None = None  # the same as a share of them
    clients: Count | None = None  # so many clients send it `each` of their examples
    data: Table | None = None  # a data set of its own
    loss: Table | None = None  # a loss of the parameters alone
    each: Count | None = None
    seed: Annotated[int, Strict(), Field(ge=0)] = 0
    pretrain: Annotated[int, Strict(), Field(ge=0)] = 0  # rounds of its own before the first
    gradient_batch_size: Count | None = None
    local: dict[str, Any] | None = None


class Outline(BaseModel):
    """The file as a whole; sections that name something are checked by what they name."""

    model_config = _SECTION
    name: StrictStr | None = None
    rounds: Count
    seeds: Count | Annotated[list[StrictInt], Field(min_length=1)] = 1
    target: StrictNumber | None = None
    metric: StrictStr | None = None
    select: StrictBool = False
    data: Table
    partition: Table
    model: Table
    local: dict[str, Any]
    cohort: Table = {"name": "everyone"}
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoints = Checkpoints()
    engine: EngineSection | None = None
    storage: StorageSection = StorageSection()
    server: ServerSection | None = None
    sweep: dict[str, Any] = {}
    algorithm: Annotated[list[Table], Field(min_length=1)]


class AlsoAlgorithm(BaseModel):
    """What an entry of `[[algorithm]]` may have besides the arguments of its method."""

    label: StrictStr | None = None
    wire: Table | None = None
    local: dict[str, Any] | None = None


class AlsoData(BaseModel):
    """What `[data]` may have besides the arguments of its loader."""

    only_classes: Count | None = None  # examples of the first so many labels
    train_labels: list[StrictInt] | None = None  # training examples of these labels; test ones stay
    only_examples: Count | None = None  # so many training examples, for a quick trial


class AlsoPartition(BaseModel):
    """What `[partition]` may have besides the arguments of its function."""

    max_examples: Count | None = None  # of a client, which keeps its first ones


class AlsoModel(BaseModel):
    """What `[model]` may have besides the arguments of its function."""

    augment: StrictBool | None = None  # flip and crop training images at random


ALSO: dict[str, type[BaseModel]] = {
    "algorithm": AlsoAlgorithm,
    "data": AlsoData,
    "partition": AlsoPartition,
    "model": AlsoModel,
}


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's arguments; optax's are numbers, schedules and switches."""
    if function.__module__.startswith("optax"):
        return dict.fromkeys(settings(function), OPTAX)
    plain: Any = function.__init__ if inspect.isclass(function) else inspect.unwrap(function)
    return typing.get_type_hints(plain)


@functools.lru_cache(maxsize=256)
def arguments(function: Callable[..., Any], also: type[BaseModel] | None = None) -> type[BaseModel]:
    """A schema of a function's arguments, from its signature."""
    types_of = hints(function)
    fields: dict[str, Any] = {"name": (StrictStr, ...)}
    for name, parameter in settings(function).items():
        required = parameter.default is parameter.empty and name not in FROM_DATA
        required = required and types_of.get(name) is not OPTAX  # `make` knows who gives it
        kind = _kind(name, types_of.get(name, Any))
        # Defaults stay with the function: what is not in the file is not passed.
        fields[name] = (kind, ...) if required else (kind | None, None)
    base = also or BaseModel
    made = pydantic.create_model("Arguments", __base__=base, **fields)
    made.model_config = _SECTION
    made.model_rebuild(force=True)
    return made


def _kind(name: str, hint: Any) -> Any:
    if name in NESTED:
        return Table
    if name in MASKS:
        return Prefixes
    if hint is Any:
        return Number
    if hint is OPTAX:
        return OPTAX
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [_kind(name, h) for h in inside if h is not type(None)]
        kinds = list(dict.fromkeys(kinds))
        return kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]  # noqa: UP007 - built from a list
    if origin in (list, collections.abc.Sequence):
        return list[_kind(name, inside[0])]  # type: ignore[misc]
    if origin is tuple:
        return tuple[tuple(i if i is Ellipsis else _kind(name, i) for i in inside)]  # type: ignore[misc]
    if origin in (os.PathLike, type(os.PathLike)) or hint is os.PathLike:
        return StrictStr
    plain = {int: StrictInt, float: StrictNumber, bool: StrictBool, str: StrictStr}
    return plain.get(hint, hint)


def check(file: ExperimentFile, at: KeyPath, schema: type[BaseModel], table: Any) -> BaseModel:
    """A table in the shape of its schema; the first mistake is raised with its line."""
    try:
        return schema.model_validate(table)
    except pydantic.ValidationError as error:
        problems = sorted(error.errors(), key=_plainest_first)
        raise _explain(file, at, schema, problems[0]) from None


def _plainest_first(problem: Any) -> int:
    return (
        ["extra_forbidden", "missing"].index(problem["type"])
        if problem["type"]
        in (
            "extra_forbidden",
            "missing",
        )
        else 2
    )


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "list_type": "a list in brackets",
    "dict_type": "a table",
    "model_type": "a table",
    "tuple_type": "a list in brackets",
    "too_short": "at least one entry",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than": "less than {lt}",
    "literal_error": "{expected}",
}


def _explain(
    file: ExperimentFile, at: KeyPath, schema: type[BaseModel], problem: Any
) -> ExperimentFileError:
    known = set(schema.model_fields)
    # Members of a union leave their names in the place of a mistake.
    inside = tuple(k for k in problem["loc"] if isinstance(k, int) or _is_key(k))
    place = (*at, *inside)
    key, where = str(inside[-1]) if inside else "", _section(at, inside)
    given = _show(problem["input"])
    if problem["type"] == "extra_forbidden":
        if len(inside) > 1:
            field: Any = schema.model_fields.get(str(inside[0]))
            known = set(getattr(_model_of(field), "model_fields", known))
        return file.error(place, f"unknown key `{key}`{where}; {did_you_mean(key, sorted(known))}")
    if problem["type"] == "missing":
        return file.error(place[:-1], f"`{key}` is missing{where}; {_example(key)}")
    if problem["type"] == "value_error":
        why = str(problem["ctx"]["error"])
        return file.error(place, f"`{key}` is {given}{where}; {why}.")
    expected = _EXPECTED.get(problem["type"], problem["msg"])
    expected = expected.format(**problem.get("ctx", {}))
    return file.error(place, f"`{key}` is {given}{where}; expected {expected}.")


def _is_key(word: str) -> bool:
    return not any(mark in word for mark in "[](") and word not in (
        "int",
        "float",
        "str",
        "constrained-int",
    )


def _model_of(field: Any) -> Any:
    if field is None:
        return None
    options = get_args(field.annotation) or (field.annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _section(at: KeyPath, inside: KeyPath) -> str:
    names = [str(k) for k in (*at, *inside[:-1]) if isinstance(k, str)]
    return f" in [{'.'.join(names)}]" if names else ""


def _show(value: Any) -> str:
    text = (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if value
        in (
            True,
            False,
        )
        else repr(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."


_EXAMPLES = {
    "rounds": "rounds = 100",
    "data": '[data] with name = "digits"',
    "partition": '[partition] with name = "dirichlet", clients = 50, concentration = 0.3',
    "model": '[model] with name = "mlp", hidden = [64]',
    "local": "[local] with learning_rate = 0.1, epochs = 5, batch_size = 20",
    "algorithm": '[[algorithm]] with name = "fedavg"',
    "learning_rate": "learning_rate = 0.1",
    "name": 'name = "..."; `holdfast list` shows all names',
    "clients": "clients = 50",
}


def _example(key: str) -> str:
    return f"add {_EXAMPLES[key]}." if key in _EXAMPLES else f"add {key} = ..."
