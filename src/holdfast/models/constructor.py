"""How a model was made: by which function of `hf.models` and with which arguments, to make it again."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

P = ParamSpec("P")

# Functions that a saved model may name; nothing else is called for one.
REBUILDABLE: dict[str, Callable[..., Any]] = {}


@dataclasses.dataclass(frozen=True)
class Constructor:
    """A function by its name, its arguments as JSON, and the functions that it gave the model."""

    name: str
    arguments: str = dataclasses.field(compare=False)
    parts: tuple[Any, ...] = dataclasses.field(repr=False)
    key: str = dataclasses.field(repr=False)  # of the arguments; equal for 0 and 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {"name": self.name, "arguments": json.loads(self.arguments)}


def rebuildable(function: Callable[P, Any]) -> Callable[P, Any]:
    """Let a function that makes a model note its name and arguments on it, where those are plain values.

    The note changes neither equality, hash nor description of a model, so no run depends on it.
    """
    signature = inspect.signature(function)
    name = function.__name__

    @functools.wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> Any:
        model = function(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        # What was left as it is has its own constructor.
        if any(model is value for value in given.arguments.values()):
            return model
        return with_constructor(model, name, given.arguments)

    REBUILDABLE[name] = made
    return made


def with_constructor(model: Any, name: str, arguments: dict[str, Any]) -> Any:
    """The model with a note of how it was made; as it is where an argument is no plain value."""
    try:
        plain = {n: _plain(v) for n, v in arguments.items()}
    except TypeError:
        return model
    texts = [json.dumps(values, sort_keys=True) for values in (plain, _merged(plain))]
    return _noted(model, Constructor(name, texts[0], model.parts, texts[1]))


# Equal settings give the same model, as they do without the note.
@functools.lru_cache(maxsize=256)
def _noted(model: Any, constructor: Constructor) -> Any:
    return dataclasses.replace(model, constructor=constructor)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    inner = getattr(value, "constructor", None)
    if isinstance(inner, Constructor):
        return inner.to_dict()
    raise TypeError(f"{type(value).__name__} is no plain value")


def _merged(value: Any) -> Any:
    """Plain values with whole numbers as whole numbers, however they were written."""
    if isinstance(value, dict):
        return {name: _merged(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_merged(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
