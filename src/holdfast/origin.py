"""Where an error came from: lines of somebody's own code, without holdfast's and those of libraries."""

import linecache
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from holdfast.errors import HoldfastError

_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_MOST_LINES = 3


def own_lines(error: BaseException) -> list[tuple[FrameType, int]]:
    """Frames of own code an error passed, from the outermost to where it was raised, and their lines."""
    return [(trace.tb_frame, trace.tb_lineno) for trace in _own(error)]


def place(error: BaseException) -> str | None:
    """The last line of own code an error passed, such as `MyRule.reply (mine.py, line 7)`; None without."""
    found = own_lines(error)
    if not found:
        return None
    frame, line = found[-1]
    name = frame.f_code.co_qualname.replace("<locals>.", "").removesuffix("<module>")
    where = f"{shown(frame.f_code.co_filename)}, line {line}"
    return f"{name} ({where})" if name else where


def excerpt(error: BaseException | None) -> list[str]:
    """Own lines as they are written, the last few of them, of an error or of what it was raised for."""
    while error is not None and not own_lines(error):
        error = error.__cause__ or error.__context__
    return [
        f"{shown(frame.f_code.co_filename)}, line {line}: "
        f"{linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()}"
        for frame, line in ([] if error is None else own_lines(error)[-_MOST_LINES:])
    ]


def shown(file: str) -> str:
    """A file as it is called from here, or a notebook's cell by its number."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = None if shell is None else shell.compile.format_code_name(file)
    if named is not None:
        return " ".join(named)
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


class OwnCodeSaid:
    """Inside, an error keeps its type and loses what is not for its reader to mend.

    The traceback is left with lines of their own code, and a note says in which function of theirs it was
    raised. What JAX says of a value that is asked for while a program is being traced is said in words of
    this library. An error of anything else that came through no code of theirs is holdfast's own mistake
    and passes as it is. With JAX_TRACEBACK_FILTERING=off nothing is left out.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from jax import config

        whole = config.jax_traceback_filtering == "off"  # type: ignore[attr-defined]
        if not isinstance(error, Exception) or whole:
            return
        where = place(error)
        asked = None if where is None else of_traced_value(error)
        if asked is not None:
            raise asked from None
        if where is not None and not isinstance(error, HoldfastError):
            _note(error, f"Raised by {where}, which holdfast called.")
        elif not isinstance(error, HoldfastError):
            return
        error.__traceback__ = _chained(list(_own(error)))
        if error.__cause__ is not None and not own_lines(error.__cause__):
            error.__cause__ = None
        if error.__context__ is not None and not own_lines(error.__context__):
            error.__suppress_context__ = True


def _note(error: Exception, note: str) -> None:
    # JAX says that it has left out frames of its own.
    said = [n for n in getattr(error, "__notes__", ()) if "JAX has removed its" not in n]
    error.__notes__ = said if note in said else [*said, note]


def of_traced_value(error: BaseException) -> HoldfastError | None:
    """What to do about `if` and the like on a value that is not there while a program is traced."""
    from jax import errors

    kinds = (
        errors.ConcretizationTypeError,
        errors.TracerArrayConversionError,
        errors.TracerIntegerConversionError,
        errors.NonConcreteBooleanIndexError,
    )
    where = place(error)
    if where is None or not isinstance(error, kinds):
        return None
    frame, line = own_lines(error)[-1]
    text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    written = f": `{text}`" if text else ""
    asks, instead = "needs the value of an array", "compute with it by jax.numpy instead"
    if isinstance(error, errors.TracerBoolConversionError):
        asks = "decides by the value of an array"
        instead = "choose values by jnp.where(condition, a, b), or computations by jax.lax.cond"
    elif isinstance(error, errors.TracerArrayConversionError):
        instead = "use jax.numpy instead of numpy on it"
    return HoldfastError(
        f"{where}{written} {asks}, which is not known while the round is being compiled; {instead}."
    )


def _own(error: BaseException) -> Iterator[TracebackType]:
    trace = error.__traceback__
    while trace is not None:
        if _is_own(trace.tb_frame):
            yield trace
        trace = trace.tb_next


def _is_own(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file == "<string>":  # `python -c`; dataclasses make functions of that name too
        return frame.f_globals.get("__name__") == "__main__"
    if file.startswith("<"):
        return file.startswith(("<stdin", "<ipython", "<doctest"))
    if file.startswith((_PACKAGE, *_STANDARD)):
        return False
    return not any(library in Path(file).parts for library in _LIBRARIES)


def _chained(traces: list[TracebackType]) -> TracebackType | None:
    found: TracebackType | None = None
    for trace in reversed(traces):
        found = TracebackType(found, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return found
