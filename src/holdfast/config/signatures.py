"""What a function's signature says of a table that names it: by the types of its arguments."""

import collections.abc
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin

import optax
import pydantic
from pydantic import BaseModel, StrictBool, StrictStr

from holdfast.config import schema
from holdfast.config.catalogue import settings
from holdfast.config.schema import (
    FROM_DATA,
    OPTAX,
    Number,
    Prefixes,
    SomeNumber,
    Table,
    WholeNumber,
)
from holdfast.core.algorithm import Algorithm
from holdfast.core.hyper import Hyper
from holdfast.core.local import Local
from holdfast.core.wire import Wire
from holdfast.data.clients import Clients, Examples
from holdfast.data.preprocessing import Preprocessing
from holdfast.errors import HoldfastError
from holdfast.metrics.metric import Metric
from holdfast.solvers import Solver
from holdfast.wires import Compressor

# Types whose values are tables of their own, and the kind of thing that such a table names.
NESTED: dict[type, str] = {
    Algorithm: "algorithm",
    Compressor: "compressor",
    Wire: "wire",
    Metric: "metric",
    Solver: "solver",
    optax.GradientTransformation: "optimizer",
}
_LISTS = (list, tuple, collections.abc.Sequence)


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of every argument; one without is a hyper-parameter, optax's are also switches."""
    if function.__module__.startswith("optax"):
        return dict.fromkeys(settings(function), OPTAX)
    plain: Any = function.__init__ if inspect.isclass(function) else inspect.unwrap(function)
    found = typing.get_type_hints(plain, include_extras=True)
    return {name: found.get(name, Hyper) for name in settings(function)}


def options(hint: Any) -> tuple[Any, ...]:
    """What a type allows besides None."""
    several = get_origin(hint) in (Union, types.UnionType)
    return tuple(h for h in get_args(hint) if h is not type(None)) if several else (hint,)


def is_hyper(hint: Any) -> bool:
    """Whether a number, one for each client or a schedule over rounds is wanted."""
    return any(option in (Hyper, Any, OPTAX) for option in options(hint))


def is_mask(hint: Any) -> bool:
    """Whether a choice of parameters by their names is wanted."""
    return any(_is_function(option, (str,), bool) for option in options(hint))


def choices(hint: Any) -> tuple[Any, ...]:
    """Words that a type names among other things it allows."""
    return tuple(word for h in options(hint) if get_origin(h) is Literal for word in get_args(h))


def nested(hint: Any) -> str | None:
    """The kind of thing that a table names where this type is wanted; None if it is no table."""
    wanted = [optax.GradientTransformation if makes_optimizer(h) else h for h in options(hint)]
    classes = [option for option in wanted if inspect.isclass(option)]
    return next((NESTED[k] for k in NESTED if any(issubclass(c, k) for c in classes)), None)


def is_local(hint: Any) -> bool:
    """Whether local steps are wanted, which are a table like [local]."""
    return Local in options(hint)


def supplied(evaluator: Callable[..., Any]) -> dict[str, str]:
    """Arguments of an evaluator that the experiment has, and what they are."""
    # Without a type, what an argument is called says it.
    known = {"examples": ((Any, Hyper, Examples), "examples"), "name": ((str, Hyper), "prefix")}
    found = {}
    for name, hint in hints(evaluator).items():
        wanted, what = known.get(name, ((Clients,), "clients"))
        if any(hint is one for one in wanted):
            found[name] = what
    return found


def is_path(hint: Any) -> bool:
    """Whether files are wanted, which may lie beside the experiment file."""
    return any(os.PathLike in (option, get_origin(option)) for option in options(hint))


def makes_optimizer(hint: Any) -> bool:
    """Whether a function from a step size to an optimiser is wanted, not the optimiser itself."""
    return any(_is_function(h, None, optax.GradientTransformation) for h in options(hint))


def entries(hint: Any, count: int) -> tuple[Any, ...]:
    """The types of what is in a list or tuple of so many entries."""
    inside = next((get_args(h) for h in options(hint) if get_origin(h) in _LISTS), (None,))
    return inside if len(inside) == count and Ellipsis not in inside else (inside[0],) * count


def _is_function(hint: Any, taking: tuple[Any, ...] | None, returning: Any) -> bool:
    if get_origin(hint) is not collections.abc.Callable:
        return False
    given, result = get_args(hint)
    return result is returning and (taking is None or given == list(taking))


@functools.lru_cache(maxsize=256)
def arguments(function: Callable[..., Any], also: type[BaseModel] | None = None) -> type[BaseModel]:
    """A schema of a function's arguments, from its signature."""
    return schema.model(fields(function, also), also)


def fields(
    function: Callable[..., Any], also: type[BaseModel] | None = None
) -> dict[str, tuple[Any, bool]]:
    """What a file may give for each argument of a function, and whether it must."""
    types_of = hints(function)
    found: dict[str, tuple[Any, bool]] = {}
    known = supplied(function) if also is schema.AlsoEvaluator else {}
    for name, parameter in settings(function).items():
        if name in known:
            continue
        required = parameter.default is parameter.empty and name not in FROM_DATA
        required = required and types_of[name] is not OPTAX  # `make` knows who gives it
        kind = _kind(types_of[name])
        if kind is None and required:
            wanted = getattr(types_of[name], "__name__", types_of[name])
            raise HoldfastError(
                f"its argument `{name}` is a {wanted}, which a file cannot give; name a function "
                f"without it."
            )
        if kind is not None:
            found[name] = (kind, required)
    return found


def _kind(hint: Any) -> Any:
    """What a file may give for a type; None if it is nothing that a file can write."""
    if nested(hint):
        return Table
    if is_local(hint):
        return dict[str, Any]
    if is_mask(hint):
        return Prefixes
    if hint is OPTAX:
        return OPTAX
    if hint in (Any, Hyper):
        return Number
    if hint is Preprocessing:  # that of [data], known where it is wanted
        return None
    origin, inside = get_origin(hint), get_args(hint)
    if origin is collections.abc.Callable:  # what is named by a file is found above
        return None
    if origin in (Union, types.UnionType):
        kinds = list(dict.fromkeys(filter(None, map(_kind, options(hint)))))
        return Union[tuple(kinds)] if kinds else None  # noqa: UP007 - built from a list
    if origin in _LISTS:
        kinds = [i if i is Ellipsis else _kind(i) for i in inside]
        return None if None in kinds else (tuple if origin is tuple else list)[tuple(kinds)]
    if origin is os.PathLike or hint is os.PathLike:
        return StrictStr
    plain = {int: WholeNumber, float: SomeNumber, bool: StrictBool, str: StrictStr}
    return plain.get(hint) or (hint if _is_plain(hint) else None)


def _is_plain(hint: Any) -> bool:
    """Whether text of a file can become a value of this type; an array, say, cannot."""
    try:
        pydantic.TypeAdapter(hint)
    except pydantic.errors.PydanticSchemaGenerationError:
        return False
    return True
