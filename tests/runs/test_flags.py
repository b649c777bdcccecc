"""Metrics that turn or disagree, on made-up curves."""

import numpy as np

from holdfast.record.history import History
from holdfast.runs.flags import disagreeing, flags, turning
from holdfast.runs.results import MethodResult, Results


def method(label, accuracy, loss, role="federated", seeds=2):
    def history(seed):
        noise = np.random.default_rng(seed).normal(0, 0.002, len(accuracy))
        rows = enumerate(zip(accuracy + noise, loss + noise, strict=True), 1)
        return History(tuple({"round": r, "accuracy": a, "loss": b} for r, (a, b) in rows))

    return MethodResult(label, tuple(map(history, range(seeds))), (), True, role=role)


def study(*methods):
    return Results(methods, "accuracy", None, ())


T = np.arange(40)
RISING = 0.9 - 0.6 * np.exp(-T / 5)
FALLING = 0.2 + 2 * np.exp(-T / 5)


def test_a_loss_that_turns_is_flagged_with_its_round():
    turns = FALLING + np.where(T > 15, 0.02 * (T - 15), 0)
    found = list(turning(study(method("fedavg", RISING, FALLING), method("feddc", RISING, turns))))
    assert [(f.method, f.metric) for f in found] == [("feddc", "loss")]
    assert 14 <= found[0].round <= 22
    assert found[0].text.startswith("FedDC: loss was lowest around round ")
    assert "has risen to 0.6" in found[0].text


def test_an_accuracy_that_peaks_early_is_flagged():
    peak = 0.8 - 0.1 * (1 - np.exp(-np.maximum(T - 2, 0) / 8)) - 0.3 * (T < 1)
    (found,) = turning(study(method("fedavg", peak, FALLING)))
    assert found.metric == "accuracy"
    assert found.round <= 4
    assert "peaked around round" in found.text
    assert "fallen to 0.7" in found.text


def test_noise_and_plateaus_are_not_flagged():
    flat = 0.9 + np.random.default_rng(3).normal(0, 0.01, 40)
    assert not flags(study(method("fedavg", RISING, FALLING), method("b", flat, FALLING)))
    assert not flags(study(method("fedavg", RISING[:3], FALLING[:3])))


def test_best_by_one_and_worst_by_the_other_is_flagged():
    methods = [
        method("fedavg", RISING - 0.05, FALLING + 0.1),
        method("feddyn", RISING - 0.02, FALLING),
        method("feddc", RISING, FALLING + 0.4),
        method("centralised", RISING + 0.05, FALLING + 0.8, role="pooled"),
    ]
    (found,) = disagreeing(study(*methods))
    assert (found.method, found.metric, found.round) == ("feddc", "loss", None)
    assert "FedDC ended with the best accuracy (0.901) and the highest loss (0.602)" in found.text
    assert "of 3 methods" in found.text
    assert not list(disagreeing(study(*methods[:2])))
