"""Functions of one's own in an experiment file, `file.py:function`: found by path, run if trusted."""

import contextlib
import dataclasses
import hashlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.origin import shown


@dataclasses.dataclass(frozen=True)
class Trust:
    """Whose code may run: that of the one who asks, in the folder where it is asked; or any, if told so."""

    experiment: Path | None = None  # the file that names the code
    given: bool = False  # by --trust


# One module for each state of each file, and for each folder what its files imported of it.
_loaded: dict[tuple[Path, int, int], ModuleType] = {}
_siblings: dict[Path, dict[str, ModuleType]] = {}


def is_own(name: str) -> bool:
    """Whether a name stands for a function in a file, not for one of the catalogue."""
    return ":" in name


def find(kind: str, name: str, trust: Trust) -> Callable[..., Any]:
    """The function that `file.py:function` names; the file is run to get it."""
    written, _, attribute = name.rpartition(":")
    if not written.endswith(".py") or not attribute.isidentifier() or "\0" in written:
        raise HoldfastError(
            f"{kind} `{name}` is no name of holdfast's and no `file.py:function`; modules are not imported "
            f"by name: write a file that imports what you need, and name the function in it."
        )
    path = _existing(kind, name, written)
    _check_trust(kind, name, path, trust)
    found = getattr(_load(kind, name, written, path), attribute, None)
    if found is None:
        raise HoldfastError(
            f"{kind} `{name}`: {written} has no `{attribute}`; name one that it has."
        )
    if not inspect.isroutine(found) and not inspect.isclass(found):
        raise HoldfastError(f"{kind} `{name}` is a {type(found).__name__}; give a function.")
    return found


def _existing(kind: str, name: str, written: str) -> Path:
    try:
        path = Path(written).resolve()
        if path.is_file():
            return path
    except OSError:  # such as a name that is too long
        pass
    raise HoldfastError(
        f"{kind} `{name}`: there is no file {written}; paths are relative to the current folder, "
        f"{Path.cwd()}."
    )


def _check_trust(kind: str, name: str, path: Path, trust: Trust) -> None:
    """Refuse code that somebody else may have written."""
    if trust.given:
        return
    here = Path.cwd().resolve()
    why = None
    if not path.is_relative_to(here):
        why = f"lies outside the current folder, {here}"
    elif _is_foreign(path):
        why = "belongs to another user"
    elif trust.experiment is not None and _is_foreign(trust.experiment):
        why = "is named by an experiment file that belongs to another user"
    if why is not None:
        raise HoldfastError(
            f"{kind} `{name}` runs the code of {path}, which {why}; read it first, then add --trust."
        )


def _is_foreign(path: Path) -> bool:
    return hasattr(os, "getuid") and path.exists() and path.stat().st_uid != os.getuid()


def _load(kind: str, name: str, written: str, path: Path) -> ModuleType:
    state = path.stat()
    key = (path, state.st_mtime_ns, state.st_size)
    if key not in _loaded:
        module_name = _module_name(written)
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Classes look up their module by its name while they are made.
        sys.modules[module_name] = module
        try:
            with explained(f"{kind} `{name}`"), _beside(path.parent):
                spec.loader.exec_module(module)
        except HoldfastError:
            del sys.modules[module_name]
            raise
        _loaded[key] = module
    return _loaded[key]


def _module_name(written: str) -> str:
    """A name for a file's module, which is part of a run's identity: by the path as it is written.

    So it is the same in every process and on every machine that runs the experiment file, and no
    installed module has it.
    """
    path = Path(os.path.normpath(written))
    stem = re.sub(r"\W", "_", path.stem)
    return f"{stem}_{hashlib.sha256(path.as_posix().encode()).hexdigest()[:8]}"


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let a file import files beside it; those of another folder may have the same names."""
    known = _siblings.setdefault(folder, {})
    hidden = {name: sys.modules[name] for name in known if name in sys.modules}
    sys.modules.update(known)
    sys.path.insert(0, str(folder))
    before = set(sys.modules)
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if _lies_in(sys.modules[name], folder):
                known[name] = sys.modules[name]
        for name in known:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if file is None:
        return False
    path = Path(file).resolve()
    # An environment inside the folder is no code of one's own.
    return path.is_relative_to(folder) and "site-packages" not in path.parts


@contextlib.contextmanager
def explained(what: str, anywhere: bool = True) -> Iterator[None]:
    """Say in one line what code of one's own raised, and on which line of it.

    Unless `anywhere`, an error that came through no file of one's own is left as it is.
    """
    try:
        yield
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:
        if not anywhere and line_in_own_code(error) is None:
            raise
        raise HoldfastError(f"{what} failed: {describe(error)}; mend it there.") from error


def describe(error: BaseException) -> str:
    """What was raised and where, in one line: the last line of one's own code on the way."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown(error.filename)}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    said = " ".join(str(error).split()) or "no message"
    said = said if len(said) <= 300 else f"{said[:297]}..."
    line = line_in_own_code(error)
    return f"{f'{line}: ' if line else ''}{type(error).__name__}: {said}"


def line_in_own_code(error: BaseException) -> str | None:
    """Where in own files an error came from; None if it came through none of them."""
    folders = {path.parent for path, _, _ in _loaded} | set(_siblings)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(Path(frame.filename).parent == folder for folder in folders)
    ]
    return f"{shown(frames[-1].filename)}, line {frames[-1].lineno}" if frames else None
