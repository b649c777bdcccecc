"""Stack Overflow's posts as bags of words; a stand-in for h5py where it is not installed."""

import bz2
import contextlib
import importlib.util
import io
import json
import sys
import tarfile
import types

import numpy as np
import pytest

import holdfast as hf

H5PY = importlib.util.find_spec("h5py") is not None
BEFORE = {
    "1": [("the git merge", "git", "git|merge"), ("the the", "svn", "svn")],
    "2": [("unknown words only", "x", "java")],
    "3": [("a git", "the end", "git")],
}
AFTER = {"1": [("git", "git", "git")], "4": [("the", "the", "svn")]}
WORDS = "the 9\ngit 5\na 2\nsvn 1\n"
TAGS = json.dumps({"svn": 2, "git": 7, "merge": 1})


def as_group(users):
    fields = ("tokens", "title", "tags")
    return {
        user: {f: [post[k].encode() for post in posts] for k, f in enumerate(fields)}
        for user, posts in users.items()
    }


def write_h5(users):
    """One file as TensorFlow Federated's, by h5py or as the stand-in reads it."""
    if not H5PY:
        return json.dumps(users).encode()
    import h5py

    file = io.BytesIO()
    with h5py.File(file, "w") as h5:
        for user, fields in as_group(users).items():
            for field, values in fields.items():
                h5.create_dataset(
                    f"examples/{user}/{field}", data=values, dtype=h5py.string_dtype()
                )
    return file.getvalue()


@pytest.fixture
def reader(monkeypatch):
    """h5py, or what of it the loader uses."""
    if not H5PY:

        @contextlib.contextmanager
        def opened(path, _):
            yield {"examples": as_group(json.loads(path.read_bytes()))}

        monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=opened))


def pack(path, members):
    with tarfile.open(path, "w:bz2") as archive:
        for name, value in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(value)
            archive.addfile(info, io.BytesIO(value))


@pytest.fixture
def folder(tmp_path, reader):
    posts = {"stackoverflow_train.h5": write_h5(BEFORE), "stackoverflow_test.h5": write_h5(AFTER)}
    pack(tmp_path / "stackoverflow.tar.bz2", posts)
    for name, text in (("word_count", WORDS), ("tag_count", TAGS)):
        member = {f"stackoverflow.{name}": text.encode()}
        pack(tmp_path / f"stackoverflow.{name}.tar.bz2", member)
    return tmp_path


def test_words_and_tags_by_user(folder):
    data = hf.data.stack_overflow(words=3, tags=2, folder=folder, verify=False)
    assert data.owners.tolist() == ["1", "1", "2", "3"]
    expected = [[1 / 4, 2 / 4, 0], [2 / 3, 0, 0], [0, 0, 0], [1 / 4, 1 / 4, 1 / 4]]
    np.testing.assert_allclose(data.train.x, expected)
    assert data.train.y.tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]  # git, svn
    assert (data.test_owners.tolist(), data.test.y.tolist()) == (["1"], [[1, 0]])
    assert (data.classes, data.vocabulary, data.train.x.dtype) == (2, 3, np.float32)
    clients, tests = data.natural()
    assert (clients.sizes.tolist(), tests.sizes.tolist()) == ([2, 1, 1], [1, 0, 0])


def test_limits(folder):
    data = hf.data.stack_overflow(users=2, max_examples=1, folder=folder, verify=False)
    assert len(data.owners) == len(set(data.owners)) == 2
    with pytest.raises(hf.HoldfastError, match="users=0; give"):
        hf.data.stack_overflow(users=0, folder=folder)


def test_posts_are_extracted_once(folder):
    hf.data.stack_overflow(folder=folder, verify=False)
    (folder / "stackoverflow.tar.bz2").write_bytes(bz2.compress(b"no longer needed"))
    hf.data.stack_overflow(folder=folder, verify=False)
    (folder / "stackoverflow_test.h5").unlink()
    with pytest.raises(hf.HoldfastError, match=r"stackoverflow.tar.bz2 cannot be read"):
        hf.data.stack_overflow(folder=folder, verify=False)
    with pytest.raises(
        hf.HoldfastError, match=r"word_count.tar.bz2 has sha256:\w+ but sha256:1dc0"
    ):
        hf.data.stack_overflow(folder=folder)


def test_without_h5py(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(hf.HoldfastError, match=r'needs h5py.*pip install "holdfast\[data\]"'):
        hf.data.stack_overflow(folder=tmp_path)
