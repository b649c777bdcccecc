"""Means beside what the server and the solver do: one that leaves everything as it is changes nothing."""

import dataclasses

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast import processes
from tests.deploy.federations import server_data
from tests.problems import QUADRATIC, largest_difference, random_quadratics, same_bits, tiny_clients

A = hf.aggregates
MODEL = hf.models.softmax_regression(classes=3)
LOCAL = hf.Local(0.1, epochs=1, batch_size=4, weight_decay=1e-2)
IDLE = {
    "bounded": A.NormBounded(factor=1e9, first=1e9),
    "centred": A.CenteredClipping(factor=1e9, first=1e9),
    "krum": A.Krum(share=0.0),
    "trimmed": A.TrimmedMean(share=0.0),
}


def having(algorithm, mean):
    return dataclasses.replace(algorithm, aggregate=mean)


def run(method, **settings):
    given = dict(model=MODEL, clients=tiny_clients(), local=LOCAL, rounds=3, seed=2)
    return hf.simulate(method, **(given | settings))


@pytest.mark.parametrize(
    ("mean", "method", "server"),
    [
        ("bounded", hf.algorithms.fedadam(learning_rate=0.1), None),
        ("trimmed", hf.algorithms.fedadam(learning_rate=0.1), None),
        ("krum", hf.algorithms.fedavgm(), None),
        ("centred", hf.algorithms.fedavgm(), None),
        ("bounded", hf.algorithms.fedavg_plus(gamma=0.5), server_data),
        ("krum", hf.algorithms.one_way_transfer(), server_data),
        ("trimmed", hf.algorithms.fedavg_plus(gamma=0.5), server_data),
        ("krum", hf.Algorithm(wire=hf.wires.Compressed(hf.wires.Natural())), None),
        ("trimmed", hf.Algorithm(wire=hf.wires.ErrorFeedback(hf.wires.TopK(k=3))), None),
    ],
    ids=lambda a: a if isinstance(a, str) else getattr(a, "name", ""),
)
def test_what_changes_no_reply_is_the_plain_mean(mean, method, server):
    settings = {} if server is None else dict(server=server())
    cohort = hf.cohorts.fixed(3)
    plain, idle = (run(m, cohort=cohort, **settings) for m in (method, having(method, IDLE[mean])))
    assert np.abs(np.asarray(jax.tree.leaves(plain.params)[0])).max() > 1e-3
    assert largest_difference(plain.params, idle.params) < 2e-6
    assert largest_difference(plain.state.server.rule, idle.state.server.rule) < 1e-5


@pytest.mark.parametrize(
    ("rule", "mean"),
    [
        (hf.rules.ControlVariate(), A.CenteredClipping(factor=1.0)),
        (hf.rules.Dynamic(1.0), A.Krum(share=0.3)),
        (hf.Rule(), A.GeometricMedian()),
    ],
    ids=lambda a: type(a).__name__,
)
def test_resumed_it_is_the_same_run(rule, mean, tmp_path):
    clients, _ = random_quadratics(5)
    method = hf.Algorithm(rule, aggregate=mean)
    given = method, QUADRATIC, clients, hf.Local(learning_rate=0.05, steps=5)
    settings = dict(cohort=hf.cohorts.fixed(6), attack=hf.attacks.SignFlip(share=0.2))
    whole = hf.simulate(*given, 4, **settings)
    for rounds in (2, 4):
        resumed = hf.simulate(*given, rounds, checkpoint=tmp_path, **settings)
    assert same_bits(whole.params, resumed.params)
    assert same_bits(whole.state.server, resumed.state.server)
    assert whole.history.details == resumed.history.details


def test_several_processes_are_refused_where_all_replies_are_needed(monkeypatch):
    monkeypatch.setattr(processes, "count", lambda: 2)
    clients, _ = random_quadratics(5)
    for mean in (A.Krum(), A.CoordinateMedian(), A.TrimmedMean(), A.GeometricMedian()):
        with pytest.raises(hf.HoldfastError, match="needs all replies in one place"):
            hf.simulate(
                hf.Algorithm(aggregate=mean),
                QUADRATIC,
                clients,
                hf.Local(learning_rate=0.05, steps=1),
                1,
                engine=hf.DebugEngine(),
            )


def test_privacy_refuses_a_mean_that_looks_at_every_reply():
    for mean in (A.NormBounded(), A.Krum()):
        with pytest.raises(hf.HoldfastError, match="looks at every reply"):
            hf.Algorithm(
                wire=hf.privacy.Gaussian(clip=1.0, noise_multiplier=1.0, delta=1e-3),
                weighting="uniform",
                aggregate=mean,
            )
