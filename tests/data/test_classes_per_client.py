"""Few classes per client: drawn at random, distinct, balanced and all covered."""

import numpy as np
import pytest

import holdfast as hf


def held(clients, classes, of=10, seed=0, each=60):
    """Which classes every client has, as an array of truth values."""
    y = np.random.default_rng(1).permutation(
        np.repeat(np.arange(of), each * clients * classes // of)
    )
    split = hf.data.partition.by_classes(
        hf.Examples(np.zeros((len(y), 1), np.int8), y), clients, classes, seed
    )
    assert sorted(split.order.tolist()) == list(range(len(y)))
    return hf.data.split.counts(split) > 0


def test_a_hundred_clients_with_two_of_ten_classes_are_of_many_kinds():
    kinds = {tuple(np.flatnonzero(row)) for row in held(100, 2)}
    assert len(kinds) > 30  # 45 are possible; dealt in turn there were 5


def test_five_of_ten_classes_are_not_two_halves():
    has = held(100, 5)
    assert len(np.unique(has, axis=0)) > 60
    shared = has.astype(int) @ has.T
    assert set(shared[np.triu_indices(100, 1)]) >= {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("clients", "classes", "of"), [(100, 2, 10), (7, 3, 4), (10, 1, 10), (9, 9, 10), (5, 4, 4)]
)
def test_classes_are_distinct_balanced_and_covered(clients, classes, of):
    for seed in range(5):
        has = held(clients, classes, of, seed)
        assert set(has.sum(axis=1)) == {classes}
        holders = has.sum(axis=0)
        assert holders.min() >= 1
        assert holders.max() - holders.min() <= 1


def test_every_pair_of_classes_is_drawn_equally_often():
    """Over many seeds all 15 pairs of 6 classes have the same probability, for every client."""
    drawn = np.array([held(9, 2, of=6, seed=s, each=6) for s in range(400)])
    for client in (0, 4, 8):
        has = drawn[:, client].astype(float)
        together = (has.T @ has)[np.triu_indices(6, 1)] / len(has)
        assert np.abs(together - 1 / 15).max() < 4 * np.sqrt(1 / 15 / len(has))


def test_the_same_seed_deals_the_same():
    assert np.array_equal(held(20, 3, seed=5), held(20, 3, seed=5))
    assert not np.array_equal(held(20, 3, seed=5), held(20, 3, seed=6))
