"""Text of one's own: windows of characters from a plain file, or from JSON lines with authors."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.data.checks import check_counts, check_limits
from holdfast.data.dataset import Dataset
from holdfast.data.reserve import OTHERS, Reserve, draw_owners
from holdfast.data.unpack import damage_said, opened
from holdfast.errors import HoldfastError, explain_arguments

_JSON_LINES = {".jsonl", ".ndjson"}


@explain_arguments
def text(
    path: str | os.PathLike[str],
    window: int = 40,
    characters: int = 90,
    alphabet: str | None = None,
    column: str = "text",
    author: str = "author",
    min_bytes: int = 0,
    authors: int | None = None,
    test: str = "later",
    test_share: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Text for `hf.models.gru`: windows of characters, and at every position the one that follows.

    A file that ends in `.jsonl` has one JSON object a line, and who wrote it owns its windows; what
    an author wrote is put together in the file's order. Any other file is one text without owners.
    Both may be compressed (`.gz`, `.bz2`, `.xz`). Characters are bytes: the most frequent are
    numbered 1, 2, ..., all others are 0.

    Args:
        path: the file.
        window: characters that the model reads at once; windows do not overlap.
        characters: how many different ones are told apart.
        alphabet: the characters to number 1, 2, ... instead of the most frequent ones, so that
            several files can be read alike.
        column: where the text is in JSON lines.
        author: where the author is; of several columns, such as `site,author`, all together say who.
        min_bytes: bytes that an author must have written.
        authors: only so many, drawn by `seed`.
        test: `later` keeps the end of every author's windows for testing, `others` all windows of
            some authors.
        test_share: how much is kept, of the windows or of the authors.
        seed: draws authors.

    Example:
        >>> import pathlib, tempfile
        >>> import holdfast as hf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "tiny.txt"
        ...     _ = path.write_text("abab" * 10)
        ...     data = hf.data.text(path, window=3, characters=2)
        >>> data.train.x[0].tolist(), data.train.y[0].tolist(), data.vocabulary
        ([1, 2, 1], [2, 1, 2], 3)
    """
    check_counts("text", window=window)
    check_limits("text", characters=characters, authors=authors)
    reserve = Reserve(test, test_share, seed)
    reserve.check("text")
    path = Path(path)
    plain = _JSON_LINES.isdisjoint(path.suffixes)
    wrote = _whole(path, test) if plain else _by_author(path, column, author.split(","))
    enough = max(min_bytes, window + 1)
    names = [name for name, one in wrote.items() if len(one) >= enough]
    if not names:
        raise HoldfastError(
            f"text: {path} has nobody with {enough} bytes or more; lower `min_bytes` or `window`.",
            about=("min_bytes",),
        )
    names = draw_owners(names, authors, seed)
    texts = [wrote[name] for name in names]
    code, vocabulary = numbering(texts, characters, alphabet)
    cut = [windows(code[np.frombuffer(one, np.uint8)], window, window + 1) for one in texts]
    owners = np.repeat(np.asarray(names), [len(part) for part in cut])
    together = np.concatenate(cut)
    data = reserve.split(together[:, :-1], together[:, 1:], owners, vocabulary=vocabulary)
    return dataclasses.replace(data, owners=None, test_owners=None) if plain else data


def _whole(path: Path, test: str) -> dict[str, bytes]:
    """A plain text as what one nameless author wrote."""
    if test == OTHERS:
        raise HoldfastError(
            "text: a plain file has no authors to keep apart; give test='later'.", about=("test",)
        )
    return {"": _read(path)}


def _read(path: Path) -> bytes:
    with (
        damage_said("text", path, "give a text file, or a whole .bz2, .gz or .xz"),
        opened(path) as file,
    ):
        return file.read()


def _by_author(path: Path, column: str, author: Sequence[str]) -> dict[str, bytes]:
    wrote: dict[str, list[str]] = {}
    for number, line in enumerate(_read(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            post = json.loads(line)
            who, what = "/".join(str(post[name]) for name in author), post[column]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise HoldfastError(
                f"text: {path}, line {number}: {type(error).__name__} {error}; give JSON objects "
                f"with `{column}` and `{'`, `'.join(author)}`, or other columns.",
                about=("path",),
            ) from None
        wrote.setdefault(who, []).append(str(what))
    return {who: "\n".join(texts).encode() for who, texts in wrote.items()}


def numbering(
    texts: Sequence[bytes], characters: int, alphabet: str | None = None, of: str = "text"
) -> tuple[np.ndarray, int]:
    """The number of every byte, and how many numbers there are: 0 is for all that have no other."""
    code = np.zeros(256, np.int32)
    if alphabet is not None:
        letters = list(dict.fromkeys(alphabet))
        if not alphabet.isascii() or not alphabet:
            raise HoldfastError(
                f"{of}: alphabet={alphabet!r}; give ASCII characters.", about=("alphabet",)
            )
        often = np.array([ord(letter) for letter in letters])
    else:
        counts = sum(np.bincount(np.frombuffer(one, np.uint8), minlength=256) for one in texts)
        often = np.argsort(-np.asarray(counts), kind="stable")[:characters]
    code[often] = np.arange(1, len(often) + 1)
    return code, len(often) + 1


def windows(numbers: np.ndarray, length: int, stride: int) -> np.ndarray:
    """All windows of `length` characters and the one that follows, `stride` apart."""
    if len(numbers) <= length:
        return np.zeros((0, length + 1), numbers.dtype)
    return np.lib.stride_tricks.sliding_window_view(numbers, length + 1)[::stride]
