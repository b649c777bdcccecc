"""Strict JAX in every test: types and ranks must not be promoted behind our back."""

import gc
import os

# XLA's older emitters and less optimisation make slower programs in half the time, and the tests are
# almost all compilation. `make oracles` runs those that pin numbers with the programs users get.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1"
)

import jax
import pytest

# Hundreds of compiled programs stay alive, and looking through all of them for garbage every few
# hundred objects would cost more than the garbage.
gc.set_threshold(100_000, 50, 100)

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
