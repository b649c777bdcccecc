"""A limit on memory while a file is checked: a slip of the pen in a size must not end the process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]


def _kilobytes(path: str, name: str) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:  # there is no /proc but on Linux
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), None)


@contextlib.contextmanager
def no_more_than_there_is() -> Iterator[None]:
    """Let what the machine has no memory for be a MemoryError.

    Without it Linux hands out memory that it has not, and ends the process when it is written to.
    Files mapped to be read do not count.
    """
    used = _kilobytes("/proc/self/status", "VmData:")
    free = _kilobytes("/proc/meminfo", "MemAvailable:")
    if resource is None or used is None or free is None:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = (used + free) * 1024
    known = [value for value in (before, most) if value != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([limit, *known]), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))
