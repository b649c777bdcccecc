"""Strict JAX in every test: types and ranks must not be promoted behind our back."""

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
