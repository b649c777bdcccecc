"""One device or two: the same bits for every mean. A process of its own, for JAX starts with its devices."""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import dataclasses
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
import holdfast as hf
from holdfast.testing import _everything
from tests.problems import tiny_clients

assert len(jax.devices()) == 2
clients = tiny_clients(clients=6, sizes=(7, 12, 5, 9, 3, 8))
local, model = hf.Local(0.1, epochs=1, batch_size=4), hf.models.softmax_regression(3)
A = hf.aggregates
feddyn, fedavg = hf.algorithms.feddyn(alpha=0.5), hf.algorithms.fedavg()
noise = hf.attacks.GaussianNoise(sigma=3.0, clients=[1])
little = hf.attacks.ALittleIsEnough(clients=[1, 4], z=1.5)
for method, mean, attack in (
    (feddyn, A.CenteredClipping(factor=1.0), noise),
    (feddyn, A.Krum(0.3), noise),
    (fedavg, A.CoordinateMedian(), noise),
    (fedavg, A.TrimmedMean(0.2), noise),
):
    found = []
    for devices in (1, 2):
        run = hf.simulate(
            dataclasses.replace(method, aggregate=mean), model, clients, local, rounds=3, seed=1,
            cohort=hf.cohorts.fixed(5), attack=attack, engine=hf.Engine(devices=devices),
        )
        found.append((jax.tree.leaves(_everything(run.state)), run.history.details))
    (one, seen), (two, other) = found
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True)), type(mean).__name__
    assert seen == other
    print(type(mean).__name__, flush=True)
median = dataclasses.replace(fedavg, aggregate=A.GeometricMedian())
for method, attack in ((median, None), (fedavg, little)):
    try:
        hf.simulate(method, model, clients, local, 1, attack=attack, engine=hf.Engine(devices=2))
    except hf.HoldfastError as refused:
        assert "devices=1" in str(refused)
    else:
        raise AssertionError("what rounds by devices, on two of them")
"""


def test_one_device_and_two():
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
