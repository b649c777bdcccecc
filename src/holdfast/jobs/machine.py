"""How many processes this machine has cores and memory for."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Where Linux keeps the limits of control groups, such as a container's.
_GROUPS = Path("/sys/fs/cgroup")
# Bytes of a process that has imported what a run needs, before its data.
_LEAST = 500 * 10**6
# What of the memory that is free workers may take.
_PART = 0.8


def cores() -> int:
    """Cores that this process may use; a container may have time for fewer than it sees."""
    limits = (group.joinpath("cpu.max").read_text().split() for group in _groups("cpu.max"))
    return max(1, min([_seen(), *(int(t) // int(of) for t, of in limits if t != "max")]))


def _seen() -> int:
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def threads() -> int:
    """How many XLA has for an operation in this process, or will have when it starts."""
    given, jax = os.environ.get("NPROC", ""), sys.modules.get("jax")
    devices = (
        os.environ.get("JAX_NUM_CPU_DEVICES", 0) if jax is None else jax.config.jax_num_cpu_devices
    )
    return max(int(given) if given.isdigit() else _seen(), int(devices))


def one_device() -> dict[str, str]:
    """The environment of a process that has one device, and the bits of this one.

    Of a large product (784 x 128 by 128 x 10 is one) the number of threads decides how it is added up.
    """
    return {"JAX_NUM_CPU_DEVICES": "1", "NPROC": str(threads())}


def room_for_processes(as_this_one: bool = False) -> int:
    """How many there is memory for, this one included; all as large as it has become, if that is said."""
    each = max(_LEAST, _resident()) if as_this_one else _LEAST
    free = _free() * _PART / each
    return 1 + int(min(free, 10**6))


def _free() -> float:
    """Bytes of memory that are free for this process; without end where the machine does not say."""
    found = [float("inf")]
    with contextlib.suppress(OSError):
        found += _amounts(Path("/proc/meminfo"), "MemAvailable:", 1024)
    for group in _groups("memory.max"):
        if (limit := group.joinpath("memory.max").read_text().strip()) != "max":
            # Files that nobody reads any more are given up when memory is asked for.
            unread = sum(_amounts(group / "memory.stat", "inactive_file"))
            used = float(group.joinpath("memory.current").read_text()) - unread
            found.append(max(0.0, float(limit) - used))
    return min(found)


def _amounts(path: Path, name: str, unit: int = 1) -> list[float]:
    lines = (line.split() for line in path.read_text().splitlines())
    return [float(words[1]) * unit for words in lines if words[0] == name]


def _groups(file: str) -> Iterator[Path]:
    """Control groups of this process that have such a file, from its own to the outermost."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    for folder in (_GROUPS / own, *(_GROUPS / own).parents):
        if folder.is_relative_to(_GROUPS) and (folder / file).exists():
            yield folder


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
