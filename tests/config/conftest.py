"""A folder of its own to run commands in."""

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with one around it that is somebody else's."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "300")
    return place
