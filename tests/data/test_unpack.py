"""What unpacks to more than the limit is refused before it is in memory."""

import bz2
import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest

import holdfast as hf
from holdfast.data.cache import opened_archive
from holdfast.data.images import read_idx
from holdfast.data.unpack import VARIABLE

SIZE = 3_000_000
ZEROS = bytes(SIZE)


def archive(path):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("zeros", ZEROS)
    else:
        about = tarfile.TarInfo("zeros")
        about.size = SIZE
        with tarfile.open(path, "w:gz") as file:
            file.addfile(about, io.BytesIO(ZEROS))


def taken_from(path):
    archive(path)
    with opened_archive("set", path) as inside:
        inside.read("zeros")


def extracted(path):
    archive(path)
    with opened_archive("set", path) as inside:
        inside.extract("zeros", path.with_name("out"))


def arrays(path):
    np.savez_compressed(path, x=np.zeros(SIZE), y=np.zeros(1))
    hf.data.arrays(path)


def packed(read, compress=gzip.compress):
    def attempt(path):
        path.write_bytes(compress(ZEROS))
        read(path)

    return attempt


ATTEMPTS = {
    "a.npz": arrays,
    "a.txt.gz": packed(hf.data.text),
    "a.bz2": packed(hf.data.libsvm, bz2.compress),
    "a.csv.gz": packed(lambda path: hf.data.table(path, "label")),
    "a.idx.gz": packed(lambda path: read_idx(path.read_bytes(), str(path))),
    "a.zip": taken_from,
    "a.tar.gz": taken_from,
    "b.zip": extracted,
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_too_much_is_refused_and_says_how_to_raise_the_limit(tmp_path, monkeypatch, name):
    monkeypatch.setenv(VARIABLE, "1e6")
    with pytest.raises(
        hf.HoldfastError, match=f"unpacks to more than 1,000,000 bytes; .*{VARIABLE}"
    ):
        ATTEMPTS[name](tmp_path / name)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.part"))


def test_below_the_limit_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "4e6")
    taken_from(tmp_path / "a.zip")
    monkeypatch.setenv(VARIABLE, "a lot")
    with pytest.raises(hf.HoldfastError, match="give a number of bytes, such as 64e9"):
        taken_from(tmp_path / "a.zip")
