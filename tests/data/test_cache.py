"""Where data files come from: the cache folder, a server, or the user's own hands."""

import bz2
import gzip
import hashlib
import io
import tarfile
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.data import cache
from holdfast.data.cache import Archive, File, cache_folder, contents, home, obtain

HELLO = b"hello " * 1000
SHA256 = f"sha256:{hashlib.sha256(HELLO).hexdigest()}"
MD5 = f"md5:{hashlib.md5(HELLO).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path not in self.server.files:
            self.send_error(404)
            return
        body = self.server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + self.server.withheld))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.asked, running.withheld = {"/a.txt": HELLO}, [], 0
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def listing(folder):
    return sorted(p.name for p in Path(folder).rglob("*") if p.is_file())


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("HOLDFAST_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache" / "holdfast"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "holdfast"
    assert home("mnist", None, ["a"]) == cache_folder() / "mnist"


def test_a_given_folder_holds_the_files_or_a_subfolder_does(tmp_path):
    assert home("mnist", tmp_path, ["a"]) == tmp_path / "mnist"
    (tmp_path / "a").touch()
    assert home("mnist", str(tmp_path), ["a"]) == tmp_path
    (tmp_path / "mnist").mkdir()
    assert home("mnist", tmp_path, ["a"]) == tmp_path / "mnist"


@pytest.mark.parametrize("checksum", [SHA256, MD5])
def test_downloads_once_and_verifies(checksum, server, tmp_path):
    file = File("a.txt", (f"{server.url}/a.txt",), checksum)
    for _ in range(2):
        (path,) = obtain("some", [file], tmp_path)
        assert path == tmp_path / "some" / "a.txt"
        assert path.read_bytes() == HELLO
    assert server.asked == ["/a.txt"]
    assert listing(tmp_path) == ["a.txt"]


def test_who_asks_at_once_waits_for_one_download(tmp_path, monkeypatch):
    """As runs side by side do, when they build their study."""
    asked = []

    def download(of, file, place, verify):
        asked.append(file.name)
        time.sleep(0.2)
        place.mkdir(exist_ok=True)
        (place / file.name).write_text("all of it")

    monkeypatch.setattr(cache, "download", download)
    threads = [
        threading.Thread(target=obtain, args=("set", [File("a.txt")], tmp_path)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == ["a.txt"]


def test_goes_on_to_the_next_address(server, tmp_path):
    server.files["/other"] = b"something else"
    urls = tuple(f"{server.url}/{name}" for name in ("gone", "other", "a.txt"))
    assert obtain("some", [File("a.txt", urls, SHA256)], tmp_path)[0].read_bytes() == HELLO
    assert server.asked == ["/gone", "/other", "/a.txt"]
    assert listing(tmp_path) == ["a.txt"]


def test_a_wrong_download_is_not_kept(server, tmp_path):
    wrong = "sha256:" + "0" * 64
    file = File("a.txt", (f"{server.url}/a.txt",), wrong)
    with pytest.raises(hf.HoldfastError, match=rf"a.txt from .* has {SHA256} but {wrong} was"):
        obtain("some", [file], tmp_path)
    assert listing(tmp_path) == []
    assert obtain("some", [file], tmp_path, verify=False)[0].read_bytes() == HELLO
    with pytest.raises(
        hf.HoldfastError, match="delete it to download it again, or give verify=Fal"
    ):
        obtain("some", [file], tmp_path)


def test_half_a_download_is_not_kept(server, tmp_path):
    server.withheld = 10
    with pytest.raises(hf.HoldfastError, match=r"ended after 6,000 of 6,010 bytes"):
        obtain("some", [File("a.txt", (f"{server.url}/a.txt",))], tmp_path)
    assert listing(tmp_path) == []


def test_without_a_published_checksum_the_first_download_counts(server, tmp_path):
    files = [File(name, (f"{server.url}/a.txt",)) for name in ("a.txt", "b.txt")]
    paths = obtain("some", files, tmp_path)
    recorded = (tmp_path / "some" / "CHECKSUMS").read_text().splitlines()
    assert recorded == [f"{SHA256[7:]}  {name}" for name in ("a.txt", "b.txt")]
    obtain("some", files, tmp_path)
    paths[1].write_bytes(b"changed")
    with pytest.raises(hf.HoldfastError, match=rf"b.txt has sha256:\w+ but {SHA256} was expected"):
        obtain("some", files, tmp_path)
    paths[1].unlink()  # as the message advises
    assert obtain("some", files, tmp_path)[1].read_bytes() == HELLO
    assert len((tmp_path / "some" / "CHECKSUMS").read_text().splitlines()) == 2


def test_without_a_network_the_message_says_what_to_put_where(server, tmp_path):
    unreachable = File("c.gz", ("http://127.0.0.1:9/c.gz",), MD5, size=1234567)
    by_hand = File("d.zip", page="https://example.org/d")
    there = File("a.txt", (f"{server.url}/a.txt",), SHA256)
    with pytest.raises(hf.HoldfastError) as raised:
        obtain("some", [there, unreachable, by_hand], tmp_path)
    message = str(raised.value)
    first, *others = message.splitlines()
    assert first.startswith(
        "some: 2 of its files are missing and could not be downloaded (http://127.0.0.1:9/c.gz: "
    )
    assert "refused" in first
    assert others == [
        f"Put into {tmp_path / 'some'}",
        "  - c.gz, 1,234,567 bytes",
        "      from http://127.0.0.1:9/c.gz",
        f"      {MD5}",
        "  - d.zip",
        "      from https://example.org/d",
        "      no checksum published",
        "or name another folder with the environment variable HOLDFAST_DATA or the argument `folder`.",
    ]


def test_what_is_inside_a_gzip_counts_where_it_was_compressed_anew(tmp_path):
    official, anew = gzip.compress(HELLO, 9, mtime=0), gzip.compress(HELLO, 1, mtime=7)
    checksum = f"sha256:{hashlib.sha256(official).hexdigest()}"
    (tmp_path / "a.gz").write_bytes(anew)
    obtain("some", [File("a.gz", (), checksum, MD5)], tmp_path)
    for broken in (gzip.compress(b"other"), anew[:-9], b"no gzip"):
        (tmp_path / "a.gz").write_bytes(broken)
        with pytest.raises(hf.HoldfastError, match=rf"a.gz has sha256:\w+ but {checksum}"):
            obtain("some", [File("a.gz", (), checksum, MD5)], tmp_path)


def zipped(members):
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, value in members.items():
                archive.writestr(name, value)
        return file.getvalue()


def tarred(members):
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, value in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(value)
                archive.addfile(info, io.BytesIO(value))
        return file.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("s.zip", zipped),
        ("s.tar.gz", lambda members: gzip.compress(tarred(members))),
        ("s.tar.bz2", lambda members: bz2.compress(tarred(members))),
    ],
)
def test_archives_are_read_packed_or_extracted(name, pack, tmp_path):
    members = {"s/one": b"1", "s/two": b"22"}
    archive = Archive(File(name), dict.fromkeys(members, ""))
    folder = tmp_path / "some"
    folder.mkdir()
    (folder / name).write_bytes(pack(members))
    assert contents("some", archive, tmp_path) == [b"1", b"22"]
    with pytest.raises(hf.HoldfastError, match="has no `s/three`"):
        contents("some", Archive(File(name), {"s/three": ""}), tmp_path)

    (folder / name).write_bytes(b"broken" * 500)
    with pytest.raises(hf.HoldfastError, match="cannot be read"):
        contents("some", archive, tmp_path)
    (folder / name).unlink()

    (folder / "s").mkdir()
    (folder / "s" / "one").write_bytes(b"1")
    with pytest.raises(
        hf.HoldfastError, match=r"only a part of the set, without s/two; put .* now\."
    ):
        contents("some", archive, tmp_path, otherwise=", now")
    (folder / "s" / "two").write_bytes(b"22")
    for where in (tmp_path, folder, folder / "s"):
        assert contents("some", archive, where) == [b"1", b"22"]
    wrong = Archive(File(name), {"s/one": MD5})
    with pytest.raises(hf.HoldfastError, match=r"one has md5:.* but"):
        contents("some", wrong, tmp_path)


def test_archives_are_downloaded_into_the_set_folder(server, tmp_path):
    server.files["/s.zip"] = zipped({"s/one": b"1"})
    archive = Archive(File("s.zip", (f"{server.url}/s.zip",)), {"s/one": ""})
    assert contents("some", archive, tmp_path) == [b"1"]
    assert (tmp_path / "some" / "s.zip").exists()


def test_a_missing_library_is_named_with_what_installs_it():
    with pytest.raises(hf.HoldfastError, match=r'sets needs Nix.*pip install "holdfast\[data\]"'):
        cache.optional("no_such_library", "Nix", "sets")


def test_a_folder_that_cannot_be_written_is_said(server, tmp_path):
    (tmp_path / "some").write_text("a file, no folder")
    with pytest.raises(hf.HoldfastError, match=r"could not be downloaded .*File exists"):
        obtain("some", [File("a.txt", (f"{server.url}/a.txt",))], tmp_path)
    assert listing(tmp_path) == ["some"]
