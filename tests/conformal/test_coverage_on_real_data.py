"""Coverage on digits and, where it is at hand, on MNIST: within 1 % of what is asked, over 20 splits."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.evaluate.predictions import predictions_of
from tests.data.real import SHARED, needs

SPLITS = 20


def trained(train, classes=10):
    """A model of clients that differ: probabilities that are far from right, which must not matter."""
    clients = hf.data.partition.dirichlet(train, clients=5, concentration=0.3)
    model = hf.models.softmax_regression(classes)
    local = hf.Local(learning_rate=0.1, steps=20, batch_size=20)
    run = hf.simulate(hf.algorithms.fedavg(), model, clients, local, rounds=3)
    return lambda examples: np.asarray(predictions_of(model, run.params, examples), np.float64)


def coverage(p, y, kappa, score, calibrating):
    """Over 20 random splits of held-out rows: by the library, and by NumPy."""
    ours, numpys, sizes = [], [], []
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(len(y))
        few, rest = order[:calibrating], order[calibrating:]
        found = hf.conformal.calibrate(p[few], y[few], score)
        outcome = hf.conformal.outcome(found, p[rest], y[rest], kappa)
        ours.append(outcome.coverage)
        sizes.append(outcome.mean_size)
        own = np.sort(p[few][np.arange(len(few)), y[few]])
        tau = own[int(np.floor(kappa * (len(few) + 1) + 1e-9)) - 1]
        numpys.append((p[rest][np.arange(len(rest)), y[rest]] >= tau).mean())
    if score == "lac":
        np.testing.assert_allclose(ours, numpys, atol=1e-6)
    return np.mean(ours), np.mean(sizes)


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize("kappa", [0.05, 0.1, 0.2])
def test_digits(digits, score, kappa):
    p, y = digits
    found, _ = coverage(p, y, kappa, score, calibrating=600)
    assert abs(found - (1 - kappa)) < 0.01


@pytest.fixture(scope="module")
def digits():
    train, test = hf.data.digits()
    x, y = (np.concatenate(both) for both in zip(train, test, strict=True))
    held = hf.Examples(x[500:], y[500:])
    return trained(hf.Examples(x[:500], y[:500]))(held), held.y


@pytest.fixture(scope="module")
def mnist():
    data = hf.data.mnist(folder=SHARED)
    train = hf.Examples(data.train.x[:5000], data.train.y[:5000])
    return trained(train)(data.test), data.test.y


@needs("mnist")
@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize("kappa", [0.05, 0.1, 0.2])
def test_mnist(mnist, score, kappa):
    p, y = mnist
    found, _ = coverage(p, y, kappa, score, calibrating=1000)
    assert abs(found - (1 - kappa)) < 0.01


@needs("mnist")
def test_adaptive_sets_are_fairer_to_hard_classes(mnist):
    """What APS is for: the class that fares worst fares better than with the smallest sets."""
    p, y = mnist
    least = {}
    for score in ("lac", "aps"):
        found = hf.conformal.calibrate(p[:2000], y[:2000], score)
        each = hf.conformal.outcome(found, p[2000:], y[2000:], 0.1).of_classes()
        least[score] = min(o.coverage for o in each.values())
    assert least["aps"] > least["lac"]
