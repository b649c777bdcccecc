"""Small and read-only file systems, real ones: root may write where permissions say no, but not to these."""

import contextlib
import functools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def _unmount(place: Path) -> None:
    # Lazily, for somebody may be looking at it.
    subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


@functools.cache
def permitted() -> bool:
    """Whether file systems may be mounted here."""
    with tempfile.TemporaryDirectory() as place:
        try:
            with of_size(Path(place), 1):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


@contextlib.contextmanager
def of_size(place: Path, kilobytes: int) -> Iterator[None]:
    """A file system of that size, in memory, in this folder."""
    place.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={max(kilobytes, 4)}k", "tmpfs", str(place))
    try:
        yield
    finally:
        _unmount(place)


def resize(place: Path, kilobytes: int) -> None:
    """Make room in one."""
    _mount("-o", f"remount,size={kilobytes}k", str(place))


@contextlib.contextmanager
def read_only(place: Path) -> Iterator[None]:
    """A folder that nobody can write to."""
    _mount("--bind", str(place), str(place))
    try:
        _mount("-o", "remount,bind,ro", str(place))
        yield
    finally:
        _unmount(place)
