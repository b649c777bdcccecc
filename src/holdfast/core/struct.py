"""Frozen dataclasses that are pytrees: their numbers are leaves, so new values never recompile."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, dataclass_transform

import jax

from holdfast.errors import explain_constructor


def static(**options: Any) -> Any:
    """A field that is part of the structure: changing it compiles a new program."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
class Struct:
    """Subclass it and annotate fields; the subclass becomes a frozen dataclass and a pytree.

    A field set to `None` is absent and costs nothing; a number is traced; a field made with
    `static()` is fixed at compilation.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)
        explain_constructor(cls)
        _register(cls)


def _register(cls: Any) -> None:
    # Not jax.tree_util.register_dataclass: there the structures of two classes with as many fields are
    # equal (jaxlib 0.10), so that now and then, by the chance of a hash, a method would be run with the
    # program compiled for another.
    # Fields are asked for when the first value is flattened: a class that came from another process is
    # registered while it is still empty.
    @functools.cache
    def names() -> tuple[tuple[str, ...], tuple[str, ...]]:
        fields = dataclasses.fields(cls)
        fixed = tuple(f.name for f in fields if f.metadata.get("static"))
        return tuple(f.name for f in fields if f.name not in fixed), fixed

    def flatten(self: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        traced, fixed = names()
        return tuple(getattr(self, n) for n in traced), tuple(getattr(self, n) for n in fixed)

    def flatten_with_keys(self: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, structure = flatten(self)
        keys = map(jax.tree_util.GetAttrKey, names()[0])
        return tuple(zip(keys, children, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], children: Iterable[Any]) -> Any:
        # Not by the constructor, which checks values: leaves may be anything while JAX traces.
        new: Any = object.__new__(cls)
        traced, fixed = names()
        for name, value in zip((*traced, *fixed), (*children, *structure), strict=True):
            object.__setattr__(new, name, value)
        return new

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
