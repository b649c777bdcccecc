"""`site.toml`: where a site's own data is, and what it takes part in. It stays at the site.

name = "north"                 # as the server knows it
folder = "north"               # what it remembers; paths are relative to this file

[data]
file = "north.npz"             # arrays x and y; test_x and test_y are held out

[allow]                        # unless given, what the app brings
algorithms = ["0f3a..."]
models = ["77d1..."]
"""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.clients import Examples
from holdfast.deploy.site import Site
from holdfast.engine.experiment import Experiment
from holdfast.errors import HoldfastError, did_you_mean, file_errors_said
from holdfast.trees import Tree

_KEYS: dict[str, dict[str, type]] = {
    "": {"name": str, "folder": str, "data": dict, "allow": dict},
    "data": {"file": str},
    "allow": {"algorithms": list, "models": list},
}


def site_from_file(path: str | Path, experiment: Experiment) -> Site:
    """A site as its file describes it.

    Args:
        path: of `site.toml`.
        experiment: what the app runs.
    """
    path = Path(path)
    given = _read(path)
    _check(path, "", given)
    missing = [key for key in ("name", "folder", "data") if key not in given]
    if missing:
        raise HoldfastError(f"{path}: `{missing[0]}` is missing.", about=(missing[0],))
    for section in ("data", "allow"):
        _check(path, section, given.get(section, {}))
    if "file" not in given["data"]:
        raise HoldfastError(f"{path}: `file` of [data] is missing.", about=("data", "file"))
    train, tests = _examples(path.parent / given["data"]["file"])
    allow = given.get("allow", {})
    return Site(
        experiment,
        train,
        path.parent / given["folder"],
        given["name"],
        tests=tests,
        algorithms=allow.get("algorithms"),
        models=allow.get("models"),
    )


@file_errors_said()
def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise HoldfastError(f"{path} is no TOML: {error}") from None


def _check(path: Path, section: str, given: dict[str, Any]) -> None:
    known = _KEYS[section]
    for key, value in given.items():
        where = f" of [{section}]" if section else ""
        if key not in known:
            raise HoldfastError(
                f"{path}: unknown key `{key}`{where}; {did_you_mean(key, known)}", about=(key,)
            )
        words = isinstance(value, known[key]) and (
            not isinstance(value, list) or all(isinstance(word, str) for word in value)
        )
        if not words:
            raise HoldfastError(
                f"{path}: `{key}`{where} is {value!r}; give a {known[key].__name__}"
                f"{' of words' if known[key] is list else ''}.",
                about=(key,),
            )


@file_errors_said()
def _examples(path: Path) -> tuple[Examples, Tree]:
    """Training examples and held-out ones, from arrays in a file; nothing in it can run code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise HoldfastError(f"there is no file {path}.", about=("data", "file")) from None
    except (ValueError, EOFError) as error:
        raise HoldfastError(
            f"{path} has no arrays that can be read ({error}); write it with np.savez(x=..., y=...).",
            about=("data", "file"),
        ) from None
    if not {"x", "y"} <= found.keys():
        raise HoldfastError(
            f"{path} has {', '.join(sorted(found)) or 'nothing'}; write it with np.savez(x=..., y=...).",
            about=("data", "file"),
        )
    tests = None
    if {"test_x", "test_y"} <= found.keys():
        tests = Examples(found["test_x"], found["test_y"])
    return Examples(found["x"], found["y"]), tests
