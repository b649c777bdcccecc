"""Memory that compiling took goes back to the system before the program runs."""

import ctypes
import functools
import sys
from typing import Any

import jax

# What JAX calls the time in which XLA made a program, or loaded it from the cache.
_COMPILED = "/jax/core/compile/backend_compile_duration"
# Seconds; of shorter ones there is little to give back.
_LONG = 0.2


def _give_back(event: str, duration_secs: float, **_: Any) -> None:
    if event == _COMPILED and duration_secs > _LONG:
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def give_back_after_compiling() -> None:
    """From now on, if the C library can: glibc keeps what was freed, hundreds of megabytes after a large
    program was compiled, and the round's own arrays would come on top."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        jax.monitoring.register_event_duration_secs_listener(_give_back)
