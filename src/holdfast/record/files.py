"""Files that are written whole or not at all."""

import os
from pathlib import Path

from holdfast import processes

PARTIAL = ".partial"


def write_whole(path: Path, *parts: str | bytes) -> None:
    """Write a file, one part after another; a kill at any moment leaves the old one or the new one.

    It is on the disk when this returns. Of the processes of a run, the first one writes.
    """
    if not processes.is_first():
        return
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
