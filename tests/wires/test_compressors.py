"""Compressors: unbiased where they say so, within their bounds, and as long as they say."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.wires.packing import Reader, pack

DRAWS = 4000
UNBIASED = {
    "rand-k": hf.wires.RandK(k=3),
    "rand-k, share": hf.wires.RandK(share=0.5),
    "rand-k, shared seed": hf.wires.RandK(k=3, shared_seed=True),
    "rand-k, everything": hf.wires.RandK(share=1.0),
    "quantise, 1 level": hf.wires.Quantise(1),
    "quantise, 7 levels": hf.wires.Quantise(7),
    "natural": hf.wires.Natural(),
}
BIASED = {
    "top-k": hf.wires.TopK(k=3),
    "top-k, share": hf.wires.TopK(share=0.5),
    "sign": hf.wires.Sign(),
    "bfloat16": hf.wires.Cast(),
    "float16": hf.wires.Cast("float16"),
}
ALL = UNBIASED | BIASED


def vector(size=10, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=size) ** 3, dtype)


@functools.partial(jax.jit, static_argnums=0)
def draws(compressor, v, keys):
    return jax.vmap(lambda key: compressor.decode(compressor.encode(v, key), v.dtype))(keys)


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_and_within_omega(name):
    compressor, v = UNBIASED[name], vector()
    found = np.asarray(draws(compressor, v, jax.random.split(jax.random.key(1), DRAWS)), float)
    v = np.asarray(v, float)
    errors = np.sum((found - v) ** 2, axis=1)
    # Six standard errors of the mean of each coordinate.
    assert np.all(np.abs(found.mean(0) - v) <= 6 * found.std(0) / np.sqrt(DRAWS) + 1e-6)
    bound = float(compressor.omega(len(v))) * np.sum(v**2)
    assert errors.mean() <= bound * 1.05 + 1e-9
    assert compressor.unbiased


def test_rand_k_attains_its_omega():
    compressor, v = hf.wires.RandK(k=3), vector()
    found = np.asarray(draws(compressor, v, jax.random.split(jax.random.key(2), DRAWS)), float)
    ratio = np.sum((found - np.asarray(v, float)) ** 2, axis=1).mean() / np.sum(np.asarray(v) ** 2)
    assert ratio == pytest.approx(compressor.omega(10), rel=0.1)


@pytest.mark.parametrize("name", BIASED)
def test_a_contraction(name):
    compressor = BIASED[name]
    assert not compressor.unbiased
    for seed in range(20):
        v = vector(seed=seed)
        code = compressor.encode(v, jax.random.key(0))
        error = np.sum((np.asarray(compressor.decode(code, v.dtype)) - np.asarray(v)) ** 2)
        bound = (1 - float(compressor.delta(10))) * np.sum(np.asarray(v) ** 2)
        assert error <= bound * (1 + 1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", [1, 67])
def test_the_message_is_as_long_as_the_ledger_says(name, size, dtype, x64):
    compressor, v, key = ALL[name], vector(size, dtype), jax.random.key(3)
    code = compressor.encode(v, key)
    message = pack(compressor.fields(jax.device_get(code), np.dtype(dtype)))
    assert len(message) == -(-compressor.bits(size, np.dtype(dtype)) // 8)
    back = compressor.read(Reader(message), size, jnp.dtype(dtype), key)
    for a, b in zip(jax.tree.leaves(code), jax.tree.leaves(back), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ALL)
def test_nothing_becomes_nothing(name):
    compressor, v = ALL[name], jnp.zeros(6, jnp.float32)
    decoded = compressor.decode(compressor.encode(v, jax.random.key(0)), v.dtype)
    np.testing.assert_array_equal(decoded, v)


def test_bits_by_hand():
    assert hf.wires.RandK(k=4).bits(1000, "float32") == 4 * (32 + 10)
    assert hf.wires.RandK(k=4, shared_seed=True).bits(1000, "float32") == 4 * 32
    assert hf.wires.RandK(k=500).bits(1000, "float32") == 500 * 32 + 1000  # one bit each is less
    assert hf.wires.RandK(k=5000).bits(1000, "float64") == 1000 * 64  # everything: no places
    assert hf.wires.TopK(share=0.004).bits(1000, "float32") == 4 * (32 + 10)
    assert hf.wires.Quantise(7).bits(1000, "float32") == 32 + 1000 * 4  # -7..7 in 4 bits
    assert hf.wires.Natural().bits(1000, "float32") == 9000
    assert hf.wires.Natural().bits(1000, "float64") == 12000
    assert hf.wires.Sign().bits(1000, "float32") == 1032
    assert hf.wires.Cast().bits(1000, "float32") == 16000


def test_exactly_k_travel_also_where_magnitudes_are_equal():
    v = jnp.ones(9, jnp.float32)
    for compressor in (hf.wires.TopK(k=4), hf.wires.RandK(k=4)):
        assert int(compressor.encode(v, jax.random.key(5)).kept.sum()) == 4


def test_natural_compression_of_awkward_numbers():
    info = np.finfo(np.float32)
    v = jnp.asarray([0.0, 1.0, -2.0, 0.5, info.max, -info.tiny, 3.0], jnp.float32)
    code = hf.wires.Natural().encode(v, jax.random.key(0))
    found = np.asarray(hf.wires.Natural().decode(code, v.dtype))
    np.testing.assert_array_equal(found[:4], v[:4])  # powers of two and 0 are exact
    assert found[4] == 2.0**127
    assert found[5] == -info.tiny
    assert found[6] in (2.0, 4.0)
