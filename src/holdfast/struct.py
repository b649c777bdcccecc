"""Frozen dataclasses that are pytrees: their numbers are leaves, so new values never recompile."""

import dataclasses
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
        jax.tree_util.register_dataclass(cls)
