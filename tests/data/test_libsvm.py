"""The LIBSVM format, in small and in the collection's own files, and splits in stored order."""

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

import holdfast as hf

COLLECTION = Path(__file__).resolve().parents[3] / "shared" / "data" / "libsvm"
TEXT = b"+1 1:0.5 3:-2e1\r\n\n-1  2:1\t4:.25 \n-1\n3.5 4:7"
X = [[0.5, 0, -20, 0], [0, 1, 0, 0.25], [0, 0, 0, 0], [0, 0, 0, 7]]


@pytest.fixture
def written(tmp_path):
    def write(text, name="file"):
        (tmp_path / name).write_bytes(text)
        return tmp_path / name

    return write


def test_dense_inputs_and_ordered_labels(written):
    x, y = hf.data.libsvm(written(TEXT))
    assert (x.dtype, y.dtype) == (np.float32, np.int32)
    assert (x.tolist(), y.tolist()) == (X, [1, 0, 0, 2])
    wide = hf.data.libsvm(str(written(TEXT)), features=6, dtype=np.float64).x
    assert (wide.dtype, wide.shape) == (np.float64, (4, 6))
    assert wide[:, :4].tolist() == X


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("bz2", bz2.compress), ("gz", gzip.compress), ("xz", lzma.compress)],
)
def test_compressed_files(ending, compress, written):
    assert hf.data.libsvm(written(compress(TEXT), f"a.{ending}")).x.tolist() == X
    for broken in (TEXT, compress((TEXT + b"\n") * 99)[:-9]):
        with pytest.raises(hf.HoldfastError, match=rf"b.{ending} cannot be read: "):
            hf.data.libsvm(written(broken, f"b.{ending}"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"1 2", "`2` is malformed; give pairs index:value"),
        (b"1 2:", "`2:` is malformed"),
        (b"1 2:3:4 5", "`2:3:4` is malformed"),
        (b"1 2: 3", "`2:` is malformed"),
        (b"1 1:1 2:1e", "`2:1e` is malformed"),
        (b"1 2:nan", "`2:nan` is malformed"),
        (b"1 2:1_0", "`2:1_0` is malformed"),
        (b"1 -2:1", "`-2:1` is malformed"),
        (b"1 1.5:1", "`1.5:1` is malformed"),
        (b"1 12345678901234567890:1", "is malformed"),
        (b"2:1 3:1", "`2:1` is no label; give a number first"),
        (b"1,2 3:1", "`1,2` is no label"),
        (b"e 3:1", "`e` is no label"),
        (b"1 0:1", "index 0 found; indices begin at 1"),
        (b"1 1:1 3:1 2:1", "index 2 does not come after the one before it; sort"),
        (b"1 3:1 3:1", "index 3 does not come after"),
        (b"1 4:1 9:1", "index 9 is above features=8; raise `features`"),
    ],
)
def test_mistakes_are_named_with_their_line(line, says, written):
    with pytest.raises(hf.HoldfastError, match=f"file, line 3: .*{says}"):
        hf.data.libsvm(written(b"1 8:1\n\n" + line + b"\n0 1:1\n"), features=8)


def test_files_without_data_are_refused(written, tmp_path):
    with pytest.raises(hf.HoldfastError, match="nowhere is missing"):
        hf.data.libsvm(tmp_path / "nowhere")
    with pytest.raises(hf.HoldfastError, match="cannot be read"):
        hf.data.libsvm(tmp_path)
    for nothing in (b"", b" \n\n"):
        with pytest.raises(hf.HoldfastError, match="file is empty"):
            hf.data.libsvm(written(nothing))
    with pytest.raises(hf.HoldfastError, match="features=0"):
        hf.data.libsvm(written(TEXT), features=0)


@pytest.mark.skipif(not COLLECTION.exists(), reason="the LIBSVM collection is not on this machine")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("a6a", (11220, 122)),
        ("ijcnn1", (49990, 22)),
        ("mushrooms", (8124, 112)),
    ],
)
def test_the_collection_reads_as_by_scikit_learn(name, shape):
    found = hf.data.libsvm(COLLECTION / name)
    x, labels = load_svmlight_file(str(COLLECTION / name))
    assert found.x.shape == shape
    np.testing.assert_array_equal(found.x, x.toarray().astype(np.float32))
    np.testing.assert_array_equal(found.y, labels == labels.max())


@pytest.mark.parametrize(("rows", "clients"), [(103, 10), (12, 4), (3, 5), (0, 2)])
def test_in_order_keeps_rows_and_cuts_evenly(rows, clients):
    split = hf.data.partition.in_order(hf.Examples(np.zeros((rows, 1)), np.zeros(rows)), clients)
    for i in range(clients):
        owned = range(i * rows // clients, (i + 1) * rows // clients)
        assert split.rows(i).tolist() == list(owned)
    assert split.sizes.sum() == rows
    with pytest.raises(hf.HoldfastError, match="clients=0; give a whole number"):
        hf.data.partition.in_order(hf.Examples(np.zeros((3, 1)), np.zeros(3)), 0)
