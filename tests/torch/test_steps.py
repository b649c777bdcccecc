"""PyTorch's local steps are those of `core/local.py`, term by term."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from holdfast.core import local
from holdfast.core.rule import Tilt
from holdfast.torch import steps as in_torch
from holdfast.torch.bridge import bridge_of
from tests.problems import largest_difference
from tests.torch.networks import DATA, NETWORK, network_in_torch

BRIDGE = bridge_of(network_in_torch())
PARAMS = NETWORK.init(jax.random.key(3), DATA)
BATCHES = [np.arange(0, 6), np.arange(6, 9), np.arange(20, 33)]


def like(seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: rng.normal(0, 0.3, p.shape).astype(np.float32), PARAMS)


def per_leaf(first, second):
    """Other numbers, or none, for the two layers."""
    return {
        "classifier": {"bias": first, "kernel": first},
        "hidden_0": {"bias": second, "kernel": second},
    }


TILTS = {
    "none": Tilt(),
    "linear": Tilt(linear=like(0)),
    "linear on a layer": Tilt(linear={**like(0), "hidden_0": {"bias": None, "kernel": None}}),
    "pull": Tilt(pull=0.7),
    "pull of leaves": Tilt(pull=per_leaf(0.7, None), decay=per_leaf(None, 0.3)),
    "pull of every number": Tilt(pull=jax.tree.map(np.abs, like(5))),
    "decay": Tilt(decay=0.4),
    "weight": Tilt(weight=0.3),
    "mix": Tilt(mix=(0.4, like(1))),
    "start": Tilt(start=like(2), pull=0.2),
    "all": Tilt(like(0), 0.7, 0.4, 0.3, (0.4, like(1)), like(2)),
}
PLAIN = local.Steps(0.2, None, None, (None,) * 4)
BOUNDED = local.Steps(0.2, 0.3, 0.1, (None, 0.9, 0.5, None))


@pytest.mark.parametrize("steps", [PLAIN, BOUNDED], ids=["plain", "bounded"])
@pytest.mark.parametrize("name", TILTS)
def test_every_term_of_a_tilt(name, steps):
    tilt = jax.tree.map(np.asarray, TILTS[name])

    def grad(k, z):
        def mean(z):
            batch = jax.tree.map(lambda a: jnp.asarray(a[BATCHES[int(k)]]), DATA)
            return jnp.mean(NETWORK.losses(z, batch))

        return jax.grad(mean)(z)

    def grad_in_torch(k, tensors):
        x, y = (BRIDGE.tensor(np.asarray(a)[BATCHES[k]]) for a in DATA)
        return BRIDGE.gradient(tensors, x, y)

    with jax.disable_jit():
        theirs, _ = local.solve(steps, grad, PARAMS, tilt, 3)
    tensors = in_torch.solve(BRIDGE, steps, grad_in_torch, PARAMS, tilt, 3)
    ours = BRIDGE.parameters.tree(tensors)
    assert largest_difference(theirs, ours) < 1e-5
    assert largest_difference(PARAMS if tilt.start is None else tilt.start, ours) > 1e-3


def test_numbers_that_are_not_finite_stay_so_under_a_clip():
    def grad(k, tensors):
        found = [t * 0 for t in tensors]
        found[0] = found[0] + float("nan")
        return found

    found = in_torch.solve(BRIDGE, BOUNDED, grad, PARAMS, Tilt(), 1)
    assert not any(
        np.isfinite(leaf).any() for leaf in jax.tree.leaves(BRIDGE.parameters.tree(found))
    )
