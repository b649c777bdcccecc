"""Numbers at their bit width, as bytes and back. Little end first, nothing between the fields."""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import DTypeLike


class Field(NamedTuple):
    """Whole numbers of one width, in a message."""

    numbers: np.ndarray
    width: int  # bits of each


def pack(fields: list[Field]) -> bytes:
    """All fields one after the other; only the last byte of the message may have bits to spare."""
    bits = [
        ((np.asarray(f.numbers, np.uint64)[:, None] >> np.arange(f.width, dtype=np.uint64)) & 1)
        for f in fields
    ]
    flat = np.concatenate([b.astype(np.uint8).reshape(-1) for b in bits] or [np.zeros(0, np.uint8)])
    return np.packbits(flat, bitorder="little").tobytes()


class Reader:
    """Takes fields from a message in the order they were packed."""

    def __init__(self, data: bytes) -> None:
        self._bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        self._place = 0

    def take(self, count: int, width: int) -> np.ndarray:
        """The next `count` whole numbers of `width` bits."""
        end = self._place + count * width
        bits = self._bits[self._place : end].reshape(count, width).astype(np.uint64)
        self._place = end
        return (bits << np.arange(width, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)

    def floats(self, count: int, dtype: DTypeLike) -> np.ndarray:
        """The next `count` floating numbers."""
        width = float_width(dtype)
        return self.take(count, width).astype(f"u{width // 8}").view(np.dtype(dtype))


def float_width(dtype: DTypeLike) -> int:
    """Bits of a floating number of this type."""
    return 8 * np.dtype(dtype).itemsize


def floats(numbers: Any) -> Field:
    """Floating numbers, every bit of them."""
    array = np.atleast_1d(np.asarray(numbers))
    width = float_width(array.dtype)
    return Field(array.view(f"u{width // 8}"), width)
