"""How many processes this machine has cores and memory for."""

import os
from pathlib import Path

# Bytes of a process that has imported what a run needs, before its data.
_LEAST = 500 * 10**6
# What of the memory that is free workers may take.
_PART = 0.8


def cores() -> int:
    """Cores that this process may use."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def room_for_processes(as_this_one: bool = False) -> int:
    """How many there is memory for, this one included; all as large as it has become, if that is said."""
    each = max(_LEAST, _resident()) if as_this_one else _LEAST
    free = _free() * _PART / each
    return 1 + int(min(free, 10**6))


def _free() -> float:
    """Bytes of memory that are free on this machine; without end where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    free = (float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return next(free, float("inf"))


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
