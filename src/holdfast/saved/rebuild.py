"""Make a model again from the name and the arguments that were noted when it was made."""

import hashlib
import warnings
from pathlib import Path
from typing import Any

from holdfast.config import own_code
from holdfast.errors import HoldfastError, HoldfastWarning, did_you_mean
from holdfast.models.constructor import REBUILDABLE
from holdfast.models.model import Model
from holdfast.saved.description import Description


def code_digest(constructor: Any) -> str | None:
    """A checksum of the user's own files that a constructor names; None if it names none that are there."""
    files = [Path(name.rpartition(":")[0]) for name in _own_names(constructor)]
    if not files or not all(path.is_file() for path in files):
        return None
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _own_names(constructor: Any) -> list[str]:
    if not isinstance(constructor, dict):
        return []
    name, given = _parts(constructor)
    inner = [own for value in given.values() for own in _own_names(value)]
    return [name, *inner] if own_code.is_own(name) else inner


def rebuilt(description: Description, path: object, trust: bool = False) -> Model:
    """The model a description names. Code of the user's own runs under the rule of experiment files."""
    constructor = description.constructor
    if constructor is None:
        why = description.unbuildable or "it does not say how its model is made"
        raise HoldfastError(
            f"{path}: {why}; make that model yourself and give hf.load(path, model=...).",
            about=("model",),
        )
    try:
        _warn_of_changes(description)
        return _made(constructor, trust)
    except HoldfastError as error:
        raise HoldfastError(
            f"{path}: its model cannot be made: {error} Or make it yourself and give hf.load(path, "
            f"model=...).",
            about=("model",),
        ) from None


def _warn_of_changes(description: Description) -> None:
    own = _own_names(description.constructor)
    now = code_digest(description.constructor)
    if now is not None and description.code is not None and now != description.code:
        files = ", ".join(name.rpartition(":")[0] for name in own)
        warnings.warn(
            f"{files} is not what the model was trained with (another checksum); predictions may differ.",
            HoldfastWarning,
            stacklevel=5,
        )


def _made(constructor: Any, trust: bool) -> Model:
    name, given = _parts(constructor)
    own = own_code.is_own(name)
    if own:
        function = own_code.find("model", name, own_code.Trust(given=trust))
    elif name in REBUILDABLE:
        function = REBUILDABLE[name]
    else:
        raise HoldfastError(f"no model is called `{name}`; {did_you_mean(name, REBUILDABLE)}")
    arguments = {n: _made(v, trust) if isinstance(v, dict) else v for n, v in given.items()}
    with own_code.explained(f"model `{name}`"):
        made = function(**arguments)
    if not isinstance(made, Model):
        raise HoldfastError(f"model `{name}` returned a {type(made).__name__}; return an hf.Model.")
    return made


def _parts(constructor: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(constructor, dict) and constructor.keys() == {"name", "arguments"}:
        name, given = constructor["name"], constructor["arguments"]
        if isinstance(name, str) and isinstance(given, dict):
            return name, given
    raise HoldfastError("its constructor has no name and arguments.")
