"""Every name of the catalogue as `described.json` has it, for commands that should not wait for JAX.

The file is written from the code by `python -m holdfast.config.describe`; a test compares the two.
"""

import dataclasses
import functools
import json
from importlib import resources
from typing import Any

from holdfast.errors import HoldfastError, did_you_mean

FILE = "described.json"


@dataclasses.dataclass(frozen=True)
class Description:
    """What is known of one name without its code."""

    title: str  # the first line of its docstring
    body: str
    equation: str
    travels: str
    tells: str
    arguments: dict[str, str]
    reduces_to: str
    reference: str
    signature: str  # what to write in Python
    entry: str  # what to write in an experiment file
    swept: str  # an argument of which several values can be tried; empty if there is none
    # By argument: the type of what a file may give, as `schema.py` would write it; marked if it must.
    fields: dict[str, str]
    tables: dict[str, str]  # arguments that are tables of their own, and the kind these name


_REQUIRED = "required "


def mark(kind: str, required: bool) -> str:
    """A type, marked if something of it must be there."""
    return f"{_REQUIRED}{kind}" if required else kind


def unmarked(fields: dict[str, str]) -> dict[str, tuple[str, bool]]:
    """Types by argument, and whether something of them must be there."""
    return {n: (k.removeprefix(_REQUIRED), k.startswith(_REQUIRED)) for n, k in fields.items()}


@functools.cache
def _written() -> dict[str, Any]:
    text = (resources.files("holdfast.config") / FILE).read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def titles() -> dict[str, str]:
    """Kinds of things that have names, and what `holdfast list` calls them."""
    found: dict[str, str] = _written()["titles"]
    return found


def names(kind: str) -> dict[str, str]:
    """The names of a kind, each with its first line."""
    return {name: about["title"] for name, about in _written()["kinds"][kind].items()}


def find(kind: str, name: str) -> Description:
    """What is known of a name; a sentence with the nearest if there is none."""
    known = _written()["kinds"][kind]
    if name not in known:
        raise HoldfastError(f"unknown {kind} `{name}`; {did_you_mean(name, known)}")
    return Description(**known[name])


def kinds_of(name: str) -> list[str]:
    """The kinds in which a name is known; a sentence with the nearest if it is not."""
    kinds = [kind for kind in titles() if name in _written()["kinds"][kind]]
    if not kinds:
        hint = did_you_mean(name, [n for kind in titles() for n in names(kind)])
        hint = hint if hint.startswith("did") else "`holdfast list` shows every name."
        raise HoldfastError(f"nothing is called `{name}`; {hint}")
    return kinds


def local() -> dict[str, str]:
    """What `[local]` may have, as `Description.fields` says it."""
    found: dict[str, str] = _written()["local"]
    return found
