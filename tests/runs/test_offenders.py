"""Who stands out round after round is named, and nobody where all are alike."""

import dataclasses

import pytest

import holdfast as hf
from holdfast.runs.offenders import offenders
from tests.problems import tiny_clients


@pytest.mark.parametrize(
    ("mean", "words"),
    [(hf.aggregates.NormBounded(factor=6.0), "bounded"), (hf.aggregates.Krum(0.3), "not selected")],
    ids=["bounded", "krum"],
)
def test_liars_stand_out(mean, words):
    clients = tiny_clients(clients=6, sizes=(8, 8, 8, 8, 8, 8))
    method = dataclasses.replace(hf.algorithms.fedavg(), aggregate=mean)
    settings = dict(
        model=hf.models.softmax_regression(classes=3),
        clients=clients,
        local=hf.Local(0.1, steps=2, batch_size=8),
        rounds=6,
        evaluate=hf.evaluate.on(clients.examples),
    )
    attack = hf.attacks.Boosted(times=-50.0, clients=[4])
    compared = hf.compare([hf.simulate(method, **settings, attack=attack)])
    (found,) = offenders(compared.results)
    assert found.text.startswith("fedavg: replies of client 4 (")
    assert words in found.text
    assert "replies of client 4" in compared.table()._repr_html_()
    plain = hf.simulate(hf.algorithms.fedavg(), **settings, attack=attack)
    assert list(offenders(hf.compare([plain]).results)) == []
