"""What is measured of a deployed run: the same as of its simulation, or refused."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from tests.deploy.federations import experiment, sites
from tests.problems import same_bits, tiny_clients

RNG = np.random.default_rng(0)
TEST = hf.Examples(RNG.normal(size=(12, 5)).astype(np.float32), np.arange(12, dtype=np.int32) % 3)
OTHERS = hf.Examples(TEST.x + 1, TEST.y)


def measured_by(*evaluators):
    return dataclasses.replace(experiment("scaffold"), evaluate=list(evaluators))


def test_drift_and_sets_are_measured_as_in_the_simulation(tmp_path):
    given = measured_by(hf.diagnose.drift(), hf.conformal.evaluate(TEST, OTHERS))
    simulated = hf.simulate(given, rounds=3)
    there = hf.deploy.InProcess(sites(given, tmp_path))
    deployed = hf.deploy.run(given, there, rounds=3, wait=10)
    assert same_bits(deployed.params, simulated.params)
    assert deployed.ledger.entries == simulated.ledger.entries
    names = [
        n for n in simulated.history.columns if n.startswith(("drift", "coverage", "set_size"))
    ]
    assert len(names) > 3
    for name in names:
        np.testing.assert_array_equal(deployed.history[name], simulated.history[name])


@pytest.mark.parametrize(
    ("evaluator", "said"),
    [
        (hf.diagnose.updates(), "trained last"),
        (hf.diagnose.cka(TEST), "trained last"),
        (
            hf.conformal.evaluate(
                tiny_clients(clients=3, sizes=(9, 9, 9)),
                tiny_clients(clients=3, sizes=(8, 8, 8)),
                by="clients",
            ),
            "send something beside training",
        ),
    ],
)
def test_what_stays_at_sites_is_refused(evaluator, said, tmp_path):
    given = measured_by(evaluator)
    with pytest.raises(hf.HoldfastError, match=said):
        hf.deploy.run(given, hf.deploy.InProcess(sites(given, tmp_path)), rounds=1, wait=10)
