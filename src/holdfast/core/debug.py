"""Where in a run the code is, so that an exception of the debug engine can say it.

In a compiled round these are no-ops: values are not known while a program is traced.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax import tree

from holdfast.errors import HoldfastError
from holdfast.trees import Tree

_position: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "position", default=None
)


class DebugError(HoldfastError):
    """An exception in a round, with the round, client, step and batch it happened in."""

    def __init__(self, message: str, where: dict[str, Any]) -> None:
        super().__init__(message)
        self.round: int | None = where.get("round")
        self.client: int | None = where.get("client")
        self.step: int | None = where.get("step")
        self.batch: Any = where.get("batch")


@contextlib.contextmanager
def debugging(**where: Any) -> Iterator[None]:
    """Make `position` and `watch` speak, until the end of the block."""
    token = _position.set(where)
    try:
        yield
    finally:
        _position.reset(token)


@contextlib.contextmanager
def position(**where: Any) -> Iterator[None]:
    """Note where we are; an exception inside carries it."""
    here = _position.get()
    if here is None:
        yield
        return
    where = here | _plain(where)
    token = _position.set(where)
    try:
        yield
    except DebugError:
        raise
    except Exception as error:
        spot = ", ".join(f"{name} {value}" for name, value in where.items())
        raise DebugError(f"{spot}: {type(error).__name__}: {error}", where) from error
    finally:
        _position.reset(token)


def note(**where: Any) -> None:
    """Add to the innermost position what became known inside it."""
    here = _position.get()
    if here is not None:
        here.update(_plain(where))


def _plain(where: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in where.items()}


def watch(what: str, values: Tree) -> None:
    """While debugging, stop at the first number that is not finite."""
    if _position.get() is not None and not all(np.isfinite(v).all() for v in tree.leaves(values)):
        raise FloatingPointError(f"the {what} is not finite")
