"""Where data files live, how they get there, and whether they are the right ones."""

import contextlib
import dataclasses
import fcntl
import gzip
import hashlib
import http.client
import importlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from holdfast.data.unpack import damage_said, limited
from holdfast.errors import HoldfastError

VARIABLE = "HOLDFAST_DATA"
CHECKSUMS = "CHECKSUMS"
TIMEOUT = 30  # seconds without a byte
_BLOCK = 1 << 20

Folder = str | os.PathLike[str] | None


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a data set, as its makers publish it.

    Args:
        name: its name in the set's folder.
        urls: where it can be had, the first that answers is taken; none where no program can.
        checksum: `sha256:...` or `md5:...` as published; empty where nobody published one.
        content: the same for what is inside a `.gz`, since mirrors compress anew.
        size: bytes.
        page: where a person finds it.
    """

    name: str
    urls: tuple[str, ...] = ()
    checksum: str = ""
    content: str = ""
    size: int | None = None
    page: str = ""

    def __str__(self) -> str:
        size = "" if self.size is None else f", {self.size:,} bytes"
        places = "".join(f"\n      from {place}" for place in (*self.urls, self.page) if place)
        return f"{self.name}{size}{places}\n      {self.checksum or 'no checksum published'}"


def cache_folder() -> Path:
    """Where data sets are kept: `HOLDFAST_DATA`, or `holdfast` in the user's cache directory.

    Example:
        >>> import os
        >>> os.environ["HOLDFAST_DATA"] = "/data"
        >>> cache_folder().as_posix()
        '/data'
        >>> del os.environ["HOLDFAST_DATA"]
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"


def home(of: str, folder: Folder, names: Sequence[str]) -> Path:
    """The folder of one data set: a subfolder with its name, or the given folder if the files are there."""
    if folder is None:
        return cache_folder() / of
    given = Path(folder).expanduser()
    directly = not (given / of).is_dir() and any((given / name).exists() for name in names)
    return given if directly else given / of


def obtain(
    of: str, files: Sequence[File], folder: Folder = None, verify: bool = True
) -> list[Path]:
    """Paths of a set's files, downloaded where they are missing and checked.

    Args:
        of: the set's name.
        files: what it consists of.
        folder: instead of the cache folder.
        verify: compare checksums.
    """
    return _obtain_in(home(of, folder, [file.name for file in files]), of, files, verify)


def _obtain_in(place: Path, of: str, files: Sequence[File], verify: bool) -> list[Path]:
    missing = [file for file in files if not (place / file.name).exists()]
    for file in files:
        if file not in missing:
            check(of, place / file.name, file, verify)
    with _one_at_a_time(place) if missing else contextlib.nullcontext():
        for file in missing:
            if (place / file.name).exists():
                continue
            try:
                download(of, file, place, verify)
            except OSError as error:
                absent = [f for f in missing if not (place / f.name).exists()]
                raise HoldfastError(
                    _instructions(of, place, absent, error), about=("folder",)
                ) from None
    return [place / file.name for file in files]


@contextlib.contextmanager
def _one_at_a_time(place: Path) -> Iterator[None]:
    """Wait for other processes of this user that download to the same folder: runs side by side all build
    their study at once. The folder itself is made when something comes."""
    known = hashlib.sha256(str(place.absolute()).encode()).hexdigest()[:16]
    name = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}-{known}.lock"
    with contextlib.ExitStack() as until:
        # Where there are no locks, everybody downloads: no file is ever there in half.
        with contextlib.suppress(OSError):
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            until.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _instructions(of: str, place: Path, missing: Sequence[File], error: OSError) -> str:
    listed = "\n".join(f"  - {file}" for file in missing)
    return (
        f"{of}: {len(missing)} of its files are missing and could not be downloaded ({error}).\n"
        f"Put into {place}\n{listed}\n"
        f"or name another folder with the environment variable {VARIABLE} or the argument `folder`."
    )


def check(of: str, path: Path, file: File, verify: bool = True) -> None:
    """Refuse a file that is not what was published or, where nothing was, what was downloaded first."""
    expected = file.checksum or _recorded(path)
    if not verify or not expected:
        return
    found = digest(path, expected)
    if found == expected:
        return
    if file.content and _content_digest(path, file.content) == file.content:
        return
    raise HoldfastError(
        f"{of}: {path} has {found} but {expected} was expected; delete it to download it again, "
        f"or give verify=False to read it as it is."
    )


def digest(path: Path, like: str) -> str:
    """A file's checksum, by the algorithm of another: `sha256:...` or `md5:...`."""
    with path.open("rb") as file:
        return _digest(file, like)


def _digest(file: Any, like: str) -> str:
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _content_digest(path: Path, like: str) -> str:
    try:
        with gzip.open(path) as file:
            return _digest(file, like)
    except (OSError, EOFError, zlib.error):
        return "not gzip"


def _recorded(path: Path) -> str:
    """What `CHECKSUMS` beside a file says about it; its lines are those of `sha256sum`."""
    with contextlib.suppress(FileNotFoundError):
        for line in (path.parent / CHECKSUMS).read_text().splitlines():
            value, _, name = line.partition("  ")
            if name == path.name:
                return f"sha256:{value}"
    return ""


