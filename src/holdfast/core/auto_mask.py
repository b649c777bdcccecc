"""A mask that a run chooses after its first round, and algorithms with and without it."""

import dataclasses
from typing import Any, NoReturn

from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Masked
from holdfast.core.rule import Rule
from holdfast.core.struct import Struct
from holdfast.errors import HoldfastError
from holdfast.trees import Mask


@dataclasses.dataclass(frozen=True)
class AutoMask:
    """In place of a mask, until the drift diversity of a first round has chosen one."""

    def __call__(self, path: str) -> NoReturn:
        raise HoldfastError(
            f"Masked: whether `{path}` is masked is chosen after a first round, and there was none; run it "
            f"by hf.simulate, or give the mask itself, such as run.chosen_mask.parameters.",
            about=("mask",),
        )


AUTO = AutoMask()


def asks(algorithm: Algorithm) -> bool:
    """Whether a part of it waits for a mask."""
    return _waits(algorithm.rule)


def _waits(thing: Any) -> bool:
    return _is_waiting(thing) or any(_waits(value) for _, value in _inside(thing))


def _is_waiting(thing: Any) -> bool:
    return isinstance(thing, Masked) and thing.mask == AUTO


def places(algorithm: Algorithm) -> list[str]:
    """Where masks are waited for, as `hf.sweep` writes it: `rule.mask`, `rule.rules.0.mask` in a chain."""

    def inside(thing: Any, path: str) -> list[str]:
        if _is_waiting(thing):
            return [f"{path}.mask"]
        return [found for n, v in _inside(thing) for found in inside(v, f"{path}.{n}")]

    return inside(algorithm.rule, "rule")


def with_mask(algorithm: Algorithm, mask: Mask) -> Algorithm:
    """The same with this mask where it waits for one."""
    return _changed(algorithm, lambda waiting: dataclasses.replace(waiting, mask=mask))


def without(algorithm: Algorithm) -> Algorithm:
    """What it does before the mask is known: the masked rule is silent."""
    return _changed(algorithm, lambda waiting: Rule())


def _changed(algorithm: Algorithm, change: Any) -> Algorithm:
    return dataclasses.replace(algorithm, rule=_replaced(algorithm.rule, change))


def _replaced(thing: Any, change: Any) -> Any:
    if _is_waiting(thing):
        return change(thing)
    if not _waits(thing):
        return thing
    if isinstance(thing, tuple):
        return tuple(_replaced(one, change) for one in thing)
    new = {name: _replaced(value, change) for name, value in _inside(thing)}
    return dataclasses.replace(thing, **new)


def _inside(thing: Any) -> list[tuple[str, Any]]:
    """What stands directly inside, with its name."""
    if isinstance(thing, Struct):
        fields = dataclasses.fields(thing)  # type: ignore[arg-type]
        return [(field.name, getattr(thing, field.name)) for field in fields]
    return [(str(i), one) for i, one in enumerate(thing)] if type(thing) is tuple else []
