"""Strict JAX in every test: types and ranks must not be promoted behind our back."""

import atexit
import ctypes
import gc
import mmap
import os
import shutil
import tempfile
from pathlib import Path

# XLA's older emitters, without optimisation and in one piece, make slower programs in a third of the time,
# and the tests are almost all compilation. `make oracles` runs those that pin numbers with the programs
# users get.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 "
    "--xla_cpu_parallel_codegen_split_count=1",
)

# Commands start no workers but where a test is about them: each would import JAX for a second's work.
os.environ.setdefault("HOLDFAST_JOBS", "1")

# What was compiled once in this session is read by all its processes: workers (which find the variables
# set), commands and programs the tests start, and a worker that forgot.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _compiled = tempfile.mkdtemp(prefix="holdfast-tests-")
    atexit.register(shutil.rmtree, _compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# The width of a terminal is asked for when something is printed, unless it was given when the command
# was imported: so it is imported here, and not in the first test that gives one.
os.environ.pop("COLUMNS", None)

import jax
import pytest

import holdfast.cli.console  # noqa: F401

# Hundreds of compiled programs stay alive, and looking through all of them for garbage every few
# hundred objects would cost more than the garbage.
gc.set_threshold(100_000, 50, 100)

# Waiting for the disk is for when the power fails, which no test can show; runs save a thousand times.
os.fsync = lambda descriptor: None

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items):
    """Long tests come first in either half: each of two workers begins with one."""
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    # A half each, by number of tests, and the long ones dealt out.
    middle = len(items) // 2 - len(long[::2])
    items[:] = [*long[::2], *others[:middle], *long[1::2], *others[middle:]]


def pytest_collection_finish():
    """What is imported and collected stays to the end: looking for garbage passes it by."""
    gc.freeze()


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def _forget_programs():
    """Programs stay alive for the next test that needs them; from here on they are read from the disk."""
    jax.clear_caches()
    gc.collect()
    # What they took is given back by the C library only if it is asked to.
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


def _resident():
    """This worker's memory, in bytes; nothing where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_bytes().split()[1]) * mmap.PAGESIZE if statm.exists() else 0


# A program takes more than one megabyte, however small it is, and the longest test adds some 200.
_MOST = 1_200_000_000
_most = _MOST


@pytest.fixture(autouse=True)
def _memory_of_one_worker():
    """About 1.2 gigabytes, or what is left and a little more, so that not every test begins with nothing."""
    global _most
    yield
    if _resident() > _most:
        _forget_programs()
        _most = max(_MOST, _resident() + (1 << 28))


@pytest.fixture(autouse=True, scope="module")
def _maps_of_one_worker():
    """Each program has memory mapped, a process may have some 65,000 maps, and XLA ends by a signal where
    there are no more."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > 15_000:
        _forget_programs()
