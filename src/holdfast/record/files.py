"""Files that are written whole or not at all, and whether they still are what was written."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast import processes
from holdfast.errors import file_errors_said

PARTIAL = ".partial"


def write_whole(path: Path, *parts: str | bytes) -> None:
    """Write a file, one part after another; a kill at any moment leaves the old one or the new one.

    It is on the disk when this returns. Of the processes of a run, the first one writes.
    """
    if not processes.is_first():
        return
    with file_errors_said(path=path):
        _write_whole(path, parts)


def _write_whole(path: Path, parts: Iterable[str | bytes]) -> None:
    temporary = path.with_name(path.name + PARTIAL)
    with open(temporary, "wb") as file:
        for part in parts:
            file.write(part.encode() if isinstance(part, str) else part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    # A rename is durable only once the folder that holds the name is on disk.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def checksums(contents: Mapping[str, str | bytes]) -> str:
    """Names and SHA-256 of files, one a line, as `sha256sum` prints and checks them."""
    raw = {n: c.encode() if isinstance(c, str) else c for n, c in contents.items()}
    return "".join(f"{hashlib.sha256(c).hexdigest()}  {name}\n" for name, c in raw.items())


def damaged(sums: Path, names: Iterable[str]) -> list[str]:
    """Of these files beside one with checksums, those that are missing or do not fit; none without it."""
    if not sums.exists():
        return []
    lines = sums.read_text(errors="replace").splitlines()
    known = {name: value for value, _, name in (line.partition("  ") for line in lines)}
    return [name for name in names if _sum(sums.with_name(name)) != known.get(name)]


def _sum(path: Path) -> str:
    if not path.is_file():
        return "missing"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
