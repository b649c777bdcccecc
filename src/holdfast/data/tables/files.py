"""Tables in files: one, or one for each client, with the file and the line of every row."""

import csv
import dataclasses
import importlib
import io
import itertools
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from holdfast.data.preprocessing.columns import raw_columns
from holdfast.data.unpack import (
    damage_said,
    is_packed,
    opened,
    refuse_larger,
    refuse_larger_archive,
)
from holdfast.errors import HoldfastError

PARQUET = ".parquet"
_TEXT = (".csv", ".tsv", ".txt", ".data", ".dat")
_PATTERN = re.compile(r"[*?\[]")
Paths = str | os.PathLike[str] | Sequence[str]
# Tables in memory.
Columns = Mapping[str, np.ndarray]


class Frame(Protocol):
    """What is used of a data frame."""

    columns: Any
    iloc: Any


@dataclasses.dataclass(frozen=True, eq=False)
class RawTable:
    """Columns as they came, and where each row is from.

    Args:
        columns: arrays of numbers, or of whatever the cells hold, by name.
        files: the files, none for a table in memory.
        file: which of them each row is from.
        row: the place of each row there, from 0.
        header: whether the files begin with names of columns.
        separator: what stands between cells of a text file.
        names: what a client would be called by each file.
    """

    columns: dict[str, np.ndarray]
    files: tuple[Path, ...]
    file: np.ndarray
    row: np.ndarray
    header: bool = True
    separator: str = ","
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.row)

    def place(self, row: int) -> str:
        """Where a row is to be found, in words."""
        there = int(self.row[row])
        if not self.files:
            return f"row {there} (from 0)"
        path = self.files[int(self.file[row])]
        line = None if _kind(path) == PARQUET else _line(path, there + self.header, self.separator)
        return f"{path}, row {there} (from 0)" if line is None else f"{path}, line {line}"

    def rows(self, chosen: np.ndarray) -> "RawTable":
        """Some of the rows."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return dataclasses.replace(
            self, columns=columns, file=self.file[chosen], row=self.row[chosen]
        )


def read_table(
    table: Any, who: str, columns: Sequence[str] | None, separator: str | None, argument: str
) -> RawTable:
    """A table in memory, or all files of a path, one behind another.

    Args:
        table: a data frame, a mapping from names to values, or paths.
        who: asks for it; messages begin with it.
        columns: names of the columns, for files without a first line of them.
        separator: what stands between cells; a comma, or a tab in .tsv, unless given.
        argument: what the path is called, for messages.
    """
    if not _is_path(table):
        if isinstance(table, str | bytes | Sequence) or not hasattr(table, "__getitem__"):
            raise _no_table(table, who)
        if not hasattr(table, "columns") and not hasattr(table, "keys"):
            raise _no_table(table, who)
        found = raw_columns(table, who)
        rows = len(next(iter(found.values()), ()))
        return RawTable(found, (), np.zeros(rows, np.int64), np.arange(rows))
    files = find_files(table, who, argument)
    parts = [_read(path, who, columns, separator, argument) for path in files]
    _check_alike(files, parts, who, argument)
    sizes = [len(next(iter(part.values()), ())) for part in parts]
    return RawTable(
        {name: _joined([part[name] for part in parts]) for name in parts[0]},
        tuple(files),
        np.repeat(np.arange(len(files)), sizes),
        np.concatenate([np.arange(size) for size in sizes]),
        columns is None,
        _separator(files[0], separator),
        tuple(site_names(files)),
    )


def _is_path(table: Any) -> bool:
    if isinstance(table, list | tuple):
        return bool(table) and all(isinstance(one, str | os.PathLike) for one in table)
    return isinstance(table, str | os.PathLike)


def _no_table(table: Any, who: str) -> HoldfastError:
    return HoldfastError(
        f"{who}: table is a {type(table).__name__}; give a DataFrame or the path of a file.",
        about=("table",),
    )


def find_files(paths: Paths, who: str, argument: str = "path") -> list[Path]:
    """The files of a path: itself, those that fit its pattern, or the tables in a folder."""
    given = list(paths) if isinstance(paths, list | tuple) else [paths]
    found = [file for path in given for file in _find(Path(str(path)).expanduser(), who, argument)]
    twice = next((file for file in found if found.count(file) > 1), None)
    if twice is not None:
        raise HoldfastError(
            f"{who}: {twice} is named twice; give each file once.", about=(argument,)
        )
    return found


def _find(path: Path, who: str, argument: str) -> list[Path]:
    if path.is_dir():
        tables = sorted(file for file in path.iterdir() if file.is_file() and _kind(file))
        if len({_kind(file) == PARQUET for file in tables}) != 1:
            what = "both .parquet and text files" if tables else "no table"
            raise HoldfastError(
                f"{who}: the folder {path} has {what}; give files of one kind, such as "
                f"{path / '*.csv'}.",
                about=(argument,),
            )
        return tables
    if path.is_file() or not _PATTERN.search(str(path)):
        if _kind(path) is None:
            raise HoldfastError(
                f"{who}: {path} is no table; give a path ending in .parquet or .csv.",
                about=(argument,),
            )
        if not path.exists():
            raise HoldfastError(
                f"{who}: {path} is missing; give the path of a file.", about=(argument,)
            )
        return [path]
    anchor = Path(path.anchor) if path.is_absolute() else Path()
    pattern = str(path.relative_to(anchor)) if path.is_absolute() else str(path)
    found = sorted(file for file in anchor.glob(pattern) if file.is_file())
    if not found:
        raise HoldfastError(
            f"{who}: no file fits {path}; give a pattern such as sites/*.csv.", about=(argument,)
        )
    other = next((file for file in found if _kind(file) is None), None)
    if other is not None:
        raise HoldfastError(
            f"{who}: {other} fits {path} and is no table; give a pattern for files ending in .parquet or "
            f".csv alone.",
            about=(argument,),
        )
    return found


def _kind(path: Path) -> str | None:
    return next((s for s in reversed(path.suffixes) if s in (PARQUET, *_TEXT)), None)


def site_names(files: Sequence[Path]) -> list[str]:
    """What a client is called by its file: the part of the name in which files differ.

    Where that is only a number, the name without its ending.

    Example:
        >>> site_names([Path("processed.va.data"), Path("processed.cleveland.data")])
        ['va', 'cleveland']
        >>> site_names([Path("sites/ward_1.csv"), Path("sites/ward_2.csv")])
        ['ward_1', 'ward_2']
    """
    stems = [
        re.sub(rf"({'|'.join(map(re.escape, (PARQUET, *_TEXT)))}).*$", "", f.name) for f in files
    ]
    words = [re.split(r"([._-])", stem) for stem in stems]
    before = _alike(words)
    after = _alike([w[before:][::-1] for w in words])
    parts = ["".join(w[before : len(w) - after]).strip("._-") for w in words]
    plain = all(part and not part.isdigit() for part in parts) and len(set(parts)) == len(parts)
    if plain:
        return parts
    if len(set(stems)) == len(stems):
        return stems
    return [str(f) for f in files]


def _alike(lists: Sequence[Sequence[str]]) -> int:
    """How many entries all begin with; none if there is but one list."""
    if len(lists) < 2:
        return 0
    columns = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*lists, strict=False))
    return sum(1 for _ in columns)


def _read(
    path: Path, who: str, columns: Sequence[str] | None, separator: str | None, argument: str
) -> dict[str, np.ndarray]:
    try:
        pandas = importlib.import_module("pandas")
        with damage_said(who, path, "check the file", (argument,)):
            if _kind(path) == PARQUET:
                return raw_columns(_parquet(pandas, path), f"{who}: {path}")
            frame = _text_table(pandas, path, columns, _separator(path, separator))
    except ImportError:
        raise HoldfastError(
            f"{who}: reading {path} needs pandas and pyarrow; `pip install pandas pyarrow`."
        ) from None
    if columns is not None:
        if len(frame.columns) != len(columns):
            raise HoldfastError(
                f"{who}: {path} has {len(frame.columns)} columns, and `columns` names {len(columns)}; name "
                f"each of them.",
                about=("columns",),
            )
        frame = frame.set_axis(list(columns), axis=1)
    return raw_columns(frame, f"{who}: {path}")


def _separator(path: Path, given: str | None) -> str:
    return given if given is not None else "\t" if _kind(path) == ".tsv" else ","


def _text_table(pandas: Any, path: Path, columns: Sequence[str] | None, separator: str) -> Any:
    settings: dict[str, Any] = {
        "sep": separator,
        "header": 0 if columns is None else None,
        "skipinitialspace": True,
        "low_memory": False,
        "index_col": False,
    }
    if path.suffix == ".zip":
        refuse_larger_archive(path)
    with warnings.catch_warnings():
        # Of rows that are longer than the first, which it would cut.
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        if not is_packed(path):
            return pandas.read_csv(path, **settings)
        with opened(path) as file:
            return pandas.read_csv(file, **settings)


def _parquet(pandas: Any, path: Path) -> Any:
    about = importlib.import_module("pyarrow.parquet").read_metadata(path)
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    refuse_larger(str(path), sum(group.total_byte_size for group in groups))
    return pandas.read_parquet(path)


def _check_alike(
    files: Sequence[Path], parts: Sequence[dict[str, np.ndarray]], who: str, argument: str
) -> None:
    """Refuse files with other columns than the first."""
    for path, part in zip(files[1:], parts[1:], strict=True):
        absent = [f"no `{name}`" for name in parts[0] if name not in part]
        new = [f"`{name}` besides" for name in part if name not in parts[0]]
        if absent or new:
            differences = ", ".join([*absent, *new][:4])
            remedy = "give all files the same columns, with empty cells where a site has no values"
            if looks_like_data(parts[0]):
                remedy = "their first lines look like data: give names of the columns by `columns`"
            raise HoldfastError(
                f"{who}: {path} has other columns than {files[0]}: {differences}; {remedy}.",
                about=(argument,),
            )


def looks_like_data(names: Iterable[str]) -> bool:
    """Whether names of columns are mostly numbers: a first line of data, taken for names."""
    listed = list(names)
    return sum(bool(re.fullmatch(r"[-+.\d]+|\?[.\d]*", n)) for n in listed) > len(listed) / 2


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    if all(part.dtype.kind in "biuf" for part in parts):
        return np.concatenate(parts)
    if all(part.dtype.kind == "M" for part in parts):
        return np.concatenate(parts)
    joined = list(itertools.chain.from_iterable(part.tolist() for part in parts))
    found = np.empty(len(joined), object)
    found[:] = joined
    return found


def _line(path: Path, record: int, separator: str) -> int | None:
    """The line on which a record of a text file begins, from 1; empty lines are no records."""
    if path.suffix == ".zip":
        return None
    with opened(path) as raw, io.TextIOWrapper(raw, "utf-8", errors="replace") as file:
        reader = csv.reader(file, delimiter=separator if len(separator) == 1 else ",")
        before = 0
        for found in reader:
            if found and record == 0:
                return before + 1
            record -= bool(found)
            before = reader.line_num
    return None
