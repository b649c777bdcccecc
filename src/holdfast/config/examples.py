"""Experiment files to start from, and how one name is written in a file."""

import inspect
from importlib import resources
from typing import Any

from holdfast import catalogue
from holdfast.config import schema
from holdfast.errors import HoldfastError, did_you_mean


def names() -> list[str]:
    """The examples there are."""
    folder = resources.files("holdfast.config") / "templates"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def text(name: str) -> str:
    """One of them."""
    if name not in names():
        raise HoldfastError(f"--example {name}: unknown; {did_you_mean(name, names())}")
    return (resources.files("holdfast.config") / "templates" / f"{name}.toml").read_text("utf-8")


_PLACES = {
    "algorithm": "[[algorithm]]",
    "compressor": "compressor = ",
    "wire": "wire = ",
    "solver": "optimum = ",
    "optimizer": "optimizer = ",
    "schedule": "learning_rate = ",
}
_VALUES: dict[str, Any] = {"mask": '"classifier"', "compressor": '{ name = "RandK", share = 0.01 }'}


def entry(kind: str, name: str) -> str:
    """How an experiment file asks for a name, with the arguments it must have."""
    function = catalogue.KINDS[kind][name]
    key = "schedule" if kind == "schedule" else "name"
    required = [
        (n, _value(n, p))
        for n, p in catalogue.settings(function).items()
        if p.default is p.empty and n not in schema.FROM_DATA
    ]
    values = [(key, f'"{name}"'), *required]
    place = _PLACES.get(kind, f"[{kind}]")
    if place.endswith("= "):
        inside = ", ".join(f"{n} = {v}" for n, v in values)
        return f"{place}{{ {inside} }}"
    return "\n".join([place, *(f"{n} = {v}" for n, v in values)])


def _value(name: str, parameter: inspect.Parameter) -> str:
    if name in _VALUES:
        return str(_VALUES[name])
    kinds = {int: "10", str: '"..."'}
    if name in schema.NESTED:
        return '{ name = "..." }'
    return kinds.get(parameter.annotation, "0.1")