def download(of: str, file: File, place: Path, verify: bool = True) -> None:
    """Bring one file into a folder, under its name only once it is whole and right.

    Raises OSError where no address answers, HoldfastError where the last one sends another file.
    Where no checksum is published, the one found is written to `CHECKSUMS`, and later readings are
    compared with it.
    """
    failure: Exception = OSError(
        "no program can download it" if file.page else "no address is known"
    )
    for url in file.urls:
        try:
            _download_from(url, of, file, place, verify)
            return
        except HoldfastError as error:
            failure = error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            failure = OSError(f"{url}: {reason}")
    raise failure


def _download_from(url: str, of: str, file: File, place: Path, verify: bool) -> None:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        place.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".part", dir=place)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as sink:
                _copy(answer, sink, file)
            found = digest(part, file.checksum or "sha256:")
            if verify and file.checksum and found != file.checksum:
                raise HoldfastError(
                    f"{of}: {file.name} from {url} has {found} but {file.checksum} was expected, so "
                    f"it was not kept; try again, or put the right file into {place}."
                )
            # Temporary files are their maker's alone.
            os.chmod(part, 0o644)
            os.replace(part, place / file.name)
        finally:
            part.unlink(missing_ok=True)
    if not file.checksum:
        _record(place / file.name, found)


def _copy(answer: http.client.HTTPResponse, sink: BinaryIO, file: File) -> None:
    length = answer.headers.get("Content-Length")
    total = int(length) if length else file.size
    received = 0
    with _progress() as progress:
        bar = progress.add_task(file.name, total=total)
        while block := answer.read(_BLOCK):
            sink.write(block)
            received += len(block)
            progress.update(bar, completed=received)
    if length and received != total:
        raise OSError(f"the connection ended after {received:,} of {total:,} bytes")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _record(path: Path, found: str) -> None:
    recorded = path.parent / CHECKSUMS
    lines = recorded.read_text().splitlines() if recorded.exists() else []
    kept = [line for line in lines if line.partition("  ")[2] != path.name]
    recorded.write_text("\n".join([*kept, f"{found.partition(':')[2]}  {path.name}"]) + "\n")


@dataclasses.dataclass(frozen=True)
class Archive:
    """A published archive, of which some files are needed.

    Args:
        file: the archive, `.zip` or `.tar.*`.
        members: names inside it, and their checksums (empty where nobody published one).
    """

    file: File
    members: dict[str, str]


def contents(
    of: str, archive: Archive, folder: Folder = None, verify: bool = True, otherwise: str = ""
) -> list[bytes]:
    """What an archive's members hold, from where it was extracted or else from the archive itself.

    Extracted files may lie in the archive's own subfolder or directly in the set's folder. Where
    only some are there, `otherwise` says what else to do than to add the others.
    """
    names = list(archive.members)
    plain = [PurePosixPath(name).name for name in names]
    place = home(of, folder, [archive.file.name, *names, *plain])
    found = [
        _first_there(place / name, place / short) for name, short in zip(names, plain, strict=True)
    ]
    if all(found):
        paths = [path for path in found if path]
        for path, checksum in zip(paths, archive.members.values(), strict=True):
            check(of, path, File(path.name, checksum=checksum), verify)
        return [path.read_bytes() for path in paths]
    if any(found) and not (place / archive.file.name).exists():
        absent = [name for name, path in zip(names, found, strict=True) if not path]
        raise HoldfastError(
            f"{of}: {place} has only a part of the set, without {', '.join(absent)}; "
            f"put these there, or {archive.file.name} instead{otherwise}.",
            about=("folder",),
        )
    (path,) = _obtain_in(place, of, [archive.file], verify)
    with opened_archive(of, path) as inside:
        return [inside.read(name) for name in names]


def _first_there(*paths: Path) -> Path | None:
    return next((path for path in paths if path.exists()), None)


class OpenArchive:
    """Members of a `.zip` or `.tar.*` by name."""

    def __init__(self, of: str, path: Path, archive: Any) -> None:
        self.of, self.path, self.archive = of, path, archive

    def open(self, name: str) -> BinaryIO:
        """One member, to read from."""
        try:
            if isinstance(self.archive, zipfile.ZipFile):
                return self.archive.open(name)  # type: ignore[return-value]
            return self.archive.extractfile(name)
        except KeyError:
            raise HoldfastError(
                f"{self.of}: {self.path} has no `{name}`; put the official archive in its place."
            ) from None

    def read(self, name: str) -> bytes:
        """What one member holds."""
        with limited(self.open(name), f"{self.path}, {name}") as member:
            return member.read()

    def extract(self, name: str, to: Path) -> None:
        """Write one member to a path, which exists only once it is whole."""
        part = to.with_name(f"{to.name}.{os.getpid()}.part")
        try:
            what = f"{self.path}, {name}"
            with limited(self.open(name), what) as source, part.open("wb") as sink:
                shutil.copyfileobj(source, sink, _BLOCK)
            os.replace(part, to)
        finally:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def opened_archive(of: str, path: Path) -> Iterator[OpenArchive]:
    """An archive to take members from; a broken one is said to be so."""
    with (
        damage_said(of, path, "delete it to download it again", about=()),
        zipfile.ZipFile(path) if path.suffix == ".zip" else tarfile.open(path) as archive,
    ):
        yield OpenArchive(of, path, archive)


def optional(module: str, install: str, what: str) -> Any:
    """A library that only some data sets need, imported when they do."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise HoldfastError(
            f'{what} needs {install}, which is not installed; run `pip install "holdfast[data]"`.'
        ) from None
