"""What the server receives is never longer than the bound, whatever was sent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.privacy.bound import bounded

TREES = 10_000
INNER = {
    "bare": hf.Wire(),
    "sparse": hf.wires.Compressed(hf.wires.RandK(k=2)),
    "natural": hf.wires.Compressed(hf.wires.Natural()),
    "quantised": hf.wires.Compressed(hf.wires.Quantise(levels=3)),
    "signs": hf.wires.Compressed(hf.wires.Sign()),
    "clipped": hf.wires.Clipped(hf.Wire(), bound=100.0),
    "downlink": hf.wires.Downlink(hf.Wire(), hf.wires.TopK(k=2)),
}


def random_trees():
    """Of many lengths, some of which are too large for a norm, and some without numbers at all."""
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.uniform(-12, 37, TREES)
    flat = rng.normal(size=(TREES, 45)) * scales[:, None]
    flat[::10] = scales[::10, None]  # all alike: sums of these are rounded to one side
    flat = np.clip(flat, -3e38, 3e38).astype(np.float32)
    flat[5::100, 7] = np.nan
    flat[7::100, 3] = np.inf
    delta = {"kernel": flat[:, :28].reshape(TREES, 4, 7), "bias": flat[:, 28:32]}
    return delta, flat[:, 32:]


def norms(trees):
    leaves = [np.asarray(p, np.float64).reshape(TREES, -1) for p in jax.tree.leaves(trees)]
    return np.sqrt(sum((p**2).sum(axis=1) for p in leaves))


@pytest.mark.parametrize("name", INNER)
def test_ten_thousand_trees_through_every_wire(name):
    bound = 0.37
    wire = hf.privacy.Gaussian(INNER[name], clip=bound, delta=1e-5, noise_multiplier=1.0)
    keys = jax.random.split(jax.random.key(1), TREES)

    @jax.jit
    @jax.vmap
    def travel(payload, key):
        coded, told, _ = wire.encode(payload, (), key)
        return told, wire.receive(coded)

    told, received = travel(random_trees(), keys)
    for made in (told, received):
        lengths = norms(made)
        assert np.isfinite(lengths).all()
        assert lengths.max() <= bound
        # It is a bound that is reached, not everything made small.
        assert np.quantile(lengths, 0.9) > 0.999 * bound


def test_equal_numbers_do_not_add_up_to_less():
    """A sum one after another of 0.1 a million times is a hundredth off; a client could choose it."""
    many = {"w": jnp.full((1_200_007,), 0.1, jnp.float32)}
    out, short = jax.jit(bounded)(many, 1.0)
    length = np.sqrt((np.asarray(out["w"], np.float64) ** 2).sum())
    assert not short
    assert 0.999 < length <= 1.0


def test_short_replies_are_left_as_they_are():
    tree = {"a": jnp.array([0.3, 0.4]), "b": jnp.zeros(0)}
    out, short = bounded(tree, 1.0)
    assert short
    assert np.array_equal(out["a"], tree["a"])


def test_half_precision_is_bounded_too():
    out, _ = bounded({"a": jnp.full((3000,), 3.0, jnp.float16)}, 1.0)
    length = np.sqrt((np.asarray(out["a"], np.float64) ** 2).sum())
    assert 0.99 < length <= 1.0
