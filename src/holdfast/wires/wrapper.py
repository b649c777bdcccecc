"""Wires around wires."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from holdfast.core.rule import State
from holdfast.core.wire import Wire
from holdfast.trees import Tree


class WireWrapper(Wire):
    """Follows an inner wire in everything; a subclass defines what it does differently."""

    inner: Wire

    def inside(self, state: State) -> tuple[tuple[Wire, State], ...]:
        """The inner wire; a subclass that remembers something itself leaves it out here."""
        return ((self.inner, state),)

    def informed(self, state: Tree) -> Wire:
        """The same around the inner wire with its part of the state."""
        ((inner, own),) = self.inside(State(server=state))
        return dataclasses.replace(self, inner=inner.informed(own.server))

    def beginning(self, t: int) -> Wire:
        """The same around the inner wire of such a run."""
        return dataclasses.replace(self, inner=self.inner.beginning(t))

    def change(self, broadcast: Tree, state: Tree, key: jax.Array) -> Tree:
        """A wire around one that sends changes has a state of its own: nobody has asked for these."""
        return ()


def _forwarded_method(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(Wire, name))
    def method(self: WireWrapper, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, name)(*args, **kwargs)

    return method


def _forwarded_value(name: str) -> property:
    return property(lambda self: getattr(self.inner, name), doc="As the inner wire.")


# Every public member that a wire has, so that none can be forgotten: one that was would be that of the
# bare wire, and nothing would fail.
for _name in dir(Wire):
    if not (_name.startswith("_") or _name in vars(WireWrapper)):
        _forward = _forwarded_method if callable(getattr(Wire, _name)) else _forwarded_value
        setattr(WireWrapper, _name, _forward(_name))
