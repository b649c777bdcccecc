"""Statistics are right where they can be computed by hand; pictures and sketches show what is there."""

import math

import numpy as np
import pytest

import holdfast as hf

LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2])
OWNERS = np.array([0, 0, 1, 1, 1, 1, 2, 2])


def by_hand():
    """Three clients with labels 00, 0111, 22, and one without any."""
    data = hf.Examples(np.zeros((8, 1)), LABELS)
    return hf.Clients(data, np.arange(8), np.array([0, 2, 6, 8, 8]))


def test_counts_by_hand():
    expected = [[2, 0, 0], [1, 3, 0], [0, 0, 2], [0, 0, 0]]
    assert hf.data.split.counts(by_hand()).tolist() == expected


def test_statistics_by_hand():
    found = hf.data.split.statistics(by_hand())
    assert found.labels.held.tolist() == [1, 2, 1, 0]
    mixed = 0.25 * 2 + 0.75 * math.log2(4 / 3)
    assert found.labels.entropies == pytest.approx([0, mixed, 0, math.nan], nan_ok=True)
    # Everybody's: 3/8, 3/8, 2/8.
    assert found.labels.distances == pytest.approx([5 / 8, 3 / 8, 6 / 8, math.nan], nan_ok=True)
    whole = 2 * 3 / 8 * math.log2(8 / 3) + 0.25 * 2
    assert found.numbers() == pytest.approx(
        {
            "clients": 4,
            "examples": 8,
            "empty": 1,
            "size_least": 0,
            "size_median": 2.0,
            "size_most": 4,
            "size_gini": (-3 * 0 - 1 * 2 + 1 * 2 + 3 * 4) / (4 * 8),
            "classes": 3,
            "classes_least": 1,
            "classes_mean": 4 / 3,
            "classes_most": 2,
            "entropy_mean": mixed / 3,
            "entropy_global": whole,
            "entropy_relative": mixed / 3 / whole,
            "distance_mean": (5 + 3 + 6) / 24,
            "distance_most": 6 / 8,
        }
    )
    assert repr(found) == found.summary()
    assert repr(found).splitlines() == [
        "4 clients own 8 examples; 1 own none",
        "examples per client: 0 to 4, median 2 (Gini 0.38)",
        "classes per client: 1 to 2 of 3, mean 1.3",
        "label entropy: mean 0.27 of 1.56 bits (17%)",
        "distance to everybody's labels: mean 0.58, most 0.75 (total variation)",
    ]


def test_examples_that_nobody_owns_do_not_count():
    clients = by_hand().subset([0])
    found = hf.data.split.statistics(clients)
    assert found.labels.classes == 1
    assert found.labels.distances.tolist() == [0.0]
    assert found.numbers()["entropy_relative"] == 1.0


def test_statistics_agree_with_the_table_of_counts():
    data = hf.Examples(np.zeros((5000, 1)), np.random.default_rng(0).integers(0, 12, 5000))
    clients = hf.data.partition.dirichlet(data, 60, 0.2, seed=1, sigma=0.8)
    found, table = hf.data.split.statistics(clients), hf.data.split.counts(clients)
    share, overall = table / table.sum(axis=1, keepdims=True), table.sum(axis=0) / 5000
    assert found.labels.distances == pytest.approx(np.abs(share - overall).sum(axis=1) / 2)
    assert found.labels.held.tolist() == (table > 0).sum(axis=1).tolist()
    sizes = clients.sizes
    apart = np.abs(sizes[:, None] - sizes[None]).mean() / (2 * sizes.mean())
    assert found.numbers()["size_gini"] == pytest.approx(apart)


def test_labels_beside_the_data_and_data_without_labels():
    clients = hf.data.partition.by({"x": np.zeros((8, 1))}, OWNERS)
    assert hf.data.split.statistics(clients).labels is None
    assert len(hf.data.split.statistics(clients).summary().splitlines()) == 2
    named = np.array(["cat", "dog", "owl"])[LABELS]
    assert hf.data.split.counts(clients, named).tolist() == [[2, 0, 0], [1, 3, 0], [0, 0, 2]]
    assert hf.data.split.statistics(clients, labels=named).labels.classes == 3
    with pytest.raises(hf.HoldfastError, match=r"holds no classes; give labels="):
        hf.data.split.counts(clients)
    with pytest.raises(hf.HoldfastError, match=r"labels of shape \(2,\); give 8"):
        hf.data.split.statistics(clients, labels=[1, 2])


def test_targets_of_regression_are_no_classes():
    clients, _ = hf.data.sine(test_examples=1).natural()
    assert hf.data.split.statistics(clients).labels is None


def test_a_population_that_owns_nothing():
    clients = hf.Clients(by_hand().examples, np.zeros(0, np.int64), np.zeros(3, np.int64))
    assert hf.data.split.statistics(clients).numbers()["empty"] == 2
    assert hf.data.split.counts(clients).tolist() == [[0, 0, 0]] * 2
    assert hf.data.split.sketch(clients).splitlines()[2] == "     1         0  · · ·"


