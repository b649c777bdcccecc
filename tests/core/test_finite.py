"""Whether all numbers of a tree are finite, whatever their shapes."""

import jax.numpy as jnp
import pytest

from holdfast.trees import finite


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_one_number_in_one_of_several_arrays_of_a_shape(bad):
    whole = {
        "a": jnp.ones((40, 3)),
        "b": jnp.ones((40, 3)),
        "c": jnp.ones(()),
        "d": jnp.ones((0, 2)),
    }
    assert bool(finite(whole))
    assert bool(finite(()))
    for name, at in (("a", (39, 2)), ("b", (0, 0)), ("c", ())):
        assert not bool(finite(whole | {name: whole[name].at[at].set(bad)}))
    assert bool(finite({"numbers": jnp.arange(3)}))
    assert bool(finite(1.0))
    assert not bool(finite((1.0, bad)))
