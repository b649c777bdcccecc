"""What a worker process does: `python -P -m holdfast.jobs.worker CONNECTION LAUNCHER`, both numbers of pipes.

It calls what it is sent, one after another, and ends with the process that started it, however that ends.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from holdfast.jobs import share

STOPPED = 130


def main(connection: int, launcher: int) -> None:
    """Work until nothing more comes."""
    threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
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


def _get_ready(line: Connection) -> None:
    """Know where the launcher finds modules, and do what it would have done before the first job."""
    path, sharing, first = pickle.loads(line.recv_bytes())
    # Behind what is installed: the current folder may have a random.py of its own.
    sys.path += [place for place in path if place not in sys.path]
    share.among(sharing)
    if first is not None:
        _answer(first)  # what went wrong will go wrong again, and then somebody waits for it
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
        return bytes(cloudpickle.dumps(found))
    except Exception as error:  # whatever was returned or raised, somebody waits
        said = "".join(traceback.format_exception(found[1])) if not found[0] else repr(error)
        return bytes(cloudpickle.dumps((False, RuntimeError(f"no pickle of it: {said}"))))


# What of JAX's configuration a result or the time to it may depend on.
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_debug_nans",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


def settings() -> dict[str, Any]:
    """JAX's configuration here; nothing where JAX is not in use."""
    jax = sys.modules.get("jax")
    return {} if jax is None else {name: getattr(jax.config, name) for name in _SETTINGS}


def use_settings(wanted: dict[str, Any]) -> None:
    """Configure JAX as it is where the job comes from."""
    if not wanted:
        return
    import jax

    for name, value in wanted.items():
        if getattr(jax.config, name) != value:
            jax.config.update(name, value)


if __name__ == "__main__":
    # As the module that others import, not as `__main__`.
    from holdfast.jobs import worker

    worker.main(int(sys.argv[1]), int(sys.argv[2]))
