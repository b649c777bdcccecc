"""One model that all clients use is measured once; what is found is what one client after another has."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.evaluate import measuring
from holdfast.evaluate.measuring import measure


@pytest.fixture(scope="module")
def run() -> hf.Run:
    train = hf.data.digits().train
    clients = hf.data.partition.dirichlet(train, clients=6, concentration=0.5)
    model = hf.models.softmax_regression(classes=10)
    return hf.simulate(hf.algorithms.fedavg(), model, clients, hf.Local(0.1, steps=3), rounds=2)


def test_it_equals_one_client_after_another(run: hf.Run) -> None:
    tests = hf.data.matched_test(hf.data.digits().test, run.experiment.clients)
    evaluator = hf.evaluate.personal(tests)
    found = evaluator.each(run.view)
    assert list(found) == list(range(6))
    for i, values in found.items():
        alone = measure(run.view.model, run.params, tests[i])
        assert list(values) == list(alone) == ["loss", "accuracy"]
        assert values["accuracy"] == alone["accuracy"]
        assert values["loss"] == pytest.approx(alone["loss"], rel=1e-6)


def test_examples_that_clients_share_are_looked_at_once(
    run: hf.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = hf.data.digits().test
    tests = hf.Clients.from_rows(test, [[0, 1, 2], [1, 2], [], [2], [0], [1]])
    seen = []
    batches = measuring.in_batches

    def counted(examples: hf.Examples) -> Any:
        seen.append(len(examples.y))
        return batches(examples)

    monkeypatch.setattr(measuring, "in_batches", counted)
    found = hf.evaluate.personal(tests).each(run.view)
    assert seen == [3]
    assert list(found) == [0, 1, 3, 4, 5]
    assert found[0]["loss"] == pytest.approx(np.mean([found[i]["loss"] for i in (4, 5, 3)]))


def test_a_method_that_deploys_its_own_models_is_measured_by_them(run: hf.Run) -> None:
    given = dataclasses.replace(run.experiment, algorithm=hf.algorithms.local_only())
    alone = hf.simulate(given, rounds=2)
    assert not alone.simulation.deploys_server_model
    assert run.simulation.deploys_server_model
    tests = alone.experiment.clients
    found = hf.evaluate.personal(tests).each(alone.view)
    for i, values in found.items():
        expected = measure(alone.view.model, alone.personal(i), tests[i])
        assert values == expected
