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


@pytest.mark.parametrize("classes", [10, 100])
def test_every_split_of_a_million_examples_over_a_hundred_thousand_clients_ends(classes):
    data = hf.Examples(np.zeros((1_000_000, 1), np.int8), np.arange(1_000_000) % classes)
    partition = hf.data.partition
    splits = {
        "iid": partition.iid(data, 100_000),
        "dirichlet": partition.dirichlet(data, 100_000, 0.01),
        "dirichlet_by_class": partition.dirichlet_by_class(data, 100_000, 0.01),
        "by_classes": partition.by_classes(data, 100_000, 2),
        "shards": partition.shards(data, 100_000),
        "lognormal": partition.lognormal(data, 100_000, 0.3),
    }
    for split in splits.values():
        assert len(split) == 100_000
        assert np.array_equal(np.bincount(split.order, minlength=1_000_000), np.ones(1_000_000))
    assert splits["dirichlet_by_class"].sizes.min() == 5
    assert set(splits["shards"].sizes) == {10}


SPLITS = {
    "iid": lambda data, clients, seed: hf.data.partition.iid(data, clients, seed),
    "lognormal": lambda data, clients, seed: hf.data.partition.lognormal(data, clients, 1.5, seed),
    "dirichlet": lambda data, clients, seed: hf.data.partition.dirichlet(data, clients, 1e-6, seed),
    "dirichlet, lognormal": lambda data, clients, seed: hf.data.partition.dirichlet(
        data, clients, 0.3, seed, sigma=0.7
    ),
    "dirichlet_by_class": lambda data, clients, seed: hf.data.partition.dirichlet_by_class(
        data, clients, 1e-6, seed
    ),
    "dirichlet_by_class, as drawn": lambda data, clients, seed: (
        hf.data.partition.dirichlet_by_class(data, clients, 0.1, seed, min_examples=0)
    ),
    "by_classes": lambda data, clients, seed: hf.data.partition.by_classes(data, clients, 3, seed),
    "shards": lambda data, clients, seed: hf.data.partition.shards(data, clients, 2, seed),
    "stratified": lambda data, clients, seed: hf.data.partition.stratified(data, clients, seed),
}


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize(("n", "clients"), [(503, 1), (503, 9), (200, 40), (30, 80)])
def test_every_split_gives_everything_away_once_and_is_a_function_of_its_seed(name, n, clients):
    data = labelled(n, 3)
    split, again, other = (SPLITS[name](data, clients, seed) for seed in (3, 3, 4))
    assert len(split) == clients
    assert sorted(split.order.tolist()) == list(range(n))
    assert np.array_equal(split.order, again.order)
    assert np.array_equal(split.offsets, again.offsets)
    if clients > 1:
        assert not np.array_equal(split.order, other.order)


FROZEN = {
    "dirichlet": [32, 21, 23, 17, 28, 0, 25, 11, 14, 2],
    "by_classes": [35, 13, 1, 29, 17, 16, 21, 25, 33, 14, 30],
}


def test_results_for_a_seed_have_not_changed():
    """Studies depend on the very bits."""
    data = labelled(40, 4)
    skewed = hf.data.partition.dirichlet(data, 4, 0.3, seed=1)
    assert skewed[2].x[:, 0].astype(int).tolist() == FROZEN["dirichlet"]
    few = hf.data.partition.by_classes(data, 4, 2, seed=1)
    assert few[2].x[:, 0].astype(int).tolist() == FROZEN["by_classes"]


def test_lognormal_sizes_have_the_promised_spread():
    data = labelled(1_000_000, 2)
    sizes = hf.data.partition.lognormal(data, 2000, 0.3, seed=0).sizes
    assert sizes.sum() == 1_000_000
    assert np.log(sizes).std() == pytest.approx(0.3, abs=0.02)
    even = hf.data.partition.lognormal(labelled(103, 2), 10, 0.0)
    assert_split(even, 103)
    extreme = hf.data.partition.lognormal(labelled(103, 2), 10, 1e4).sizes
    assert extreme.sum() == 103


def test_dirichlet_with_lognormal_sizes_keeps_both_promises():
    data = labelled(20_000, 10)
    split = hf.data.partition.dirichlet(data, 100, 0.1, sigma=0.5)
    assert np.log(split.sizes).std() == pytest.approx(0.5, abs=0.1)
    assert hf.data.split.statistics(split).numbers()["entropy_relative"] < 0.6
    with pytest.raises(hf.HoldfastError, match=r"sizes and sigma=0\.5; give one of them"):
        hf.data.partition.dirichlet(data, 2, 0.3, sizes=[1, 2], sigma=0.5)


