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
from holdfast.config.file import read
from holdfast.config.population import load_dataset

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


def test_users_by_id(folder):
    data = hf.data.stack_overflow(users=["3", "1"], words=3, tags=2, folder=folder, verify=False)
    assert data.owners.tolist() == ["3", "1", "1"]
    assert data.test_owners.tolist() == ["1"]


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (["1", "77"], r"nobody among the 3 users has the id '77'; give ids"),
        (["1", "1"], r"users=\['1', '1'\]; give how many, or a list of ids in quotes, each once"),
        ("1", r"users='1'; give how many, or a list of ids"),
        ([], r"users=\[\]; give how many"),
        ([1], r"users=\[1\]; give how many"),
        (2.5, r"users=2\.5; give a whole number"),
    ],
)
@pytest.mark.parametrize("loader", [hf.data.stack_overflow, hf.data.stack_overflow_text])
def test_users_that_are_not_there_are_refused(folder, loader, users, message):
    with pytest.raises(hf.HoldfastError, match=message):
        loader(users=users, folder=folder, verify=False)


def test_posts_as_characters(folder):
    """The posts of a user in one line each; windows of four characters and the one that follows."""
    data = hf.data.stack_overflow_text(
        users=["1", "3"], window=4, alphabet="the gimra\n", folder=folder, verify=False
    )
    wrote = "the git merge\nthe the"
    numbers = np.array(["the gimra\n".index(letter) + 1 for letter in wrote])
    cut = [numbers[k : k + 5] for k in range(0, len(wrote) - 4, 5)]
    assert data.owners.tolist() == ["1"] * 4 + ["3"]
    np.testing.assert_array_equal(data.train.x[:4], [one[:-1] for one in cut])
    np.testing.assert_array_equal(data.train.y[:4], [one[1:] for one in cut])
    assert data.vocabulary == 11
    assert (len(data.test.y), data.test_owners.tolist()) == (
        0,
        [],
    )  # `git` is too short for a window
    with pytest.raises(hf.HoldfastError, match=r"none of 3 users wrote more than 100 characters"):
        hf.data.stack_overflow_text(folder=folder, verify=False)
    later = hf.data.stack_overflow_text(window=2, characters=3, folder=folder, verify=False)
    assert later.test_owners.tolist() == ["1"]
    assert later.vocabulary == 4


def test_a_file_names_users_by_id(folder):
    path = folder / "e.toml"
    path.write_text(
        f'[data]\nname = "stack_overflow_text"\nusers = ["3", "1"]\nwindow = 4\n'
        f'folder = "{folder}"\nverify = false\n'
    )
    file = read(path)
    made = load_dataset(file, ("data",), file.values["data"])
    assert set(made.owners) == {"1", "3"}
