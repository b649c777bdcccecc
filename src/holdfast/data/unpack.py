"""Files that may be damaged, or may unpack to more than a machine holds: refused, by their name."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from holdfast.errors import About, HoldfastError

VARIABLE = "HOLDFAST_MAX_UNPACKED"
_USUAL = 32 * 10**9
_OPEN: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}


def max_unpacked() -> int:
    """The most bytes that a compressed file may unpack to: `HOLDFAST_MAX_UNPACKED`, 32 GB unless given.

    Example:
        >>> max_unpacked()
        32000000000
    """
    given = os.environ.get(VARIABLE, str(_USUAL))
    try:
        return int(float(given))
    except (ValueError, OverflowError):
        raise HoldfastError(f"{VARIABLE}={given}; give a number of bytes, such as 64e9.") from None


def refuse_larger(what: str, size: int) -> None:
    """Refuse what would unpack to more than the limit."""
    if size > max_unpacked():
        raise HoldfastError(
            f"{what} unpacks to more than {max_unpacked():,} bytes; if it is what you want, raise the "
            f"limit by the environment variable {VARIABLE}."
        )


class Limited(io.RawIOBase):
    """What comes out of a decompressor, up to the limit."""

    def __init__(self, source: Any, what: str) -> None:
        self._source, self._what, self._count = source, what, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some more bytes."""
        found = self._source.read(len(buffer))
        self._count += len(found)
        refuse_larger(self._what, self._count)
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """With its source."""
        self._source.close()
        super().close()


def limited(source: Any, what: str) -> BinaryIO:
    """A decompressor's output that ends in a refusal where it passes the limit."""
    return io.BufferedReader(Limited(source, what), 1 << 20)


def is_packed(path: Path) -> bool:
    """Whether a file is decompressed as it is read, by its name."""
    return path.suffix in _OPEN


def opened(path: Path) -> BinaryIO:
    """A file to read from, decompressed if it ends in `.bz2`, `.gz` or `.xz`."""
    return (
        limited(_OPEN[path.suffix](path, "rb"), str(path)) if is_packed(path) else open(path, "rb")
    )


def unzipped(raw: bytes, what: str) -> bytes:
    """What is inside gzipped bytes."""
    with limited(gzip.open(io.BytesIO(raw)), what) as file:
        return file.read()


def refuse_larger_archive(path: Path) -> None:
    """Refuse a zip archive, such as an .npz file, whose members are larger than the limit together."""
    with zipfile.ZipFile(path) as archive:
        refuse_larger(str(path), sum(member.file_size for member in archive.infolist()))


_MATRIX, _PACKED = 14, 15  # types of elements in a MATLAB file


def check_matlab(raw: bytes, what: str) -> None:
    """Refuse a damaged MATLAB file (version 5): SciPy, given one, may end the process by a signal.

    Elements must fill the file; compressed ones, as official files have them, are unpacked, which compares
    their checksums; others are read by another process first.
    """
    order = {b"\x00\x01IM": "little", b"\x01\x00MI": "big"}.get(raw[124:128])
    if order is None or 0 in raw[:4]:
        raise ValueError("it has no header of MATLAB 5")
    place, unpacked, plain = 128, 0, False
    while place < len(raw):
        kind, size = (int.from_bytes(raw[place + k : place + k + 4], order) for k in (0, 4))  # type: ignore[arg-type]
        inside = raw[place + 8 : place + 8 + size]
        if len(inside) != size or kind not in (_MATRIX, _PACKED):
            raise ValueError(f"the element at byte {place} is damaged")
        if kind == _MATRIX and inside[:8] != b"".join(n.to_bytes(4, order) for n in (6, 8)):  # type: ignore[arg-type]
            raise ValueError(f"the matrix at byte {place} is damaged")
        plain = plain or kind == _MATRIX
        if kind == _PACKED:
            unpacking, rest = zlib.decompressobj(), inside
            while rest and not unpacking.eof:
                unpacked += len(unpacking.decompress(rest, 1 << 24))
                refuse_larger(what, unpacked)
                rest = unpacking.unconsumed_tail
            if not unpacking.eof:
                raise ValueError(f"the element at byte {place} is cut short")
        place += 8 + size
    # What is not compressed has no checksum: a process of its own reads it first.
    if plain and subprocess.run(_READ, input=raw, capture_output=True, check=False).returncode != 0:
        raise ValueError("its elements are damaged")


_READ = (
    *(sys.executable, "-P", "-c"),
    "import io, sys, scipy.io; scipy.io.loadmat(io.BytesIO(sys.stdin.buffer.read()))",
)


@contextlib.contextmanager
def damage_said(who: str, path: Any, remedy: str, about: About = ("path",)) -> Iterator[None]:
    """A file that cannot be read is named in one line, whatever its reader trips over."""
    try:
        yield
    except (HoldfastError, ImportError):
        raise
    except FileNotFoundError:
        raise HoldfastError(
            f"{who}: {path} is missing; give the path of a file.", about=about
        ) from None
    # Readers of a damaged file raise whatever comes to their hands: zlib.error, struct.error, KeyError, ...
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise HoldfastError(
            f"{who}: {path} cannot be read: {reason}; {remedy}.", about=about
        ) from error
