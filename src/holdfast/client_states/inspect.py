"""Whether a database of client states is whole, before it is opened.

A damaged LMDB file can end a process by a signal: pages past the end of the file, or pages that are
not what they are taken for. So its size is compared with its own header, and a process of its own walks
through its keys first. A file may be shorter than its header says, since LMDB does not write pages at its
end that were used and given back between two commits: then the process reads everything.
"""

import mmap
import struct
import subprocess
import sys
from pathlib import Path

from holdfast.errors import HoldfastError

DATA = "data.mdb"
# LMDB's own layout: a page's header, then magic and version, address, size of the map, two tables, the
# last page in use and the number of the transaction. The page size stands where a table would say its own.
_PAGE_HEADER = 16
_META = struct.Struct("<IIQQI44x48xQQ")
_MAGIC = 0xBEEFC0DE
_PAGE = mmap.PAGESIZE

_WALK = """
import sys, lmdb
with lmdb.open(sys.argv[1], readonly=True, lock=False) as database, database.begin() as reading:
    for _ in reading.cursor().iternext(keys=True, values=sys.argv[2] == "all"):
        pass
"""


class DamagedStatesError(HoldfastError):
    """Client states on disk are not what a save says, or not readable."""


def inspect(folder: Path) -> None:
    """Refuse a database that is missing, cut short or damaged."""
    path = folder / DATA
    if not path.is_file():
        raise DamagedStatesError(f"{path} is missing")
    size, needed = path.stat().st_size, _needed_bytes(path)
    what = "all" if size < needed else "keys"
    # -P: no modules from the current folder.
    walked = subprocess.run(
        [sys.executable, "-P", "-c", _WALK, str(folder), what], capture_output=True, check=False
    )
    if walked.returncode != 0 and size < needed:
        raise DamagedStatesError(
            f"{path} is cut short ({size} bytes, and its header says {needed})"
        )
    if walked.returncode != 0:
        raise DamagedStatesError(f"{path} is damaged (its pages cannot be read)")


def _needed_bytes(path: Path) -> int:
    with open(path, "rb") as file:
        start = file.read(2 * _PAGE)
    newest, needed = -1, 0
    for page in (0, 1):
        meta = start[page * _PAGE + _PAGE_HEADER :][: _META.size]
        if len(meta) < _META.size:
            raise DamagedStatesError(
                f"{path} is cut short ({len(start)} bytes, less than a header)"
            )
        magic, _, _, _, page_size, last_page, transaction = _META.unpack(meta)
        if magic == _MAGIC and transaction > newest:
            newest, needed = transaction, (last_page + 1) * page_size
    if newest < 0:
        raise DamagedStatesError(f"{path} is damaged (it has no header)")
    return needed
