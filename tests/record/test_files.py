"""A file is written whole or not at all, and is on the disk with its name."""

import os

import pytest

from holdfast.record import files


def test_parts_make_one_file(tmp_path):
    path = tmp_path / "run.json"
    files.write_whole(path, "sö", b"\x00\x01")
    assert path.read_bytes() == "sö".encode() + b"\x00\x01"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_stopped_at_any_moment_the_old_file_is_there(tmp_path, monkeypatch, moment):
    path = tmp_path / "run.json"
    files.write_whole(path, "old")

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, moment, stop)
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(path, "new")
    assert path.read_text() == "old"


def test_the_file_is_synced_and_then_the_folder_that_names_it(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    files.write_whole(tmp_path / "run.json", "new")
    assert synced == [str(tmp_path / "run.json.partial"), str(tmp_path)]
