"""One device or two: the same bits for every name. A process of its own, for JAX starts with its devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Names are dealt to so many processes, since this is mostly compilation.
PARTS = 3
SAME = """
import tempfile
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
import holdfast as hf
from holdfast.testing import _everything
from tests.claims.test_conformance import ALGORITHMS
from tests.problems import tiny_clients

from holdfast.client_states import memory
from holdfast.engine import stacks

LARGE = {}
LARGER = (
    "fedavg", "fedpvr", "feddc", "fedadam", "fedyogi", "an optax optimiser", "population_transfer"
)

assert len(jax.devices()) == 2
clients, local = tiny_clients(), hf.Local(0.1, epochs=2, batch_size=4)
server = hf.Server(clients[0], hf.Local(0.1, steps=2))
names = [name for name in ALGORITHMS if "," not in name]  # the others are variants of a name
for name in names[PART::PARTS]:
    algorithm, states = ALGORITHMS[name], []
    ways = [(1, {}), (2, {})]
    if name == "feddc":  # gathered examples; rows on one of two devices; renewed in place
        ways += [(2, {"storage": hf.Storage(device=d)}) for d in (0, "1 MB")] + [(2, LARGE)]
    needs = hf.Need.SERVER_DATA in algorithm.rule.traits.needs
    # Adam's products are rounded by what they are fused with: the more leaves, the sooner it shows.
    model = hf.models.mlp([4], classes=3) if name in LARGER else hf.models.softmax_regression(3)
    # With an empty slot on one of two devices, two divisions were taken together.
    cohort = hf.cohorts.fixed(3) if name == "population_transfer" else None
    for devices, more in ways:
        stacks._LARGE = memory._LARGE = 0 if more is LARGE else 1 << 20
        run = hf.simulate(
            algorithm, model, clients, local, rounds=3, engine=hf.Engine(devices=devices), seed=1,
            server=server if needs else None, cohort=cohort, **more,
        )
        states.append(jax.tree.leaves(_everything(run.state)))
    # Client states on disk, and stopped after every round: the programs are those of one device.
    with tempfile.TemporaryDirectory() as folder:
        for rounds in (1, 2, 3):
            run = hf.simulate(
                algorithm, model, clients, local, rounds=rounds, engine=hf.Engine(devices=1), seed=1,
                server=server if needs else None, cohort=cohort, storage=hf.Storage(memory=0),
                checkpoint=folder,
            )
        states.append(jax.tree.leaves(_everything(run.state)))
        del run
    if name == "feddc":  # read-only examples, of which both devices use the one copy
        shared = hf.data.read_only(clients.examples)
        run = hf.simulate(
            algorithm, model, hf.Clients(shared, clients.order, clients.offsets), local, rounds=3,
            engine=hf.Engine(devices=2), seed=1,
        )
        for host, device in zip(shared, run.simulation.feed.examples, strict=True):
            parts = [part.data.unsafe_buffer_pointer() for part in device.addressable_shards]
            assert parts == [host.ctypes.data] * 2
        states.append(jax.tree.leaves(_everything(run.state)))
    for other in states[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(states[0], other, strict=True)), name
"""
OTHERS = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np
import holdfast as hf
from holdfast.testing import _everything
# Populations that train differently, add each other's gradients, and are not all there.
from tests.engine.test_unlike_populations import joined
both, bits = joined(cohort=hf.cohorts.fixed(2)), []
for devices in (1, 2):
    run = hf.simulate(
        hf.algorithms.population_transfer(), **both, rounds=3, engine=hf.Engine(devices=devices), seed=1
    )
    bits.append(jax.tree.leaves(_everything(run.state)))
assert all(np.array_equal(a, b) for a, b in zip(*bits, strict=True)), "populations"
# The best round is kept, of personal models too.
from tests.engine.test_stopping import OWN, simulate
for algorithm in (hf.algorithms.scaffold(), hf.algorithms.local_only()):
    one, two = (simulate(algorithm, stop=OWN, engine=hf.Engine(devices=d)) for d in (1, 2))
    assert one.best_round == two.best_round < 12
    pairs = zip(jax.tree.leaves(one.personal_all()), jax.tree.leaves(two.personal_all()), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs), "the best round"
# Steps so tiny that clients are taken together, as many at a time whatever the devices.
rng = np.random.default_rng(0)
parts = [
    hf.Examples(rng.normal(size=(100, 5)).astype(np.float32), rng.integers(0, 3, 100)) for _ in range(7)
]
alike, bits = hf.Clients.from_datasets(parts), []
for devices in (1, 2):
    run = hf.simulate(
        hf.algorithms.feddyn(0.1), hf.models.softmax_regression(3), alike, hf.Local(0.1, batch_size=2),
        rounds=3, engine=hf.Engine(devices=devices), seed=1,
    )
    assert run.simulation.planner.plan(3, np.arange(7)).placement.execution.width == 7
    bits.append(jax.tree.leaves(_everything(run.state)))
assert all(np.array_equal(a, b) for a, b in zip(*bits, strict=True)), "together"
try:
    hf.Engine(devices=3)
except hf.HoldfastError as error:
    assert "power of two" in str(error)
else:
    raise AssertionError("three devices")
"""


def require_same(code):
    root = Path(__file__).parents[2]
    # Programs as users get them: the tests' own setting rounds FedAdam alike on all devices.
    found = subprocess.run(
        [sys.executable, "-c", f'{code}\nprint("same")'],
        cwd=root,
        env={**os.environ, "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == "same\n", found.stderr[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_the_same_bits_on_one_device_and_on_two_and_on_disk_and_resumed(part):
    require_same(f"PART, PARTS = {part}, {PARTS}\n{SAME}")


@pytest.mark.long
def test_the_same_bits_of_populations_best_rounds_and_clients_taken_together():
    require_same(OTHERS)
