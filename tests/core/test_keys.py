"""Keys made on the host are JAX's own, to the bit."""

import jax
import numpy as np

from holdfast.core.keys import Purpose, host_key, round_key


def test_host_keys_are_those_of_jax():
    for seed in (0, 7, 2**31 - 1):
        plain = jax.random.key(seed)
        assert np.array_equal(jax.random.key_data(host_key(seed)), jax.random.key_data(plain))
        for number in (0, 12, 2**31 - 1):
            once = jax.random.fold_in(plain, number)
            twice = jax.random.fold_in(once, Purpose.ADAPT)
            for ours, theirs in (
                (round_key(seed, number), once),
                (host_key(seed, number, Purpose.ADAPT), twice),
            ):
                assert ours.dtype == theirs.dtype
                assert np.array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))


def test_another_generator_is_asked_itself():
    with jax.default_prng_impl("rbg"):
        theirs = jax.random.fold_in(jax.random.key(3), 5)
        assert np.array_equal(jax.random.key_data(host_key(3, 5)), jax.random.key_data(theirs))
