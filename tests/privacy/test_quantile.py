"""A clip that follows a quantile of the norms: where it goes, and what its count costs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast import privacy
from holdfast.core import hyper

pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
CLIENTS = 40
NORMS = np.linspace(0.5, 4.4, CLIENTS).astype(np.float32)
# Every client's update is its own number, whatever the model.
PULLED = hf.Model(
    init=lambda key, examples: {"w": jnp.zeros(1, jnp.float32)},
    loss=lambda params, batch: -jnp.sum(batch.x * params["w"][None], axis=1),
    name="pulled",
)
DATA = hf.data.partition.in_order(hf.Examples(NORMS[:, None], np.zeros(CLIENTS)), clients=CLIENTS)


def run(rounds, clip=0.1, z=1.0, **quantile):
    wire = privacy.Gaussian(
        clip=clip,
        delta=1e-3,
        noise_multiplier=z,
        accountant="rdp",
        quantile=privacy.Quantile(**quantile),
    )
    algorithm = wire.beside(hf.Algorithm(hf.Rule(), weighting="uniform"))
    return hf.simulate(algorithm, PULLED, DATA, hf.Local(1.0, steps=1), rounds=rounds, seed=5)


@pytest.mark.parametrize("target", [0.5, 0.8])
def test_the_clip_goes_to_the_quantile_of_the_norms(target):
    """Andrew et al. 2021, from a clip far too low; the count's noise moves it about."""
    found = run(60, target=target, rate=0.4, noise=1.0)
    clip = float(found.state.server.wire.clip)
    # A twentieth of the clients more or less than the target.
    low, high = np.quantile(NORMS, [target - 0.05, target + 0.05])
    assert low < clip < high


def test_the_first_step_of_the_clip_by_hand():
    found = run(1, clip=2.05, rate=0.3, noise=1.5)
    wire = hyper.at_round(found.simulation.setup.algorithm.wire, 0)
    _, key = jax.random.split(wire.noise_key(5, 0))
    noise = 1.5 * float(jax.random.normal(jax.random.split(key, 1)[0], (), jnp.float32))
    share = ((NORMS <= 2.05).sum() + noise) / CLIENTS
    expected = 2.05 * math.exp(-0.3 * (share - 0.5))
    assert float(found.state.server.wire.clip) == pytest.approx(expected, rel=1e-5)


def test_both_noises_together_are_the_one_that_is_accounted_for():
    """One client moves the sum by the clip and the count by a half: over their deviations, by 1/z."""
    found = run(1, clip=0.7, z=1.3, noise=2.0)
    wire = hyper.at_round(found.simulation.setup.algorithm.wire, 0)
    moved = math.hypot(0.7 / float(wire.deviation), 0.5 / float(wire.count_noise))
    assert moved == pytest.approx(1 / 1.3, rel=1e-6)
    assert found.simulation.setup.account.noise_multiplier == 1.3


def test_a_count_that_costs_more_than_all_is_refused():
    with pytest.raises(hf.HoldfastError, match="alone spends more than noise_multiplier=3"):
        run(1, z=3.0, noise=1.0)
