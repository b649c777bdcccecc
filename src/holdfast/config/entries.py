"""How one name is written in an experiment file."""

import typing
from typing import Any

from holdfast.config import catalogue, schema, signatures

_LOCATIONS = {
    "algorithm": "[[algorithm]]",
    "compressor": "compressor = ",
    "clip": "adaptive_clip = ",
    "wire": "wire = ",
    "aggregate": "aggregate = ",
    "solver": "solver = ",
    "optimizer": "optimizer = ",
    "schedule": "learning_rate = ",
    "loss": "loss = ",
    "evaluator": "[[evaluate.also]]",
}
# What to show for an argument that must be given, where a bare number would not do.
_VALUES = {
    "mask": '"classifier"',
    "compressor": '{ name = "RandK", share = 0.01 }',
    "inner": '{ name = "Compressed", compressor = { name = "Cast" } }',
    "path": '"data.csv"',
    "label": '"diagnosis"',
    "which": '"a9a"',
    "hidden": "[64]",
    "levels": "7",
    "weights": "[0.5, 0.3, 0.2]",
    "factor": "0.1",
}
_OWN_VALUES = {("cohort", "rounds"): "[[0, 1], [2, 3]]", ("schedule", "rounds"): "[50, 75]"}
_CHOICES = {"RandK": {"share": "0.01"}, "TopK": {"share": "0.01"}, "cosine": {"rounds": "100"}}
_PLAIN: dict[Any, str] = {int: "10", str: '"..."', bool: "true"}


def entry(kind: str, name: str) -> str:
    """How an experiment file asks for a name, with the arguments it must have."""
    if kind == "metric":
        return f'[evaluate]\nmetrics = ["{name}"]'
    function = catalogue.KINDS[kind][name]
    types_of = signatures.hints(function)
    known = signatures.supplied(function) if kind == "evaluator" else {}
    required = {
        n: _value(kind, n, types_of[n])
        for n, p in catalogue.settings(function).items()
        if p.default is p.empty and n not in schema.FROM_DATA and n not in known
    }
    if kind == "optimizer":
        required.pop("learning_rate", None)  # that of [local]
    key = "schedule" if kind == "schedule" else "name"
    # An entry of [[algorithm]] has its clip by a key of its own, without a name.
    named = {} if kind == "clip" else {key: f'"{name}"'}
    values = {**named, **required, **_CHOICES.get(name, {})}
    location = _LOCATIONS.get(kind, f"[{kind}]")
    if location.endswith("= "):
        inside = ", ".join(f"{n} = {v}" for n, v in values.items())
        return f"{location}{{ {inside} }}"
    return "\n".join([location, *(f"{n} = {v}" for n, v in values.items())])


def is_number(algorithm: str, argument: str) -> bool:
    """Whether a method's argument is a hyper-parameter: a number, a schedule or one per client."""
    hints = signatures.hints(catalogue.KINDS["algorithm"][algorithm])
    return argument in hints and signatures.is_hyper(hints[argument])


def _value(kind: str, name: str, hint: Any) -> str:
    known = _OWN_VALUES.get((kind, name)) or _VALUES.get(name)
    if known:
        return known
    options = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return f'"{options[0]}"'
    return _PLAIN.get(hint, "0.1")
