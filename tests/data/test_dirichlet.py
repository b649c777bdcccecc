"""`partition.dirichlet` has the distribution of FedDyn's published loop, and ends where that does not."""

import random

import numpy as np
import pytest

import holdfast as hf
from holdfast.data.partition.client_to_classes import _turns
from holdfast.data.partition.common import log_gamma

SEEDS = 1000


def published_loop(prior, amount, sizes, seed):
    """The authors' procedure, word for word, one example at a time; counts (clients, classes)."""
    (clients, _), counts = prior.shape, np.zeros(prior.shape, np.int64)
    prior, amount, room = prior.tolist(), amount.tolist(), sizes.tolist()
    chance = random.Random(seed)
    for _ in range(sum(room)):
        client = chance.randrange(clients)
        while room[client] <= 0:
            client = chance.randrange(clients)
        room[client] -= 1
        tries, label = 0, draw(chance, prior[client])
        while amount[label] <= 0:
            tries += 1
            # It may go on for ever here, or nearly. What is drawn when it ends is one of the others.
            left = [p if a > 0 else 0.0 for p, a in zip(prior[client], amount, strict=True)]
            label = draw(chance, left if tries > 50 else prior[client])
        amount[label] -= 1
        counts[client, label] += 1
    return counts


def draw(chance, weights):
    return chance.choices(range(len(weights)), weights)[0]


def figures(counts):
    """Mean label entropy, mean distance to everybody's labels, entropy of the smallest clients."""
    size = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(size, 1)
    terms = np.where(share > 0, -share * np.log2(np.where(share > 0, share, 1)), 0.0)
    entropy = terms.sum(axis=1)
    overall = counts.sum(axis=0) / counts.sum()
    distance = 0.5 * np.abs(share - overall).sum(axis=1)
    smallest = size[:, 0] == size.min()
    return np.array([entropy.mean(), distance.mean(), entropy[smallest].mean()])


SIZES = {
    "equal": np.full(10, 24),
    "unequal": np.array([12, 12, 12, 12, 12, 24, 24, 36, 36, 60]),
}


@pytest.mark.parametrize("which", SIZES)
def test_the_distribution_is_that_of_the_published_loop(which):
    """Means over seeds of entropy, label distance and the smallest client's entropy agree to 1 %."""
    sizes, amount, concentration = SIZES[which], np.full(4, 60), 0.7
    data = hf.Examples(np.zeros((240, 1)), np.arange(240) % 4)
    theirs, ours = [], []
    for seed in range(SEEDS):
        # Most of the spread is that of the priors, so both have the same.
        prior = np.exp(log_gamma(np.random.default_rng(seed), concentration, (10, 4)))
        prior /= prior.sum(axis=1, keepdims=True)
        theirs.append(figures(published_loop(prior, amount, sizes, seed)))
        split = hf.data.partition.dirichlet(data, 10, concentration, seed, sizes=sizes)
        ours.append(figures(hf.data.split.counts(split)))
    np.testing.assert_allclose(np.mean(ours, axis=0), np.mean(theirs, axis=0), rtol=0.01)


def test_who_draws_next_is_any_client_with_room():
    """Of clients with 1 and 3 places, the first is served first in half of the orders, not a quarter."""
    sizes = np.array([1, 3])
    orders = [tuple(_turns(np.random.default_rng(s), sizes)) for s in range(2000)]
    share = [np.mean([order[k] == 0 for order in orders]) for k in range(4)]
    np.testing.assert_allclose(share, [1 / 2, 1 / 4, 1 / 8, 1 / 8], atol=0.04)


def test_dirichlet_by_class_cut_into_equal_sizes_is_that_of_fedpvrs_code():
    """Published split: 57 to 152 examples and 1.19 bits; as the authors' code cuts it 100 and 1.43."""
    data = hf.Examples(np.zeros((1000, 1)), np.arange(1000) % 10)

    def mean_numbers(**how):
        splits = [hf.data.partition.dirichlet_by_class(data, 10, 0.1, s, **how) for s in range(200)]
        numbers = [hf.data.split.statistics(split).numbers() for split in splits]
        names = ("size_least", "size_most", "entropy_mean")
        return [np.mean([n[name] for n in numbers]) for name in names]

    np.testing.assert_allclose(mean_numbers(), [57, 152, 1.19], rtol=0.03)
    np.testing.assert_allclose(mean_numbers(equal_sizes=True), [100, 100, 1.43], rtol=0.02)
    split = hf.data.partition.dirichlet_by_class(data, 7, 0.1, equal_sizes=True)
    assert sorted(split.order.tolist()) == list(range(1000))
    assert set(split.sizes.tolist()) == {142, 143}
