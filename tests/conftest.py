"""Strict JAX in every test: types and ranks must not be promoted behind our back."""

import gc
import os
from pathlib import Path

# XLA's older emitters and less optimisation make slower programs in half the time, and the tests are
# almost all compilation. `make oracles` runs those that pin numbers with the programs users get.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
)

# Commands start no workers but where a test is about them: each would import JAX for a second's work.
os.environ.setdefault("HOLDFAST_JOBS", "1")

# The width of a terminal is asked for when something is printed, unless it was given when the command
# was imported: so it is imported here, and not in the first test that gives one.
os.environ.pop("COLUMNS", None)

import jax
import pytest

import holdfast.cli.console  # noqa: F401

# Hundreds of compiled programs stay alive, and looking through all of them for garbage every few
# hundred objects would cost more than the garbage.
gc.set_threshold(100_000, 50, 100)

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def _programs_of_one_module():
    """Forget compiled programs before there are too many: each has memory mapped, a process may have some
    65,000 maps, and XLA ends by a signal where there are no more."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > 15_000:
        jax.clear_caches()
        gc.collect()
