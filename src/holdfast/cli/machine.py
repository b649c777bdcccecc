"""The machine a command runs on: its cores, and programs that were compiled before."""

import gc
import os
import sys
from pathlib import Path
from typing import Any

_command_is_process = False


def give_process() -> None:
    """Say that this process is there for one command, which may set up JAX as it needs it."""
    global _command_is_process
    _command_is_process = True


def use_if_given() -> None:
    """All cores, and what was compiled once is kept; but in a process that is somebody else's nothing."""
    if _command_is_process:
        use_machine()


def cache_folder() -> Path:
    """Where what can be made again is kept for the user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"


def is_process_of_command() -> bool:
    """Whether this process is there for one command."""
    return _command_is_process


def cache_variables() -> dict[str, str]:
    """What tells JAX in another process to use the cache that `use_machine` sets up."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or not _command_is_process:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(cache_folder() / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def use_machine() -> None:
    """One device per core, and a cache of compiled programs; JAX's own variables have precedence."""
    # What is imported stays until the process ends. Python would look through it for garbage again and
    # again: a fifth of what a start takes before it compiles.
    gc.disable()
    import jax

    import holdfast.algorithms
    import holdfast.engine.simulate
    import holdfast.models  # noqa: F401
    from holdfast.engine.layout import LEAVES
    from holdfast.jobs.machine import cores
    from holdfast.processes import COUNT

    gc.freeze()
    gc.enable()
    # Processes that share this machine share its cores.
    mine = min(max(1, cores() // int(os.environ.get(COUNT, "1"))), LEAVES)
    if "JAX_NUM_CPU_DEVICES" not in os.environ:
        jax.config.update("jax_num_cpu_devices", 1 << (mine.bit_length() - 1))
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        # Small programs too: a start has dozens of them.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def leave(code: Any) -> None:
    """If something went wrong in one of several processes, leave at once: the others would not come."""
    jax = sys.modules.get("jax")
    if code and jax is not None and jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
