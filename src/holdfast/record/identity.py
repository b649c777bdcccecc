"""What makes two runs the same run: described in words, so that a difference can be named."""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import tree

from holdfast.trees import Tree, describe_shapes


def describe(thing: Any) -> str:
    """A text that is equal for equal things in any process; functions by name and code."""
    if isinstance(thing, functools.partial):
        return f"{describe(thing.func)}({describe(thing.args)}, {describe(thing.keywords)})"
    if isinstance(thing, types.MethodType):
        return f"{describe(thing.__func__)} of {describe(thing.__self__)}"
    if isinstance(thing, types.FunctionType):
        return f"{thing.__module__}.{thing.__qualname__}#{_code_digest(thing)}"
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        named = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.repr}
        # Fields that are newer than some saves are in the text only where they say something.
        for f in dataclasses.fields(thing):
            if f.metadata.get("named_if_given") and named.get(f.name) is None:
                named.pop(f.name, None)
        inside = ", ".join(f"{name}={describe(value)}" for name, value in named.items())
        return f"{type(thing).__name__}({inside})"
    if isinstance(thing, Mapping):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in thing.items()) + "}"
    if isinstance(thing, tuple | list):
        return "(" + ", ".join(describe(v) for v in thing) + ")"
    if isinstance(thing, set | frozenset) and thing:
        # Their order differs from process to process.
        inside = ", ".join(sorted(map(describe, thing)))
        return f"{{{inside}}}" if isinstance(thing, set) else f"frozenset({{{inside}}})"
    if hasattr(thing, "shape") and hasattr(thing, "dtype"):
        return f"{describe_shapes(thing)}#{digest(thing)}"
    if isinstance(thing, type) or callable(thing):
        return getattr(thing, "__qualname__", type(thing).__qualname__)
    return repr(thing)


_open: set[int] = set()  # functions being described: one may hold itself in its closure


def _code_digest(function: types.FunctionType) -> str:
    if id(function) in _open:
        return "itself"
    _open.add(id(function))
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        parts = (_code(function.__code__), describe(cells), describe(function.__defaults__ or ()))
    finally:
        _open.discard(id(function))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _code(code: types.CodeType) -> tuple[Any, ...]:
    # repr of a code object holds its address, so nested code is taken apart too.
    constants = [_code(c) if isinstance(c, types.CodeType) else _said(c) for c in code.co_consts]
    return code.co_code.hex(), code.co_names, constants


def _said(constant: Any) -> str:
    # `x in {"a", "b"}` has a set as its constant.
    return describe(constant) if isinstance(constant, frozenset) else repr(constant)


_WHOLE = 1 << 30
_ROWS = 10_000


def digest(arrays: Tree) -> str:
    """A short checksum of the contents of arrays; of very large ones, of some of their rows."""
    check = hashlib.sha256()
    for leaf in tree.leaves(arrays):
        if getattr(leaf, "nbytes", 0) > _WHOLE:  # rows all over it, instead of reading all of it
            check.update(f"{leaf.shape}".encode())
            leaf = leaf[np.unique(np.linspace(0, len(leaf) - 1, _ROWS).astype(int))]
        a = np.ascontiguousarray(leaf)
        check.update(f"{a.dtype}{a.shape}".encode())
        check.update(a.view(np.uint8).data if a.size else b"")
    return check.hexdigest()[:16]


def first_difference(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """A sentence naming the first thing that is not the same, or None."""
    for name in dict.fromkeys([*now, *then]):
        a, b = then.get(name, "absent"), now.get(name, "absent")
        if a != b:
            return f"another {name}: it was {_short(a, b)}, now it is {_short(b, a)}"
    return None


def _short(text: str, other: str, width: int = 80) -> str:
    """The part of a long description around where it begins to differ."""
    if len(text) <= width:
        return text
    begin = next((i for i, (p, q) in enumerate(zip(text, other, strict=False)) if p != q), 0)
    begin = max(0, begin - width // 4)
    return ("..." if begin else "") + text[begin : begin + width] + "..."
