"""Splits are deterministic, without replacement, of the promised sizes, and always end."""

import numpy as np
import pytest

import holdfast as hf


def labelled(n, classes, seed=0):
    y = np.random.default_rng(seed).integers(0, classes, n)
    return hf.Examples(np.arange(n, dtype=np.float32)[:, None], y)


def assert_split(clients, n):
    assert sorted(clients.order.tolist()) == list(range(n))
    assert clients.sizes.sum() == n
    assert clients.sizes.max() - clients.sizes.min() <= 1


def test_digits_are_all_there():
    train, test = hf.data.digits()
    assert (len(train.y), len(test.y)) == (1438, 359)
    assert train.x.dtype == np.float32
    assert 0 <= train.x.min() <= train.x.max() <= 1
    assert set(train.y) == set(test.y) == set(range(10))


def test_iid_gives_everything_away_once():
    clients = hf.data.partition.iid(labelled(103, 4), clients=10, seed=1)
    assert_split(clients, 103)
    again = hf.data.partition.iid(labelled(103, 4), clients=10, seed=1)
    assert np.array_equal(clients.order, again.order)


@pytest.mark.parametrize("concentration", [1e-4, 0.01, 0.3, 100.0])
@pytest.mark.parametrize("clients", [1, 7, 50])
def test_dirichlet_ends_and_gives_everything_away_once(concentration, clients):
    data = labelled(503, 10)
    split = hf.data.partition.dirichlet(data, clients, concentration, seed=3)
    assert_split(split, 503)
    again = hf.data.partition.dirichlet(data, clients, concentration, seed=3)
    assert np.array_equal(split.order, again.order)
    other = hf.data.partition.dirichlet(data, clients, concentration, seed=4)
    assert not np.array_equal(split.order, other.order)


def test_dirichlet_skew_follows_the_concentration():
    data = labelled(5000, 10)

    def largest_share(concentration):
        split = hf.data.partition.dirichlet(data, 25, concentration, seed=0)
        counts = [np.bincount(split[i].y, minlength=10) for i in range(25)]
        return np.mean([c.max() / c.sum() for c in counts])

    shares = [largest_share(a) for a in (0.01, 0.3, 1.0, 1000.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.8
    assert shares[-1] < 0.2


def test_dirichlet_mean_prior_is_that_of_a_dirichlet():
    """With plenty of data nothing runs out, and E[max p] of Dir(0.3, 10 classes) is about 0.46."""
    data = hf.Examples(np.zeros((200_000, 1)), np.repeat(np.arange(10), 20_000))
    split = hf.data.partition.dirichlet(data, 300, 0.3, seed=0, sizes=[100] * 300)
    found = np.mean([np.bincount(split[i].y, minlength=10).max() / 100 for i in range(300)])
    draws = np.random.default_rng(0).dirichlet([0.3] * 10, 5000)
    assert found == pytest.approx(draws.max(1).mean(), abs=0.03)


def test_dirichlet_with_given_sizes():
    split = hf.data.partition.dirichlet(labelled(100, 5), 3, 0.3, sizes=[10, 0, 50])
    assert split.sizes.tolist() == [10, 0, 50]
    assert len(set(split.order.tolist())) == 60
    with pytest.raises(hf.HoldfastError, match=r"adding up to 110; give 2, .* at most 100"):
        hf.data.partition.dirichlet(labelled(100, 5), 2, 0.3, sizes=[60, 50])


def test_dirichlet_with_labels_beside_the_data():
    data = {"pixels": np.zeros((20, 2))}
    split = hf.data.partition.dirichlet(data, 4, 0.5, labels=np.arange(20) % 2)
    assert split.sizes.tolist() == [5] * 4
    with pytest.raises(hf.HoldfastError, match=r"data has no `.y`; give labels="):
        hf.data.partition.dirichlet(data, 4, 0.5)


def test_by_keeps_stored_order():
    data = labelled(6, 2)
    split = hf.data.partition.by(data, ["b", "a", "b", "c", "a", "b"])
    assert [split.rows(i).tolist() for i in range(3)] == [[1, 4], [0, 2, 5], [3]]


def test_clients_from_data_sets():
    parts = [labelled(3, 2), labelled(5, 2, seed=1)]
    clients = hf.Clients.from_datasets(parts)
    assert clients.sizes.tolist() == [3, 5]
    assert all(np.array_equal(clients[i].y, parts[i].y) for i in range(2))
    assert len(list(clients)) == 2
    assert repr(clients) == "Clients(2 with 3 to 5 examples, 8 in all)"
    with pytest.raises(IndexError, match=r"client 2 of 2"):
        clients[2]


def test_a_million_examples_over_a_hundred_thousand_clients_end():
    data = hf.Examples(np.zeros((1_000_000, 1), np.int8), np.arange(1_000_000) % 10)
    split = hf.data.partition.dirichlet(data, 100_000, 0.01, seed=0)
    assert_split(split, 1_000_000)
