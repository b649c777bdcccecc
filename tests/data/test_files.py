"""Data of your own, from a file; and test examples like a client's own."""

import numpy as np
import pytest

import holdfast as hf


def test_a_table_with_a_client_column(tmp_path):
    path = tmp_path / "patients.csv"
    rows = [f"{i},{i % 7},{i % 2},{'abc'[i % 3]}" for i in range(60)]
    path.write_text("\n".join(["age,pressure,sick,hospital", *rows]) + "\n")
    dataset = hf.data.table(path, label="sick", client="hospital")
    assert dataset.classes == 2
    clients, tests = dataset.natural()
    assert len(clients) == len(tests) == 3
    assert (clients.sizes + tests.sizes).tolist() == [20, 20, 20]
    assert hf.data.partition.natural(dataset).sizes.tolist() == clients.sizes.tolist()


def test_arrays_with_and_without_owners(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    np.savez(tmp_path / "owned.npz", x=x, y=y, client=np.arange(30) // 10)
    assert hf.data.arrays(tmp_path / "plain.npz").owners is None
    assert len(hf.data.arrays(tmp_path / "owned.npz").natural()[0]) == 3


def test_files_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(hf.HoldfastError, match=r"gone\.npz does not exist"):
        hf.data.arrays(tmp_path / "gone.npz")
    np.savez(tmp_path / "odd.npz", inputs=np.zeros(3))
    with pytest.raises(hf.HoldfastError, match="holds inputs; it needs `x` and `y`"):
        hf.data.arrays(tmp_path / "odd.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    with pytest.raises(hf.HoldfastError, match="cannot be read"):
        hf.data.arrays(tmp_path / "text.npz")


def test_test_examples_have_the_labels_of_the_client():
    train, test = hf.data.digits()
    clients = hf.data.partition.dirichlet(train, clients=12, concentration=0.2, seed=3)
    tests = hf.data.matched_test(test, clients)
    available = np.bincount(test.y, minlength=10)
    for mine, theirs, rows in zip(clients, tests, map(tests.rows, range(12)), strict=True):
        wanted = np.minimum(np.bincount(mine.y, minlength=10), available)
        assert np.bincount(theirs.y, minlength=10).tolist() == wanted.tolist()
        assert len(set(rows.tolist())) == len(rows)


def test_where_labels_are_numbers_everybody_has_the_whole_test_set():
    clients = hf.data.partition.iid(hf.Examples(np.zeros((8, 2)), np.linspace(0, 1, 8)), 4)
    tests = hf.data.matched_test(hf.Examples(np.zeros((3, 2)), np.zeros(3)), clients)
    assert tests.sizes.tolist() == [3, 3, 3, 3]


def test_owners_without_test_examples_share_them():
    train = hf.Examples(np.zeros((4, 1)), np.zeros(4, int))
    test = hf.Examples(np.zeros((5, 1)), np.zeros(5, int))
    clients, tests = hf.data.Dataset(train, test, owners=["b", "a", "b", "c"]).natural()
    assert clients.sizes.tolist() == [1, 2, 1]
    assert tests.sizes.tolist() == [5, 5, 5]
    with pytest.raises(hf.HoldfastError, match="does not say whose"):
        hf.data.Dataset(train, test).natural()
