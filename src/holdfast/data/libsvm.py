"""Data sets in the text format of LIBSVM."""

import contextlib
import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from holdfast.data.checks import check_limits
from holdfast.data.clients import Examples
from holdfast.data.unpack import damage_said, opened
from holdfast.errors import HoldfastError, explain_arguments

# What else is no number, float() refuses.
_NUMBER = rb"[-+.\deE]++"
_PAIR = rb"\d{1,18}+:" + _NUMBER
_LINE = re.compile(rb"\s*+" + _NUMBER + rb"(?:\s++" + _PAIR + rb")*+\s*+")


@explain_arguments
def libsvm(
    path: str | os.PathLike[str], features: int | None = None, dtype: Any = np.float32
) -> Examples:
    """A data set from the LIBSVM collection: lines `label index:value ...`, indices from 1.

    Inputs become a dense array. Labels become 0, 1, ... in increasing order of the labels in the
    file: -1 and +1 become 0 and 1. Give a test file the `features` of the training file, since its
    last ones may be absent from it.

    Args:
        path: the file; one that ends in `.bz2`, `.gz` or `.xz` is decompressed.
        features: number of columns; the largest index in the file unless given.
        dtype: type of the inputs.

    Example:
        >>> import pathlib, tempfile
        >>> import holdfast as hf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "tiny"
        ...     _ = path.write_text("+1 1:0.5 3:2\\n-1 2:1\\n")
        ...     examples = hf.data.libsvm(path)
        >>> examples.x.tolist(), examples.y.tolist()
        ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1, 0])
    """
    check_limits("libsvm", features=features)
    labels, lines, ends = array("d"), array("q"), array("q")
    columns, values = array("q"), array("d")
    with _opened(Path(path)) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            if not _LINE.fullmatch(line):
                raise _malformed(path, number, line)
            words = line.replace(b":", b" ").split()
            try:
                labels.append(float(words[0]))
                values.extend(map(float, words[2::2]))
            except ValueError:
                raise _malformed(path, number, line) from None
            columns.extend(map(int, words[1::2]))
            lines.append(number)
            ends.append(len(columns))
    if not labels:
        raise HoldfastError(
            f"libsvm: {path} is empty; give a file with an example per line.", about=("path",)
        )

    column, sizes = np.asarray(columns), np.diff(np.asarray(ends), prepend=0)
    row, line_of_row = np.repeat(np.arange(len(sizes)), sizes), np.asarray(lines)

    def refuse(bad: np.ndarray, what: str) -> None:
        if bad.any():
            at = int(np.argmax(bad))
            where = f"libsvm: {path}, line {line_of_row[row[at]]}"
            raise HoldfastError(f"{where}: index {column[at]} {what}", about=("path",))

    refuse(column == 0, "found; indices begin at 1.")
    not_after = (np.diff(column, prepend=0) <= 0) & (np.diff(row, prepend=-1) == 0)
    refuse(not_after, "does not come after the one before it; sort each line's indices.")
    if features is not None:
        refuse(column > features, f"is above features={features}; raise `features`.")
    x = np.zeros((len(sizes), features or int(column.max(initial=0))), dtype)
    x[row, column - 1] = np.asarray(values)
    y = np.unique(np.asarray(labels), return_inverse=True)[1]
    return Examples(x, y.astype(np.int32))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with (
        damage_said("libsvm", path, "give a text file, or a whole .bz2, .gz or .xz"),
        opened(path) as file,
    ):
        yield file


def _malformed(path: str | os.PathLike[str], number: int, line: bytes) -> HoldfastError:
    where = f"libsvm: {path}, line {number}"
    label, *pairs = line.split()
    if not _is_number(label):
        return HoldfastError(
            f"{where}: `{_text(label)}` is no label; give a number first.", about=("path",)
        )
    bad = (p for p in pairs if not (re.fullmatch(_PAIR, p) and _is_number(p.split(b":")[1])))
    return HoldfastError(
        f"{where}: `{_text(next(bad))}` is malformed; give pairs index:value.", about=("path",)
    )


def _is_number(word: bytes) -> bool:
    try:
        return bool(re.fullmatch(_NUMBER, word) and [float(word)])
    except ValueError:
        return False


def _text(word: bytes) -> str:
    return word.decode(errors="replace")
