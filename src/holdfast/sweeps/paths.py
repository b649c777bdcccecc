"""Dotted paths into a method and its training: what stands there, and copies with another value."""

import dataclasses
import difflib
import numbers
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from holdfast.core.algorithm import Algorithm
from holdfast.core.hyper import PerClient
from holdfast.core.local import Local
from holdfast.core.struct import Struct
from holdfast.engine.experiment import Experiment
from holdfast.errors import HoldfastError
from holdfast.sweeps.naming import Point

# What stands at a path: a traced number, something fixed at compilation, or a rule, wire or compressor
# with fields of its own.
_Kind = Literal["number", "structure", "part"]


def at_point(given: Experiment, point: Point) -> Experiment:
    """The experiment with a point's values; constructors check them again."""
    for path, value in point.items():
        roots = _roots(given)
        known = dict(_paths_into(roots))
        if path not in known:
            raise HoldfastError(f"sweep: nothing is at `{path}`; {_nearest(path, known)}")
        _check_value(path, known[path], value)
        roots = _replaced(roots, path.split("."), value)
        algorithm = dataclasses.replace(
            given.algorithm, **{n: roots[n] for n in ("rule", "wire", "weighting")}
        )
        server = given.server
        if server is not None:
            server = dataclasses.replace(server, **roots["server"])
        given = dataclasses.replace(given, algorithm=algorithm, local=roots["local"], server=server)
    return given


def _nearest(path: str, known: Mapping[str, _Kind]) -> str:
    """What was probably meant, or all there is beside it."""
    inside = path.rpartition(".")[0]
    beside = [p for p in known if inside and p.rpartition(".")[0] == inside]
    names = {p.rpartition(".")[2]: p for p in beside}
    near = difflib.get_close_matches(path.rpartition(".")[2], names, n=1)
    if near:
        return f"did you mean `{names[near[0]]}`?"
    listed = beside or [p for p in known if p not in ("rule", "local", "server.local")]
    return f"can be swept: {', '.join(listed)}."


def _roots(given: Experiment) -> dict[str, Any]:
    algorithm = given.algorithm
    if not isinstance(algorithm, Algorithm) or not isinstance(given.local, Local | tuple):
        raise HoldfastError(
            f"sweep: algorithm is a {type(algorithm).__name__} and local a "
            f"{type(given.local).__name__}; give an hf.Algorithm and an hf.Local."
        )
    found: dict[str, Any] = {"rule": algorithm.rule, "wire": algorithm.wire}
    found |= {"local": given.local, "weighting": algorithm.weighting}
    if given.server is not None:
        server = given.server
        found["server"] = {
            "local": server.local,
            "gradient_batch_size": server.gradient_batch_size,
        }
    return found


def _parts(thing: Any) -> list[tuple[str, Any, bool]]:
    """Name, value and whether it is structure, for everything directly inside."""
    if isinstance(thing, Struct) and not isinstance(thing, PerClient):
        fields = dataclasses.fields(thing)  # type: ignore[arg-type]
        return [(f.name, getattr(thing, f.name), "static" in f.metadata) for f in fields]
    if isinstance(thing, Mapping):
        return [(str(name), value, False) for name, value in thing.items()]
    if isinstance(thing, tuple):
        return [(str(i), value, False) for i, value in enumerate(thing)]
    return []


def _paths_into(thing: Any, before: str = "", static: bool = False) -> Iterator[tuple[str, _Kind]]:
    """Every path that can be swept, and what stands there."""
    part = isinstance(thing, Struct) and not isinstance(thing, PerClient)
    parts = [] if static else _parts(thing)
    if before and (part or not parts):
        fixed = static or isinstance(thing, str)
        yield before.removesuffix("."), "part" if part else "structure" if fixed else "number"
    for name, value, is_static in parts:
        yield from _paths_into(value, f"{before}{name}.", is_static)


def _check_value(path: str, kind: _Kind, value: Any) -> None:
    if kind == "part" and not isinstance(value, Struct):
        raise HoldfastError(
            f"sweep: `{path}` is {value!r}; give a whole part such as hf.wires.Compressed(...), or name "
            f"a number inside it."
        )
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    hyper = number or value is None or callable(value) or isinstance(value, PerClient | np.ndarray)
    if kind == "number" and not hyper:
        raise HoldfastError(
            f"sweep: `{path}` is {value!r}; give a number, a schedule, an hf.PerClient or None."
        )


def _replaced(thing: Any, words: list[str], value: Any) -> Any:
    """A copy with another value at the path."""
    word, *rest = words
    inside = next(v for name, v, _ in _parts(thing) if name == word)
    new = _replaced(inside, rest, value) if rest else value
    if isinstance(thing, Mapping):
        return {**thing, word: new}
    if isinstance(thing, tuple):
        return tuple(new if str(i) == word else v for i, v in enumerate(thing))
    return dataclasses.replace(thing, **{word: new})
