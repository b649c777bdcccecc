"""What goes to other processes as bytes: experiments with their data, functions and classes of a notebook."""

import contextlib
import functools
import io
import mmap
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import jax
import numpy as np

_JITTED = type(jax.jit(lambda: None))


def packed(value: Any, same_files: bool = False) -> bytes:
    """Values, functions and classes, those of a script or a notebook by what is in them.

    Args:
        value: what is sent.
        same_files: memory-mapped arrays are sent as where they lie, for whoever sees the same files.
    """
    paper = io.BytesIO()
    _Pickler(paper, same_files).dump(value)
    return paper.getvalue()


def opened(name: str, contents: bytes | Path) -> Any:
    """What was packed, or is in this file: one value for all who ask for this name in a process, so that
    its programs are compiled once."""
    with _one_at_a_time:
        if name not in _opened:
            if isinstance(contents, Path):
                contents = contents.read_bytes()
            # What other jobs were sent before is not needed any more.
            _opened.clear()
            _opened[name] = pickle.loads(contents)
        return _opened[name]


@contextlib.contextmanager
def open_here(name: str, value: Any) -> Iterator[None]:
    """Inside, whoever opens it in this process gets this value."""
    _opened[name] = value
    try:
        yield
    finally:
        _opened.pop(name, None)


_opened: dict[str, Any] = {}
_one_at_a_time = threading.Lock()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, same_files: bool) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._same_files = same_files

    def reducer_override(self, value: Any) -> Any:
        if type(value) is _JITTED:
            # Names are part of what a run is known by, and JAX's own way forgets those of the function.
            return (*value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)[:3], None, None, _with_names)
        # A slice has the place of what it was cut from.
        whole = isinstance(value, np.memmap) and isinstance(value.base, mmap.mmap)
        if whole and self._same_files and value.filename is not None:
            order = "C" if value.flags.c_contiguous else "F"
            place = (value.filename, value.dtype, "r", value.offset, value.shape, order)
            return np.memmap, place
        found = super().reducer_override(value)
        if isinstance(value, type) and isinstance(found, tuple) and len(found) == 6:
            # A class that is sent whole: the name of a local one would lose where it is local to.
            found[2][0]["__qualname__"] = value.__qualname__
        return found


def _with_names(jitted: Any, state: dict[str, Any]) -> None:
    jitted.__setstate__(state)
    functools.update_wrapper(jitted, state["fun"])
