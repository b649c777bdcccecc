"""CelebA in its official layout, with faces of one colour."""

import io
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

import holdfast as hf

PEOPLE = [7, 3, 7, 7, 3, 9]
SMILING = [1, -1, -1, 1, 1, -1]
OFFICIAL = [0, 2, 0, 0, 2, 1]
NAMES = [f"{k:06d}.jpg" for k in range(1, 7)]


def face(k):
    file = io.BytesIO()
    Image.new("RGB", (178, 218), (40 * k, 0, 255)).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    attributes = [
        "6",
        "Bald Smiling Young",
        *(f"{n} -1 {s:2d} 1" for n, s in zip(NAMES, SMILING, strict=True)),
    ]
    lists = {
        "list_attr_celeba.txt": attributes,
        "identity_CelebA.txt": [f"{n} {p}" for n, p in zip(NAMES, PEOPLE, strict=True)],
        "list_eval_partition.txt": [f"{n} {p}" for n, p in zip(NAMES, OFFICIAL, strict=True)],
    }
    for name, lines in lists.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "img_align_celeba").mkdir()
    for k, name in enumerate(NAMES):
        (tmp_path / "img_align_celeba" / name).write_bytes(face(k))
    return tmp_path


def test_celebrities_own_their_pictures(folder):
    data = hf.data.celeba(size=8, min_examples=2, test_share=0.5, folder=folder, verify=False)
    assert data.train.x.shape == (2, 8, 8, 3)
    assert (data.owners.tolist(), data.test_owners.tolist()) == ([3, 7], [3, 7, 7])
    assert (data.train.y.tolist(), data.test.y.tolist()) == ([0, 1], [1, 0, 1])
    np.testing.assert_allclose(data.train.x[0, 4, 4], [40 / 255, 0, 1], atol=0.02)
    assert (data.train.x.dtype, data.train.y.dtype, data.classes) == (np.float32, np.int32, 2)


def test_the_official_partition(folder):
    data = hf.data.celeba(
        "Young", size=4, min_examples=1, test="official", folder=folder, verify=False
    )
    assert data.owners.tolist() == [7, 7, 7]
    assert (len(data.test.y), data.test_owners) == (2, None)
    assert data.train.y.tolist() == [1, 1, 1]


def test_the_archive_reads_as_the_folder(folder):
    arguments = {"size": 4, "min_examples": 1, "people": 2, "normalise": True, "verify": False}
    extracted = hf.data.celeba(folder=folder, **arguments)
    assert len(np.unique(extracted.owners)) == 2
    assert extracted.train.x.min() == pytest.approx(-1, abs=0.05)
    with zipfile.ZipFile(folder / "img_align_celeba.zip", "w") as archive:
        for path in sorted((folder / "img_align_celeba").iterdir()):
            archive.write(path, f"img_align_celeba/{path.name}")
            path.unlink()
    (folder / "img_align_celeba").rmdir()
    packed = hf.data.celeba(folder=folder, **arguments)
    np.testing.assert_array_equal(packed.train.x, extracted.train.x)


def test_several_people_may_be_one_client(folder):
    arguments = {"size": 4, "min_examples": 1, "folder": folder, "verify": False}
    alone, composite = (hf.data.celeba(people_per_client=k, **arguments) for k in (1, 2))
    assert np.unique(alone.owners).tolist() == [3, 7, 9]
    of_first = [np.isin(alone.owners, [3, 7]).sum() + np.isin(alone.test_owners, [3, 7]).sum()]
    of_first += [(composite.owners == 0).sum() + (composite.test_owners == 0).sum()]
    assert of_first[0] == of_first[1]
    assert np.unique(composite.owners).tolist() == [0, 1]


def test_mistakes(folder, tmp_path, monkeypatch):
    def load(**arguments):
        return hf.data.celeba(**{"folder": folder, "verify": False} | arguments)

    with pytest.raises(
        hf.HoldfastError, match="unknown attribute `Smilling`; did you mean `Smiling`"
    ):
        load(attribute="Smilling")
    with pytest.raises(hf.HoldfastError, match="nobody has 50 pictures"):
        load(min_examples=50)
    with pytest.raises(hf.HoldfastError, match="give `later` or `others`"):
        load(test="never")
    with pytest.raises(hf.HoldfastError, match=r"list_attr_celeba.txt has md5"):
        load(verify=True)
    with pytest.raises(
        hf.HoldfastError, match=r"(?s)3 of its files .*no program.*img_align_celeba.zip"
    ):
        load(folder=tmp_path / "elsewhere")
    (folder / "img_align_celeba" / NAMES[0]).write_bytes(b"no picture")
    with pytest.raises(hf.HoldfastError, match=r"000001.jpg cannot be read"):
        load(min_examples=1)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(hf.HoldfastError, match="celeba needs Pillow"):
        load(min_examples=1)
