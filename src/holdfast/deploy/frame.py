"""One message as bytes: a short header of plain values, the numbers that travel, a checksum.

    "holdfast" version | bytes of the header | header (JSON) | body | SHA-256, first 16 bytes

Nothing that is read can run code, and nothing is read before its length is known to be right. Whoever can
write can write a checksum too: it finds damage, and what a header and a body may say is looked at by
who knows what to expect (`deploy/messages.py`).
"""

import hashlib
import json
from typing import Any, NamedTuple, NoReturn

from holdfast.errors import HoldfastError

MAGIC = b"holdfast\x01"
_LENGTH = 4
_CHECK = 16
# Bytes of a header. Numbers and a few names; the largest are the names of a large model's leaves.
MOST_HEADER = 1 << 20
OVERHEAD = len(MAGIC) + _LENGTH + _CHECK


class BadMessageError(HoldfastError):
    """Bytes that are no message one could have expected; the text says why, in one line."""


class Frame(NamedTuple):
    """A message taken apart, of which only length, checksum and JSON are known to be right."""

    header: dict[str, Any]
    body: bytes


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """A message as bytes; equal ones are equal bytes."""
    words = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    content = MAGIC + len(words).to_bytes(_LENGTH, "little") + words + body
    return content + _checksum(content)


def unpack(data: Any, most_body: int, most_header: int = MOST_HEADER) -> Frame:
    """A message again; refuses one that is damaged or larger than it may be, before it is read."""
    if not isinstance(data, bytes):
        raise BadMessageError(f"it is a {type(data).__name__}, not bytes")
    if not OVERHEAD <= len(data) <= OVERHEAD + most_header + most_body:
        raise BadMessageError(
            f"it has {len(data)} bytes, where {OVERHEAD} to {OVERHEAD + most_header + most_body} can be"
        )
    if not data.startswith(MAGIC):
        raise BadMessageError("it does not begin as a message of this version of holdfast does")
    content, check = data[:-_CHECK], data[-_CHECK:]
    if _checksum(content) != check:
        raise BadMessageError("its checksum does not fit: it was damaged on its way")
    begin = len(MAGIC) + _LENGTH
    length = int.from_bytes(data[len(MAGIC) : begin], "little")
    if length > min(most_header, len(content) - begin):
        raise BadMessageError(f"its header claims {length} bytes, more than there can be")
    body = content[begin + length :]
    if len(body) > most_body:
        raise BadMessageError(f"its body has {len(body)} bytes, where {most_body} can be")
    return Frame(_header(content[begin : begin + length]), body)


def identity(data: bytes) -> str:
    """A name for these bytes, that others do not have."""
    return _checksum(data).hex()


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_CHECK]


def _header(words: bytes) -> dict[str, Any]:
    try:
        found = json.loads(words, parse_constant=_no_number)
    # Nested too deeply to be read, or no JSON.
    except (ValueError, RecursionError):
        raise BadMessageError("its header cannot be read as JSON") from None
    if not isinstance(found, dict):
        raise BadMessageError("its header has no names")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)
