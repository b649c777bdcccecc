"""Held-out examples stay at their sites: sums and counts travel, and come to what a simulation measures."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.deploy import InProcess, frame
from tests.deploy.federations import experiment, sites
from tests.problems import tiny_clients


@pytest.mark.parametrize("name", ["fedavg", "flix_by_diana"])
def test_personal_models_are_measured_at_their_sites(name, tmp_path):
    tests = tiny_clients(seed=5, clients=3, sizes=(4, 6, 3))
    test = tests.examples
    given = experiment(name, evaluate=[hf.evaluate.personal(tests, every=2), hf.evaluate.on(test)])
    simulated = hf.simulate(given, rounds=2)
    there = [
        dataclasses.replace(site, tests=own)
        for site, own in zip(sites(given, tmp_path), tests, strict=True)
    ]
    answers = []

    class Watched(InProcess):
        def receive(self, seconds):
            arrived = super().receive(seconds)
            answers.extend(frame.unpack(a.data, 1 << 20) for a in arrived)
            return arrived

    run = hf.deploy.run(given, Watched(there), rounds=2)
    then, now = simulated.history.records[1], run.history.records[1]
    measured = [name for name in then if "personal" in name or name in ("loss", "accuracy")]
    assert len(measured) == 6
    np.testing.assert_allclose(
        [now[name] for name in measured], [then[name] for name in measured], rtol=1e-5
    )
    said = [found for found in answers if found.header["kind"] == "measured"]
    assert len(said) == 3
    assert all(found.body == b"" for found in said)
    assert [found.header["sums"]["test own accuracy"][1] for found in said] == [4, 6, 3]


def test_an_evaluator_of_ones_own_cannot_reach_into_sites(tmp_path):
    class Curious:
        every = 1
        keeps_last_models = False

        def check(self, model, params, clients):
            pass

        def __call__(self, view):
            return {"norm": float(np.abs(view.personal(0)["classifier"]["bias"]).sum())}

    given = experiment("fedavg", evaluate=Curious())
    with pytest.raises(hf.HoldfastError, match="are at their sites"):
        hf.deploy.run(given, InProcess(sites(given, tmp_path)), rounds=1)
