"""What is at a site: its file, its keys; and the folder to start from."""

import os
import stat

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.deploy.keys import write_keys
from tests.deploy.federations import experiment

SITE = """
name = "north"
folder = "state"

[data]
file = "north.npz"
"""


@pytest.fixture
def place(tmp_path):
    own = experiment().clients[0]
    np.savez(tmp_path / "north.npz", x=own.x, y=own.y, test_x=own.x[:2], test_y=own.y[:2])
    (tmp_path / "site.toml").write_text(SITE)
    return tmp_path


def test_a_site_is_what_its_file_says(place):
    site = hf.deploy.site_from_file(place / "site.toml", experiment())
    assert site.name == "north"
    assert site.folder == place / "state"
    assert (len(site.examples.y), len(site.tests.y)) == (7, 2)
    assert site.algorithms is None
    (place / "site.toml").write_text(SITE + '[allow]\nalgorithms = ["ab"]\n')
    assert hf.deploy.site_from_file(place / "site.toml", experiment()).algorithms == ["ab"]


WRONG = {
    "no name": ('name = "north"', "", "`name` is missing"),
    "unknown": ("folder =", "fodler =", "unknown key `fodler`; did you mean `folder`"),
    "type": ('name = "north"', "name = 3", "`name` is 3; give a str"),
    "no file": ("north.npz", "south.npz", "there is no file"),
    "no TOML": ("[data]", "[data", "is no TOML"),
    "other key": ("file =", "flie =", "unknown key `flie` of \\[data\\]; did you mean `file`"),
    "a list": ('name = "north"', 'name = ["north"]', "`name` is \\['north'\\]; give a str"),
    "no source": (
        'file = "north.npz"',
        "test = 0.2",
        "nothing is given in \\[data\\]; give one of",
    ),
    "two sources": ("file =", 'path = "a.csv"\nfile =', "file and path is given in \\[data\\]"),
    "share": ("file =", "test = 1.5\nfile =", "`test` of \\[data\\] is 1.5; give a share"),
    "held out twice": ("file =", "test = 0.2\nfile =", "says itself what is held out"),
    "of tables": ("file =", 'label = "y"\nfile =', "`label` of \\[data\\] is for tables"),
    "of files": ("[data]", '[allow]\nexperiments = ["ab"]\n[data]', "are experiment files"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_site_file_is_said_in_a_line(name, place):
    old, new, words = WRONG[name]
    (place / "site.toml").write_text(SITE.replace(old, new))
    with pytest.raises(hf.HoldfastError, match=words) as caught:
        hf.deploy.site_from_file(place / "site.toml", experiment())
    assert "\n" not in str(caught.value)


def test_data_that_could_run_code_is_not_read(place):
    np.savez(place / "north.npz", x=np.array([{}], object), y=np.zeros(1))
    with pytest.raises(hf.HoldfastError, match="has no arrays that can be read"):
        hf.deploy.site_from_file(place / "site.toml", experiment())
    np.savez(place / "north.npz", features=np.zeros(1))
    with pytest.raises(hf.HoldfastError, match=r"has features; write it with np\.savez"):
        hf.deploy.site_from_file(place / "site.toml", experiment())


@pytest.mark.parametrize("host", ["", "two words", "x" * 65])
def test_a_host_that_no_certificate_can_name_is_refused(host, tmp_path):
    with pytest.raises(hf.HoldfastError, match="give a name or an address"):
        write_keys(tmp_path, ["north"], [host])
    assert not list(tmp_path.iterdir())


def test_keys_are_made_once_and_only_their_owner_reads_them(tmp_path):
    pytest.importorskip("cryptography")
    first = write_keys(tmp_path / "keys", ["north", "south"])
    assert sorted(path.name for path in first) == [
        "ca.crt", "ca.key", "north.key", "north.pub", "server.crt", "server.key", "south.key", "south.pub",
    ]  # fmt: skip
    for path in first:
        open_to_all = stat.S_IMODE(os.stat(path).st_mode) & 0o077
        assert bool(open_to_all) == (path.suffix != ".key")
    before = (tmp_path / "keys" / "north.key").read_bytes()
    again = write_keys(tmp_path / "keys", ["north", "west"])
    assert [path.name for path in again] == ["west.key", "west.pub"]
    assert (tmp_path / "keys" / "north.key").read_bytes() == before
    with pytest.raises(hf.HoldfastError, match="letters, digits"):
        write_keys(tmp_path / "keys", ["../north"])


def test_the_command_writes_a_federation_once(tmp_path):
    folder = tmp_path / "federation"
    done = CliRunner().invoke(app, ["deploy", "new", str(folder)])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (folder / "sites").glob("*.toml")) == [
        "east.toml",
        "north.toml",
        "south.toml",
    ]
    # Flower sends the app to everybody: no file of a site is in it.
    assert {path.suffix for path in (folder / "app").rglob("*") if path.is_file()} == {
        ".py",
        ".toml",
    }
    again = CliRunner().invoke(app, ["deploy", "new", str(folder)])
    assert again.exit_code != 0
    assert "exists already" in again.output


def test_a_federation_elsewhere_is_not_spoken_to_without_a_certificate(tmp_path):
    words = ["deploy", "status", "--superlink", "fed.example.org:8000", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert "give --ca CERTIFICATE" in " ".join(done.output.split())
