"""Loaders of images: small files in the official formats, and the real ones where they are."""

import gzip
import io
import struct
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

import holdfast as hf
from holdfast.data.images import IDX_PARTS, read_cifar, read_emnist, read_idx
from tests.data.real import SHARED, needs

RNG = np.random.default_rng(0)


def idx(array):
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def small_mnist(tmp_path):
    arrays = [
        RNG.integers(0, 256, (5, 28, 28)),
        np.array([3, 1, 4, 1, 5]),
        RNG.integers(0, 256, (2, 28, 28)),
        np.array([9, 2]),
    ]
    for name, array in zip(IDX_PARTS, arrays, strict=True):
        (tmp_path / name).write_bytes(gzip.compress(idx(array)))
    return tmp_path, arrays


@pytest.mark.parametrize("load", [hf.data.mnist, hf.data.fashion_mnist])
def test_idx_sets(load, small_mnist):
    folder, arrays = small_mnist
    data = load(folder=folder, verify=False)
    assert data.train.x.shape == (5, 28, 28, 1)
    assert (data.train.x.dtype, data.train.y.dtype) == (np.float32, np.int32)
    np.testing.assert_allclose(data.test.x[..., 0], arrays[2] / 255, rtol=1e-6)
    assert data.train.y.tolist() == [3, 1, 4, 1, 5]
    assert (data.classes, data.owners) == (10, None)
    with pytest.raises(hf.HoldfastError, match=r"train-images-idx3-ubyte.gz has sha256"):
        load(folder=folder)


def test_standardised(small_mnist):
    folder, arrays = small_mnist
    x = hf.data.mnist(normalise=True, folder=folder, verify=False).train.x
    np.testing.assert_allclose(x[..., 0], (arrays[0] / 255 - 0.1307) / 0.3081, atol=1e-5)


def test_missing_files_are_listed_with_their_checksums(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(hf.HoldfastError) as raised:
        hf.data.mnist(folder=tmp_path)
    message = str(raised.value)
    for part in (*IDX_PARTS, "9,912,422 bytes", str(tmp_path / "mnist"), "sha256:440fcabf73cc"):
        assert part in message
    assert len(message.splitlines()) < 24
    for load in (hf.data.emnist, hf.data.cifar10, hf.data.cifar100, hf.data.movielens_1m):
        with pytest.raises(
            hf.HoldfastError, match=r"could not be downloaded \(https://.*no network"
        ):
            load(folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "no idx file"),
        (b"\0\0\x0d\x01\0\0\0\0", "no idx file"),
        (idx(np.zeros((2, 3)))[:-1], r"has 5 values but its header says \(2, 3\)"),
        (gzip.compress(idx(np.zeros(999)))[:-9], "cannot be read"),
    ],
    ids=["empty", "another type", "too short", "cut off"],
)
def test_broken_idx(raw, says):
    with pytest.raises(hf.HoldfastError, match=f"it {says}|it is {says}"):
        read_idx(raw, "it")


def emnist_file(labels, images, writers):
    part = {
        "images": images.transpose(0, 2, 1).reshape(len(images), -1).astype(np.uint8),
        "labels": np.array(labels, np.uint8)[:, None],
        "writers": np.array(writers, np.uint16)[:, None],
    }
    file = io.BytesIO()
    savemat(file, {"dataset": {"train": part, "test": part, "mapping": np.zeros((2, 2))}})
    return file.getvalue()


def test_emnist_is_upright_and_owned_by_writers(tmp_path):
    images = RNG.integers(0, 256, (4, 28, 28))
    (tmp_path / "matlab").mkdir()
    raw = emnist_file([1, 26, 2, 2], images, [700, 5, 5, 9])
    (tmp_path / "matlab" / "emnist-letters.mat").write_bytes(raw)
    data = hf.data.emnist("letters", folder=tmp_path)
    np.testing.assert_allclose(data.train.x[..., 0], images / 255, rtol=1e-6)
    assert data.train.y.tolist() == [0, 25, 1, 1]
    assert data.owners.tolist() == data.test_owners.tolist() == [700, 5, 5, 9]
    assert data.classes == 26
    clients, tests = data.natural()
    assert clients.sizes.tolist() == tests.sizes.tolist() == [2, 1, 1]
    with pytest.raises(hf.HoldfastError, match="unknown split `leters`; did you mean `letters`"):
        hf.data.emnist("leters", folder=tmp_path)
    with pytest.raises(hf.HoldfastError, match="cannot be read"):
        read_emnist(b"nothing of the kind")


def cifar_records(labels, images):
    pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.hstack([labels, pixels]).astype(np.uint8).tobytes()


