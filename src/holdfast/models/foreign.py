"""Functions that another framework computes: known to JAX by their shapes, and part of no program.

XLA can call Python from within a program, but what is called there must not wait for JAX, and hands
over its arrays through it: on a machine with few cores such calls wait for each other for ever. So what
calls a foreign function runs uncompiled.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from holdfast.errors import HoldfastError

_FOREIGN = Primitive("foreign")
_FOREIGN.multiple_results = True


class ForeignError(HoldfastError):
    """A function of another framework where JAX would compile or differentiate it."""


class _HasEngine(Protocol):
    @property
    def engine(self) -> Any: ...


def uncompiled(model: _HasEngine) -> contextlib.AbstractContextManager[None]:
    """Where functions of a model are called: nothing is compiled if another framework computes them."""
    return contextlib.nullcontext() if model.engine is None else jax.disable_jit()


def call(
    function: Callable[..., Sequence[np.ndarray]],
    shapes: Sequence[jax.ShapeDtypeStruct],
    *arguments: Any,
) -> list[jax.Array]:
    """What a function of NumPy arrays returns, as JAX sees it; `shapes` are of what it returns."""
    known = tuple(jax.core.ShapedArray(s.shape, s.dtype) for s in shapes)
    return _FOREIGN.bind(*map(jax.numpy.asarray, arguments), function=function, shapes=known)


def _run(*arguments: Any, function: Callable[..., Any], shapes: tuple[Any, ...]) -> list[Any]:
    found = function(*(np.asarray(a) for a in arguments))
    return [jax.device_put(np.asarray(f, s.dtype)) for f, s in zip(found, shapes, strict=True)]


def _refuse_to_compile(*_: Any, function: Callable[..., Any], **__: Any) -> NoReturn:
    raise ForeignError(
        f"{_owner(function)}: another framework computes this model, and no compiled program can; leave "
        f"simulate(engine=...) out, and use what looks at its runs (hf.evaluate).",
        about=("model",),
    )


def _refuse_to_differentiate(*_: Any, function: Callable[..., Any], **__: Any) -> NoReturn:
    raise ForeignError(
        f"{_owner(function)}: another framework computes this model, whose gradients JAX cannot "
        f"differentiate again, nor its loss by the data; use a model of JAX's for what needs that.",
        about=("model",),
    )


def _refuse_to_batch(*_: Any, function: Callable[..., Any], **__: Any) -> NoReturn:
    raise ForeignError(
        f"{_owner(function)}: another framework computes this model, and takes one set of parameters at a "
        f"time; call it for each instead of jax.vmap.",
        about=("model",),
    )


def _owner(function: Callable[..., Any]) -> str:
    return getattr(getattr(function, "__self__", None), "name", "model")


_FOREIGN.def_impl(_run)
_FOREIGN.def_abstract_eval(lambda *_, shapes, **__: shapes)
mlir.register_lowering(_FOREIGN, _refuse_to_compile)
ad.primitive_jvps[_FOREIGN] = _refuse_to_differentiate
batching.primitive_batchers[_FOREIGN] = _refuse_to_batch