def test_many_classes_and_clients_need_no_table():
    data = hf.Examples(np.zeros((200_000, 1), np.int8), np.arange(200_000) // 2)
    clients = hf.data.partition.iid(data, 100_000)
    found = hf.data.split.statistics(clients)
    assert found.labels.classes == 100_000
    assert found.numbers()["distance_mean"] > 0.99
    with pytest.raises(hf.HoldfastError, match=r"100000 clients by 100000 classes do not fit"):
        hf.data.split.counts(clients)


def test_sketch_by_hand():
    assert hf.data.split.sketch(by_hand(), first=3).splitlines() == [
        "client  examples  classes",
        "     0         2  █ · ·",
        "     1         4  ▂ ▆ ·",
        "     2         2  · · █",
        "█ is 100% of a client's examples; 1 more not shown",
    ]


def test_sketch_without_labels_shows_sizes():
    clients = hf.data.partition.by({"x": np.zeros((8, 1))}, OWNERS)
    assert hf.data.split.sketch(clients, width=38).splitlines() == [
        "client  examples",
        "     0         2  ██████████",
        "     1         4  ████████████████████",
        "     2         2  ██████████",
    ]


@pytest.mark.parametrize("classes", [2, 10, 25, 100, 1000])
@pytest.mark.parametrize("width", [40, 80])
def test_sketches_keep_their_width(classes, width):
    data = hf.Examples(np.zeros((2000, 1)), np.arange(2000) % classes)
    drawn = hf.data.split.sketch(hf.data.partition.iid(data, 30), width=width)
    assert max(len(line) for line in drawn.splitlines()) <= width
    assert drawn.replace("\n", " ").endswith("10 more not shown")


@pytest.mark.parametrize(
    ("clients", "classes"), [(1, 1), (10, 10), (100, 30), (101, 10), (40, 100), (5000, 1000)]
)
def test_pictures_are_drawn(tmp_path, clients, classes):
    data = hf.Examples(np.zeros((5000, 1)), np.arange(5000) % classes)
    split = hf.data.partition.dirichlet(data, clients, 0.3)
    path = hf.data.split.picture(split, tmp_path / "split.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_pictures_of_sizes_and_in_other_formats(tmp_path):
    clients = hf.data.partition.by({"x": np.zeros((8, 1))}, OWNERS)
    assert hf.data.split.picture(clients, tmp_path / "a.png").exists()
    assert hf.data.split.picture(by_hand(), tmp_path / "b.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(hf.HoldfastError, match=r"does not say the format; let it end in \.png"):
        hf.data.split.picture(clients, tmp_path / "split")


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(hf.HoldfastError, match=r"sketch: width=5; give a number of at least 30"):
        hf.data.split.sketch(by_hand(), width=5)
    with pytest.raises(hf.HoldfastError, match=r"unknown argument `label`; did you mean `labels`"):
        hf.data.split.statistics(by_hand(), label=[])


def test_the_histogram_counts_the_classes_that_hold_most_of_a_clients_examples():
    """FedDyn's example: with ten classes alike, 4, 6 and 8 hold 40, 60 and 80 % of everybody's."""
    data = hf.Examples(np.zeros((1000, 1)), np.arange(1000) % 10)
    alike = hf.data.split.histogram(hf.data.partition.stratified(data, 20))
    assert alike.shape == (3, 10)
    assert [np.flatnonzero(row).tolist() for row in alike] == [[3], [5], [7]]
    assert alike.sum(axis=1).tolist() == [20] * 3
    y = np.array([0, 0, 0, 1, 0, 1, 2, 3])
    split = hf.Clients.from_rows(hf.Examples(np.zeros((8, 1)), y), [[0, 1, 2, 3], [4, 5, 6, 7], []])
    found = hf.data.split.histogram(split, shares=[0.5, 0.75, 1.0])
    assert found.tolist() == [[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    with pytest.raises(hf.HoldfastError, match=r"shares=\[80\]; give numbers above 0, at most 1"):
        hf.data.split.histogram(split, shares=[80])


def test_dirichlet_splits_of_mnist_have_the_papers_histogram():
    """80 % of a device's data: mostly 4 or 5 classes at Dirichlet 0.6, 3 or 4 at 0.3."""
    data = hf.Examples(np.zeros((60_000, 1), np.int8), np.arange(60_000) % 10)
    for concentration, most in ((0.6, {4, 5}), (0.3, {3, 4})):
        split = hf.data.partition.dirichlet(data, 100, concentration)
        (row,) = hf.data.split.histogram(split, [0.8])
        assert {int(k) + 1 for k in np.argsort(row)[-2:]} == most


def test_the_histogram_is_drawn(tmp_path):
    train, _ = hf.data.digits()
    splits = {"one": hf.data.partition.iid(train, 5), "two": hf.data.partition.stratified(train, 5)}
    for given, name in ((splits, "a.png"), (splits["one"], "b.svg")):
        path = hf.data.split.histogram_picture(given, tmp_path / name)
        assert path.stat().st_size > 1000
    with pytest.raises(hf.HoldfastError, match=r"histogram_picture: .* does not say the format"):
        hf.data.split.histogram_picture(splits, tmp_path / "a.gif")