def test_cifar10_from_a_folder_or_the_archive(tmp_path):
    images, labels = RNG.integers(0, 256, (6, 32, 32, 3)), RNG.integers(0, 10, (6, 1))
    names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    inside = tmp_path / "cifar10" / "cifar-10-batches-bin"
    inside.mkdir(parents=True)
    for k, name in enumerate(names):
        (inside / name).write_bytes(cifar_records(labels[k : k + 1], images[k : k + 1]))
    data = hf.data.cifar10(folder=tmp_path, verify=False)
    assert data.train.x.shape == (5, 32, 32, 3)
    np.testing.assert_allclose(data.train.x, images[:5] / 255, rtol=1e-6)
    assert data.train.y.tolist() == labels[:5, 0].tolist()
    assert data.test.y.tolist() == labels[5:, 0].tolist()
    standard = hf.data.cifar10(normalise=True, folder=tmp_path, verify=False).test.x
    np.testing.assert_allclose(
        standard[..., 2], (images[5:, ..., 2] / 255 - 0.4465) / 0.2616, atol=1e-5
    )
    with pytest.raises(hf.HoldfastError, match=r"data_batch_1.bin has md5:\w+ but md5:5dd7e06a"):
        hf.data.cifar10(folder=tmp_path)

    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(inside, "cifar-10-batches-bin")
    for path in inside.iterdir():
        path.unlink()
    inside.rmdir()
    inside.parent.rmdir()
    again = hf.data.cifar10(folder=tmp_path, verify=False)
    np.testing.assert_array_equal(again.train.x, data.train.x)


def test_a_part_of_cifar10_is_read_only_where_it_was_asked_for(tmp_path):
    record = bytes(3073)
    for name in ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(record)
    assert len(hf.data.cifar10(batches=2, folder=tmp_path, verify=False).train.y) == 2
    with pytest.raises(
        hf.HoldfastError, match=r"without .*batch_3.bin.*or give `batches` the number"
    ):
        hf.data.cifar10(folder=tmp_path, verify=False)
    for batches in (0, 6, 1.5):
        with pytest.raises(hf.HoldfastError, match=r"give a whole number 1\.\.5"):
            hf.data.cifar10(batches=batches, folder=tmp_path)


def test_cifar100_has_two_kinds_of_labels(tmp_path):
    images = RNG.integers(0, 256, (3, 32, 32, 3))
    labels = np.array([[1, 10], [19, 99], [0, 0]])
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(cifar_records(labels, images))
    data = hf.data.cifar100(folder=tmp_path, verify=False)
    assert (data.train.y.tolist(), data.classes) == ([10, 99, 0], 100)
    np.testing.assert_allclose(data.test.x, images / 255, rtol=1e-6)
    coarse = hf.data.cifar100(fine=False, folder=tmp_path, verify=False)
    assert (coarse.train.y.tolist(), coarse.classes) == ([1, 19, 0], 20)
    with pytest.raises(hf.HoldfastError, match="3,073 bytes are not whole records of 3074"):
        read_cifar(bytes(3073), 2)


@needs("mnist")
def test_the_real_mnist():
    data = hf.data.mnist(folder=SHARED)  # its checksums are compared
    assert (data.train.x.shape, data.test.x.shape) == ((60000, 28, 28, 1), (10000, 28, 28, 1))
    assert np.bincount(data.train.y)[:3].tolist() == [5923, 6742, 5958]
    assert data.test.y[:5].tolist() == [7, 2, 1, 0, 4]
    assert (data.train.x.min(), data.train.x.max()) == (0, 1)
    assert data.train.x.mean() == pytest.approx(0.1307, abs=1e-4)
    assert data.train.x.std() == pytest.approx(0.3081, abs=1e-4)


@needs("fashion_mnist")
def test_the_real_fashion_mnist():
    data = hf.data.fashion_mnist(folder=SHARED)  # its checksums are compared
    assert np.bincount(data.train.y).tolist() == [6000] * 10
    assert data.train.y[:5].tolist() == [9, 0, 0, 3, 0]
    assert data.train.x.mean() == pytest.approx(0.2860, abs=1e-4)


@needs("emnist")
def test_the_real_emnist():
    data = hf.data.emnist(folder=SHARED, file="emnist-balanced-small.mat", normalise=True)
    assert data.train.x.shape == data.test.x.shape == (2000, 28, 28, 1)
    assert (len(np.unique(data.owners)), len(np.unique(data.test_owners))) == (1491, 1445)
    assert (data.train.y.min(), data.train.y.max()) == (0, 46)
    assert abs(data.train.x.mean()) < 0.01
    assert data.train.x.std() == pytest.approx(1, abs=0.01)
    # Upright, a 7 (class 7) has its bar above; by columns it would be at the left.
    sevens = data.train.x[data.train.y == 7].mean(0)[..., 0]
    assert sevens[:12].mean() > sevens[16:].mean()


@needs("cifar10")
def test_the_real_cifar10():
    data = hf.data.cifar10(batches=1, folder=SHARED)  # its checksums are compared
    assert data.train.x.shape == data.test.x.shape == (10000, 32, 32, 3)
    assert np.bincount(data.test.y).tolist() == [1000] * 10
    assert data.train.y[:3].tolist() == [6, 9, 9]  # a frog, then trucks
    np.testing.assert_allclose(data.train.x.mean((0, 1, 2)), [0.4914, 0.4822, 0.4465], atol=5e-3)
    with pytest.raises(hf.HoldfastError, match=r"without .*data_batch_2.bin"):
        hf.data.cifar10(folder=SHARED)
