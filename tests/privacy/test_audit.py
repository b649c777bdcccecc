"""An attack on what runs release: whether one client took part must not be told better than epsilon says.

Whoever attacks knows all but the noise. A lower bound of epsilon by the chances of being right and of a false
alarm, each by Clopper and Pearson, as Jagielski et al. 2020.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta

import holdfast as hf
from holdfast.core.round import federated_round
from holdfast.engine.simulation import Simulation

pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
RUNS = 1000  # half of them with the canary
ROUNDS, CLIENTS, DELTA = 4, 8, 0.05
CANARY = CLIENTS - 1

# Of a client's update, its examples: the canary's is far too long, and nobody else has any.
PULLED = hf.Model(
    init=lambda key, examples: {"w": jnp.zeros(examples.x.shape[1], jnp.float32)},
    loss=lambda params, batch: -jnp.sum(batch.x * params["w"][None], axis=1),
    name="pulled",
)


def released(claimed, multipliers):
    """The account, who has the canary, and how far models went along its direction: with each noise
    multiplier, over the noise that this is."""
    x = np.zeros((CLIENTS, 3), np.float32)
    x[CANARY, 0] = 1e3
    data = hf.data.partition.in_order(hf.Examples(x, np.zeros(CLIENTS)), clients=CLIENTS)
    wire = hf.privacy.Gaussian(clip=1.0, delta=DELTA, noise_multiplier=claimed)
    algorithm = wire.beside(hf.Algorithm(hf.Rule(), weighting="uniform"))
    simulation = Simulation(hf.Experiment(algorithm, PULLED, data, hf.Local(1.0, steps=1)))
    state = simulation.begin()
    inputs = simulation.inputs(state, simulation.planner(0))
    there = np.arange(RUNS) % 2 == 0
    steps = np.where((np.arange(CLIENTS) == CANARY) & ~there[:, None], 0, inputs.slots.steps)
    keys = [wire.noise_key(seed, t) for seed in range(RUNS) for t in range(ROUNDS)]
    data = np.stack([jax.random.key_data(key) for key in keys]).reshape(RUNS, ROUNDS, 2)

    def run(multiplier, steps, keys):
        less = dataclasses.replace(inputs.algorithm.wire, noise_multiplier=multiplier)
        algorithm = dataclasses.replace(inputs.algorithm, wire=less)
        slots = inputs.slots._replace(steps=steps)

        def one(x, key):
            noise_key = jax.random.wrap_key_data(key)
            now = dataclasses.replace(inputs, algorithm=algorithm, x=x, slots=slots)
            return federated_round(dataclasses.replace(now, noise_key=noise_key)).x, None

        return jax.lax.scan(one, inputs.x, keys)[0]["w"][0]

    runs = jax.jit(jax.vmap(run, in_axes=(None, 0, 0)))
    unit = math.sqrt(ROUNDS) / CLIENTS
    found = [np.asarray(runs(jnp.float32(z), steps, data)) / (z * unit) for z in multipliers]
    return simulation.setup.account, there, found


def least_epsilon(found, there, threshold, confidence=0.95):
    """What epsilon is at least, by how often a threshold is passed with the canary and without."""
    alpha, half = 1 - confidence, RUNS // 2
    right, false = (int((found[who] > threshold).sum()) for who in (there, ~there))
    least_right = beta.ppf(alpha / 2, right, half - right + 1)
    most_false = beta.ppf(1 - alpha / 2, false + 1, half - false)
    return math.log(max(least_right - DELTA, 1e-9) / most_false)


def test_a_canary_is_not_told_better_than_claimed_and_is_with_half_the_noise():
    claimed, bounds = 2.0, []
    account, there, found = released(claimed, (claimed, claimed / 2))
    for z, went in zip((claimed, claimed / 2), found, strict=True):
        # The attack sees what the account speaks of: noise of one, and the canary at sqrt(T)/z.
        assert np.std(went[~there]) == pytest.approx(1, rel=0.1)
        apart = went[there].mean() - went[~there].mean()
        assert apart == pytest.approx(math.sqrt(ROUNDS) / z, abs=0.2)
        # A threshold that was chosen before anything was seen.
        bounds.append(least_epsilon(went, there, threshold=2.0))
    epsilon = account.epsilon(ROUNDS)
    assert epsilon == pytest.approx(1.6, abs=0.1)
    assert 0.3 * epsilon < bounds[0] <= epsilon < bounds[1]
