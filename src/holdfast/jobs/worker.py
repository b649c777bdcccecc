"""What a worker process does: `main` with the numbers of two pipes.

It calls what it is sent, one after another, and ends with the process that started it, however that ends.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

from holdfast.jobs import share

STOPPED = 130
# Held while a run is carried out: a process does one at a time, however many threads an executor has in it,
# since runs share the study, which is of one split at a time, and where warnings go. A run may sweep.
one_run = threading.RLock()
# How JAX says that it found half of a program in its cache.
CACHE_RACE = "Error reading persistent compilation cache entry"


def main(connection: int, launcher: int) -> None:
    """Work until nothing more comes."""
    threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What is printed is seen when it is, and not lost with the process.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _warn_once()
    line = Connection(connection)
    try:
        _get_ready(line)
        while True:
            line.send_bytes(_answer(line.recv_bytes()))
    except (EOFError, BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
        # Without the second that JAX takes to tidy up.
        os._exit(0)
    except KeyboardInterrupt:
        # What was at hand has saved itself; nobody waits for an answer.
        os._exit(STOPPED)


def _end_with(launcher: int) -> None:
    # Nothing is ever written to it: reading returns when the other end is closed.
    os.read(launcher, 1)
    os._exit(STOPPED)


def _warn_once() -> None:
    """Show a warning once: Python forgets what it has shown whenever a filter changes, as in every run."""
    # What another process is just storing is compiled again.
    warnings.filterwarnings("ignore", CACHE_RACE)
    shown: set[object] = set()
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if (known := (str(message), category, *where[:2])) not in shown:
            shown.add(known)
            before(message, category, *where, **more)

    warnings.showwarning = show


def _get_ready(line: Connection) -> None:
    """Find modules where the launcher does, and do what it would have done before the first job."""
    path, sharing, first = pickle.loads(line.recv_bytes())
    # In the launcher's order: a module beside a script may be called as one that is installed.
    sys.path[:] = path
    share.among(sharing)
    if first is not None:
        # What went wrong will go wrong again, and then somebody waits for it; what there is to warn of,
        # the launcher has said.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _answer(first)
    line.send_bytes(b"ready")


def _answer(task: bytes) -> bytes:
    """What a call returned or raised, as bytes."""
    import cloudpickle

    try:
        settings, function, args, kwargs = cloudpickle.loads(task)
        use_settings(settings)
        found: Any = (True, function(*args, **kwargs))
    except Exception as error:
        error.add_note("".join(traceback.format_exception(error)))
        found = (False, error)
    try:
        sent = bytes(cloudpickle.dumps(found))
        if not found[0]:
            # Errors with arguments of their own are packed well, and cannot be unpacked.
            cloudpickle.loads(sent)
        return sent
    except Exception as error:  # whatever was returned or raised, somebody waits
        said = repr(error) if found[0] else found[1].__notes__[-1]
        return bytes(cloudpickle.dumps((False, RuntimeError(f"no pickle of it: {said}"))))


# What of JAX's configuration a result or the time to it may depend on.
_SETTINGS = (
    "jax_enable_x64",
    "jax_explicit_x64_dtypes",
    "jax_default_matmul_precision",
    "jax_allow_f16_reductions",
    "jax_default_prng_impl",
    "jax_enable_custom_prng",
    "jax_random_seed_offset",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_softmax_custom_jvp",
    "jax_high_dynamic_range_gumbel",
    "jax_use_direct_linearize",
    "jax_disable_jit",
    "jax_disable_most_optimizations",
    "jax_optimization_level",
    "jax_exec_time_optimization_effort",
    "jax_compiler_enable_remat_pass",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


def settings() -> dict[str, Any]:
    """JAX's configuration here; nothing where JAX is not in use."""
    jax = sys.modules.get("jax")
    return {} if jax is None else {name: _setting(name) for name in _known_settings()}


def _known_settings() -> list[str]:
    """Not every version of JAX has all of them."""
    import jax

    return [name for name in _SETTINGS if name in jax.config.values]


def _setting(name: str) -> Any:
    import jax

    # Some are of a thread, others of the process alone.
    return getattr(jax.config, name) if hasattr(jax.config, name) else jax.config.values[name]


def use_settings(wanted: dict[str, Any]) -> None:
    """Configure JAX as it is where the job comes from."""
    if not wanted:
        return
    import jax

    for name, value in wanted.items():
        if _setting(name) != value:
            jax.config.update(name, value)
