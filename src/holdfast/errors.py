"""What goes wrong is said in one line: what was given, what was expected, what to do."""

import contextlib
import difflib
import errno
import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
About: TypeAlias = tuple[str | int, ...]

# Arguments and keys that were called something else: old name -> what it may be called now.
RENAMED = {
    "bends": ("curvature",),
    "optimum": ("solver",),
    "most": ("max_steps", "max_examples"),
    "least": ("min_examples", "min_bytes"),
    "smallest": ("min_examples",),
    "steepest": ("max_curvature",),
    "flattest": ("min_curvature",),
    "judge": ("metrics",),
    "convex": ("case",),
}


class HoldfastError(ValueError):
    """A request that cannot work; the message says why and what to do instead.

    `about` is the path to what is refused: of a function or constructor its own argument, such as
    `("alpha",)`; of a run the part of the experiment, such as `("local", "learning_rate")`,
    `("algorithm", "wire")` or `("data",)`. An experiment file finds the line by it.
    """

    exit_code = 2  # of the command

    def __init__(self, message: str = "", *, about: About = ()) -> None:
        super().__init__(message)
        self.about = about


class UnknownArgumentError(HoldfastError, TypeError):
    """An argument nobody asked for, usually a typing mistake."""


class HoldfastWarning(UserWarning):
    """Something was put right on the way and the user should know."""


class FileAccessError(HoldfastError):
    """The operating system does not let a file be read or written: disk full, no permission, no folder."""

    exit_code = 74  # as sysexits.h has it


class FolderInUseError(HoldfastError):
    """Another run writes to a folder."""

    exit_code = 75  # as sysexits.h has it: try again later


class RoundFailedError(HoldfastError):
    """A round in which not one client returned a finite update."""


_REMEDIES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room on the disk",
    errno.EFBIG: "allow larger files there",
    errno.EACCES: "see to it that you may read and write there, or give another path",
    errno.EPERM: "see to it that you may read and write there, or give another path",
    errno.EROFS: "make it writable, or give another path",
    errno.ENOENT: "make its folder first, or give another path",
    errno.ENOTDIR: "give a path whose folders are folders",
    errno.EEXIST: "give another path",
    errno.EISDIR: "give the path of a file",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EIO: "the disk is failing: save what is on it",
}


def in_plain_words(error: OSError) -> str:
    """What the operating system refused, of which file, and what to do, without a full stop."""
    what = error.strerror or str(error) or type(error).__name__
    where = "" if error.filename is None else f"{error.filename}: "
    remedy = _REMEDIES.get(error.errno or 0, "see what is wrong with it, then try again")
    return f"{where}{what[:1].lower()}{what[1:]}; {remedy}"


@contextlib.contextmanager
def file_errors_said(then: str = "", path: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """What the operating system refuses, as an error of holdfast's.

    `then` comes after the remedy; `path` is the file where the error names none, as of a full disk.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and path is not None:
            error.filename = os.fspath(path)
        raise FileAccessError(f"{in_plain_words(error)}{then}.") from error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A closing clause: the nearest known word, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known) or 'none'}."


def right_name(word: str, known: Iterable[str]) -> str:
    """The same for an argument or a key, which may have been called otherwise."""
    known = list(known)
    now = next((name for name in RENAMED.get(word, ()) if name in known), None)
    return did_you_mean(word, known) if now is None else f"it is called `{now}` now."


def first_wrong(**right: bool) -> About:
    """What an error is about: the first of several arguments that is not right."""
    return next(((name,) for name, fine in right.items() if not fine), ())


def brief(given: object) -> str:
    """A value in a message: on one line, and not all of a long one."""
    text = " ".join(repr(given).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def expect(owner: str, name: str, given: object, kind: type, example: str) -> None:
    """Refuse an argument of another type, such as the name of what was meant."""
    if not isinstance(given, kind):
        raise HoldfastError(
            f"{owner}: {name}={brief(given)} is a {type(given).__name__}; give {_a(kind.__name__)}, such as "
            f"{example}.",
            about=(name,),
        )


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'AEIOU' else 'a'} {noun}"


def whole_number(owner: str, name: str, value: object, least: int = 1) -> int:
    """A number that counts something, of Python's or NumPy's types, as Python's; refuses any other."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or int(value) < least:  # type: ignore[call-overload]
        raise HoldfastError(
            f"{owner}: {name}={value!r}; give a whole number of at least {least}.", about=(name,)
        )
    return int(value)  # type: ignore[call-overload]


def explain_arguments(function: Callable[P, R], owner: str | None = None) -> Callable[P, R]:
    """Give a misspelt keyword its correction instead of Python's bare TypeError."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return function
    names = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_POSITIONAL]
    label = owner or function.__name__

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs:
            if word not in names:
                raise UnknownArgumentError(
                    f"{label}: unknown argument `{word}`; {right_name(word, names)}", about=(word,)
                ) from None
        return function(*args, **kwargs)

    return checked


def explain_constructor(cls: type[R]) -> type[R]:
    """The same for a class and its fields."""
    cls.__init__ = explain_arguments(cls.__init__, owner=cls.__name__)  # type: ignore[method-assign]
    return cls
