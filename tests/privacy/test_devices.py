"""Noise on one device, on two and resumed: the same bits. A process of its own, for its two devices."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
CODE = """
import tempfile
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
import holdfast as hf
from holdfast.testing import _everything
from tests.problems import tiny_clients

shared = {"clip": 0.1, "delta": 1e-3, "noise_multiplier": 1.0}
following = hf.privacy.Gaussian(**shared, accountant="rdp", quantile=hf.privacy.Quantile(noise=3.0))
correlated = hf.privacy.Gaussian(**shared, rounds=3, correlated=hf.privacy.Banded(coefficients=(0.8, 0.6)))
for wire, cohort in (
    (following, hf.cohorts.bernoulli(0.6)),
    (correlated, hf.cohorts.schedule([[0, 1], [2, 3]])),
):
    settings = (
        wire.beside(hf.algorithms.scaffold(weighting="uniform")),
        hf.models.softmax_regression(3),
        tiny_clients(),
        hf.Local(0.1, steps=2, batch_size=4),
    )
    bits = []
    for devices in (1, 2):
        run = hf.simulate(*settings, rounds=3, cohort=cohort, engine=hf.Engine(devices=devices))
        bits.append(jax.tree.leaves(_everything(run.state)))
    with tempfile.TemporaryDirectory() as folder:
        for rounds in (1, 3):
            run = hf.simulate(
                *settings, rounds=rounds, cohort=cohort, engine=hf.Engine(devices=2), checkpoint=folder
            )
    bits.append(jax.tree.leaves(_everything(run.state)))
    for other in bits[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(bits[0], other, strict=True))
print("same")
"""


def test_the_same_noise_on_two_devices_and_resumed():
    found = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == "same\n", found.stderr[-2000:]