def test_shards_are_runs_of_the_sorted_labels():
    data = hf.Examples(np.zeros((600, 1)), np.repeat(np.arange(10), 60)[::-1])
    split = hf.data.partition.shards(data, clients=10, per_client=2, seed=5)
    assert split.sizes.tolist() == [60] * 10
    held = hf.data.split.counts(split)
    assert set(held.ravel()) <= {0, 30, 60}
    assert (held > 0).sum(axis=1).max() <= 2


def test_dirichlet_by_class_keeps_the_smallest_large_enough():
    data = labelled(1000, 10)
    for smallest in (0, 1, 20, 50):
        split = hf.data.partition.dirichlet_by_class(data, 20, 0.01, seed=0, min_examples=smallest)
        assert split.sizes.min() >= smallest
        assert split.sizes.sum() == 1000
    assert hf.data.partition.dirichlet_by_class(data, 20, 0.01).sizes.min() >= 25


def test_dirichlet_by_class_gives_nothing_to_clients_at_the_average():
    """A client stops receiving with the class that brings it to the average."""
    data = hf.Examples(np.zeros((1000, 1)), np.arange(1000) % 10)
    split = hf.data.partition.dirichlet_by_class(data, 5, 0.5, seed=1, min_examples=0)
    before = np.cumsum(hf.data.split.counts(split), axis=1)[:, :-1]
    received = hf.data.split.counts(split)[:, 1:]
    assert (before >= 200).any()
    assert not received[before >= 200].any()


def test_dirichlet_by_class_that_needs_no_filling_follows_the_concentration():
    data = labelled(5000, 10)
    skew = [
        hf.data.split.statistics(hf.data.partition.dirichlet_by_class(data, 10, c)).numbers()
        for c in (0.05, 0.5, 1000.0)
    ]
    distances = [n["distance_mean"] for n in skew]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.05


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            lambda d: hf.data.partition.lognormal(d, 2, -1.0),
            r"lognormal: sigma=-1\.0; give a number",
        ),
        (lambda d: hf.data.partition.lognormal(d, 0, 1.0), r"clients=0; give a whole number"),
        (lambda d: hf.data.partition.shards(d, 2, 0), r"per_client=0; give a whole number"),
        (lambda d: hf.data.partition.shards(d, 2.5), r"clients=2\.5; give a whole number"),
        (
            lambda d: hf.data.partition.dirichlet_by_class(d, 4, 0.1, min_examples=6),
            r"min_examples=6 with 20 examples for 4 clients; give 0\.\.5",
        ),
        (
            lambda d: hf.data.partition.dirichlet_by_class(d, 4, 0.0),
            r"dirichlet_by_class: concentration=0\.0; give a number above 0",
        ),
        (
            lambda d: hf.data.partition.dirichlet(d, 4, float("inf")),
            r"concentration=inf; give a number from",
        ),
        (
            lambda d: hf.data.partition.shards(d, 2, labels=[1, 2]),
            r"shards: labels of shape \(2,\); give 20 by labels=, one per example",
        ),
        (
            lambda d: hf.data.partition.shards({"x": d.x}, 2),
            r"shards: data has no `\.y`; give labels=",
        ),
        (
            lambda d: hf.data.partition.dirichlet_by_class(d, 4, consentration=1.0),
            r"unknown argument `consentration`; did you mean `concentration`",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(request_, message):
    with pytest.raises(hf.HoldfastError, match=message):
        request_(labelled(20, 3))


def test_some_clients_as_a_population():
    split = hf.data.partition.by(labelled(10, 2), [0, 1, 1, 2, 2, 2, 3, 3, 3, 3])
    some = split.subset([3, 0])
    assert [some.rows(i).tolist() for i in range(2)] == [[6, 7, 8, 9], [0]]
    assert split.subset(split.sizes > 2).sizes.tolist() == [3, 4]
    assert split.subset(iter([2])).sizes.tolist() == [3]
    with pytest.raises(hf.HoldfastError, match=r"client 4 of 4 clients; give numbers in 0\.\.3"):
        split.subset([0, 4])
    with pytest.raises(hf.HoldfastError, match=r"2 truth values of 4 clients"):
        split.subset(np.array([True, False]))


@pytest.mark.parametrize(("n", "clients"), [(503, 9), (200, 40), (60, 7)])
def test_stratified_gives_everybody_the_same_of_every_class(n, clients):
    split = hf.data.partition.stratified(labelled(n, 5), clients, seed=2)
    assert_split(split, n)
    held = hf.data.split.counts(split)
    assert (held.max(axis=0) - held.min(axis=0)).max() <= 1
