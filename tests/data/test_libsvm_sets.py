"""Sets of the LIBSVM collection by name."""

import bz2

import numpy as np
import pytest

import holdfast as hf
from tests.data.real import SHARED, needs


def test_training_and_test_files(tmp_path):
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "ijcnn1.bz2").write_bytes(bz2.compress(b"-1 1:0.5\n1 22:2\n"))
    (tmp_path / "libsvm" / "ijcnn1.t").write_bytes(b"1 2:1\n-1 3:1\n-1 1:1\n")
    train, test = hf.data.libsvm_set("ijcnn1", folder=tmp_path)
    assert (train.x.shape, test.x.shape) == ((2, 22), (3, 22))
    assert (train.y.tolist(), test.y.tolist()) == ([0, 1], [1, 0, 0])
    (tmp_path / "libsvm" / "ijcnn1.t").write_bytes(b"1 2:1\n")
    with pytest.raises(hf.HoldfastError, match=r"ijcnn1.t.bz2 has 1 labels but ijcnn1.bz2 2"):
        hf.data.libsvm_set("ijcnn1", folder=tmp_path)


def test_a_part_is_drawn_where_there_is_no_test_file(tmp_path):
    (tmp_path / "mushrooms").write_text("".join(f"{1 + k % 2} 1:{k}\n" for k in range(10)))
    train, test = hf.data.libsvm_set("mushrooms", folder=tmp_path)
    assert (len(train.y), len(test.y)) == (8, 2)
    assert sorted([*train.x[:, 0], *test.x[:, 0]]) == list(range(10))
    assert train.x.shape[1] == 112
    assert len(hf.data.libsvm_set("mushrooms", test_share=0.0, folder=tmp_path).train.y) == 10
    other = hf.data.libsvm_set("mushrooms", seed=1, folder=tmp_path)
    assert other.test.x[:, 0].tolist() != test.x[:, 0].tolist()


def test_mistakes(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(hf.HoldfastError, match="unknown set `mushroom`; did you mean `mushrooms`"):
        hf.data.libsvm_set("mushroom")
    with pytest.raises(hf.HoldfastError, match="test_share=2; give"):
        hf.data.libsvm_set("a9a", test_share=2, folder=tmp_path)
    with pytest.raises(
        hf.HoldfastError, match=r"libsvmtools/datasets/multiclass/usps.bz2: no network"
    ):
        hf.data.libsvm_set("usps", folder=tmp_path)


@needs("libsvm")
@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [("a6a", 11220, 123), ("mushrooms", 8124, 112), ("a9a", 32561, 123)],
)
def test_the_real_sets(name, rows, columns):
    data = hf.data.libsvm_set(name, test_share=0.1, folder=SHARED)
    assert data.train.x.shape == (rows - round(rows / 10), columns)
    assert len(data.test.y) == round(rows / 10)
    assert np.unique(data.train.y).tolist() == [0, 1]
    assert data.classes == 2
