"""STL-10 in its official binary format, and as another source of CIFAR-10's classes."""

import io
import tarfile

import numpy as np
import pytest

import holdfast as hf
from holdfast.config.file import read
from holdfast.config.population import load_dataset
from holdfast.data.stl10 import read_stl10

LABELS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 1], np.uint8)
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
STL10 = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]


def pictures():
    return np.random.default_rng(0).integers(0, 256, (12, 96, 96, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    """The archive as published: channel by channel, column by column."""
    columns = np.ascontiguousarray(pictures().transpose(0, 3, 2, 1)).tobytes()
    with tarfile.open(tmp_path / "stl10_binary.tar.gz", "w:gz", compresslevel=1) as archive:
        for part in ("train", "test"):
            for name, value in (("X", columns), ("y", LABELS.tobytes())):
                info = tarfile.TarInfo(f"stl10_binary/{part}_{name}.bin")
                info.size = len(value)
                archive.addfile(info, io.BytesIO(value))
    return tmp_path


def test_pictures_and_labels(folder):
    data = hf.data.stl10(folder=folder, verify=False)
    np.testing.assert_allclose(data.train.x, pictures() / 255, rtol=1e-6)
    assert data.train.y.tolist() == (LABELS - 1).tolist()
    assert (data.train.x.dtype, data.train.y.dtype, data.classes) == (np.float32, np.int32, 10)
    with pytest.raises(hf.HoldfastError, match=r"stl10_binary.tar.gz has md5:\w+ but md5:91f7"):
        hf.data.stl10(folder=folder)


def test_what_cifar10_has_too_under_its_labels_and_in_its_size(folder):
    data = hf.data.stl10(as_cifar10=True, folder=folder, verify=False)
    names = [STL10[label - 1] for label in LABELS]
    kept = [k for k, name in enumerate(names) if name != "monkey"]
    assert data.train.x.shape == (11, 32, 32, 3)
    assert [CIFAR10[y].replace("automobile", "car") for y in data.train.y] == [
        names[k] for k in kept
    ]
    corner = pictures()[kept, :3, :3].mean(axis=(1, 2)) / 255
    np.testing.assert_allclose(data.train.x[:, 0, 0], corner, rtol=1e-5)


def test_only_so_many_of_each_class(folder):
    data = hf.data.stl10(max_per_class=2, folder=folder, verify=False)
    assert np.bincount(data.train.y).tolist() == [2] + [1] * 9
    assert len(data.test.y) == 12
    with pytest.raises(hf.HoldfastError, match=r"max_per_class=0; give a whole number"):
        hf.data.stl10(max_per_class=0, folder=folder, verify=False)


def test_extracted_files_are_read_too(folder):
    with tarfile.open(folder / "stl10_binary.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / "stl10_binary.tar.gz").unlink()
    assert len(hf.data.stl10(folder=folder, verify=False).train.y) == 12
    with pytest.raises(hf.HoldfastError, match=r"train_X.bin has md5"):
        hf.data.stl10(folder=folder)


def test_files_that_do_not_belong_together_are_refused():
    picture = bytes(3 * 96 * 96)
    with pytest.raises(hf.HoldfastError, match=r"27,648 bytes of pictures and 2 labels"):
        read_stl10(picture, bytes([1, 2]))
    with pytest.raises(hf.HoldfastError, match=r"labels from 0 to 0; give the file of labels"):
        read_stl10(picture, bytes([0]))


def test_a_file_gives_them_to_the_server(folder):
    path = folder / "e.toml"
    path.write_text(
        f'[server.data]\nname = "stl10"\nas_cifar10 = true\nmax_per_class = 1\nverify = false\n'
        f'folder = "{folder}"\n'
    )
    file = read(path)
    made = load_dataset(file, ("server", "data"), file.values["server"]["data"])
    assert sorted(made.train.y.tolist()) == [0, 1, 2, 3, 4, 5, 7, 8, 9]
