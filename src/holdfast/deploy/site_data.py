"""Where a site's own examples are, as `[data]` of its file says it, and what may be said of mistakes in them.

    file = "north.npz"             arrays x and y; test_x and test_y are held out
    path = "north.csv"             a table, .csv or .parquet, or several
    function = "load.py:rows"      what a function of the site's own returns

An error names files, lines and cells, for the site's own log. What the server is told has none of that.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jax import tree

from holdfast.config.own_code import Trust, explained, find
from holdfast.data.adapters.arrays import as_inputs, as_labels
from holdfast.data.clients import Examples, count
from holdfast.data.dataset import Dataset
from holdfast.data.designs import TEST, TRAIN, Design
from holdfast.data.preprocessing.columns import numbers
from holdfast.data.tables.apart import TableApart, TableSettings
from holdfast.data.tables.files import read_table
from holdfast.data.tables.rows import names_of
from holdfast.errors import HoldfastError, did_you_mean, file_errors_said
from holdfast.trees import Tree

WHO = "site"
KEYS: dict[str, type | tuple[type, ...]] = {
    "file": str,
    "path": (str, list),
    "function": str,
    "test": (int, float),
    "test_path": (str, list),
    "columns": list,
    "separator": str,
    "label": str,
}
_SOURCES = ("file", "path", "function")
_OF_TABLES = ("test_path", "columns", "separator", "label")
_ABSENT = re.compile(r"no column `([^`]{1,100})`")
_PLAINLY = {
    "label": "a label is not as the experiment needs it",
    "missing": "a value is missing where none may be",
    "path": "its rows cannot be read",
    "data": "its examples cannot be read",
    "test": "its `test` leaves nothing to train on or nothing to test on",
}


class EmptyError(HoldfastError):
    """There are no rows."""


def without_data(error: HoldfastError) -> str:
    """What is wrong with a site's data, in words that say nothing of its rows, files or other columns."""
    if isinstance(error, EmptyError):
        return "it has no examples"
    absent = _ABSENT.search(str(error))
    if absent:
        # The name is one that the experiment has.
        return f"its table has no column `{absent[1]}`"
    plain = _PLAINLY.get(str(error.about[0]) if error.about else "", "its data cannot be used")
    return f"{plain}; its own log says more"


@file_errors_said()
def read_toml(path: Path, keys: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A file with these keys in these tables, each of its type; `""` is the file itself."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise HoldfastError(f"there is no file {path}.", about=("file",)) from None
    except ValueError as error:
        raise HoldfastError(f"{path} is no TOML: {error}") from None
    for section, known in keys.items():
        table = given if not section else given.get(section, {})
        for key, value in table.items() if isinstance(table, dict) else ():
            _check_key(path, section, key, value, known)
    return given


def _check_key(path: Path, section: str, key: str, value: Any, known: Mapping[str, Any]) -> None:
    where = f" of [{section}]" if section else ""
    if key not in known:
        raise HoldfastError(
            f"{path}: unknown key `{key}`{where}; {did_you_mean(key, known)}", about=(key,)
        )
    types = known[key] if isinstance(known[key], tuple) else (known[key],)
    fits = isinstance(value, types) and not (isinstance(value, bool) and bool not in types)
    if isinstance(value, list):
        fits = fits and bool(value) and all(isinstance(word, str) for word in value)
    if not fits:
        wanted = " or ".join(f"{t.__name__}{' of words' if t is list else ''}" for t in types)
        raise HoldfastError(f"{path}: `{key}`{where} is {value!r}; give a {wanted}.", about=(key,))


def holding_out(settings: TableSettings, share: float | None) -> TableSettings:
    """With this share to test on, in place of what all sites' tables say."""
    # A column that says it otherwise is no input either, and need not be here.
    told = () if settings.split is None else (settings.split,)
    optional = (*names_of(settings.client), *told)
    return dataclasses.replace(settings, test_share=share, split=None, client=optional)


@dataclasses.dataclass(frozen=True)
class SiteData:
    """`[data]` of a site's file, its paths found."""

    folder: Path
    given: Mapping[str, Any]

    def __post_init__(self) -> None:
        sources = [key for key in _SOURCES if key in self.given]
        if len(sources) != 1:
            raise HoldfastError(
                f"{' and '.join(sources) or 'nothing'} is given in [data]; give one of "
                f"{', '.join(_SOURCES)}.",
                about=("data", "file"),
            )
        own = [key for key in _OF_TABLES if key in self.given and "path" not in self.given]
        if own:
            raise HoldfastError(f"`{own[0]}` of [data] is for tables, beside `path`; leave it out.")
        share = self.given.get("test")
        if share is not None and not 0 <= share < 1:
            raise HoldfastError(
                f"`test` of [data] is {share}; give a share from 0 to below 1, such as 0.2.",
                about=("data", "test"),
            )
        if share and "test_path" in self.given:
            raise HoldfastError(
                "`test` and `test_path` of [data] both say what is held out; leave one out.",
                about=("data", "test"),
            )

    @classmethod
    def of_server(cls, path: Path) -> "SiteData":
        """Where the server's own data is, by the same keys as at a site."""
        keys = {key: KEYS[key] for key in KEYS if not key.startswith("test")}
        given = read_toml(path, {"": {"data": dict}, "data": keys})
        if "data" not in given:
            raise HoldfastError(f"{path}: [data] is missing.", about=("data",))
        return cls(path.parent, given["data"])

    def table(self, settings: TableSettings) -> TableApart:
        """The rows of a table, for an experiment whose sites have tables."""
        given = self.given
        if "file" in given:
            raise HoldfastError(
                "the experiment is on tables, and `file` of [data] has arrays; give `path`, a .csv or "
                ".parquet file.",
                about=("data", "file"),
            )
        if "test" in given or "test_path" in given:
            settings = holding_out(settings, given.get("test"))
        rows = self._returned() if "function" in given else self._found("path")
        if isinstance(rows, Examples | Dataset):
            raise HoldfastError(
                f"the experiment is on tables, and `{given['function']}` returned examples; return a data "
                f"frame, or a mapping from names of columns to values.",
                about=("data", "function"),
            )
        if "path" in given:
            self._refuse_empty()
        tests = self._found("test_path") if "test_path" in given else None
        made = TableApart(rows, settings, tests, given.get("columns"), given.get("separator"))
        if not (made.part == TRAIN).any():
            raise EmptyError(f"{self._called}: no row is left to train on.", about=("data",))
        return made

    def examples(self) -> tuple[Examples, Tree]:
        """Training examples and held-out ones, for an experiment whose sites have arrays."""
        given = self.given
        if "file" in given:
            train, tests = arrays(self.folder / given["file"])
        elif "path" in given:
            self._refuse_empty()
            train, tests = self._plain_table("path"), None
            if "test_path" in given:
                tests = self._plain_table("test_path")
        else:
            train, tests = _as_examples(self._returned(), given["function"])
        if count(train) == 0:
            raise EmptyError(f"{self._called} has no examples.", about=("data",))
        share = given.get("test")
        if share is None:
            return train, tests
        if tests is not None:
            raise HoldfastError(
                f"`test` of [data] is given, and {self._called} says itself what is held out; leave it out.",
                about=("data", "test"),
            )
        part = Design(float(share)).parts(WHO, None, count(train))
        held = tree.map(lambda a: np.asarray(a)[part == TEST], train)
        return tree.map(lambda a: np.asarray(a)[part == TRAIN], train), held

    @property
    def _called(self) -> str:
        return str(next(self.given[key] for key in _SOURCES if key in self.given))

    def _found(self, key: str) -> Any:
        paths = self.given[key]
        if isinstance(paths, list):
            return [str(self.folder / path) for path in paths]
        return str(self.folder / paths)

    @file_errors_said()
    def _refuse_empty(self) -> None:
        paths = self._found("path")
        for path in [paths] if isinstance(paths, str) else paths:
            if Path(path).is_file() and Path(path).stat().st_size == 0:
                raise EmptyError(f"{path} is empty; give a table with rows.", about=("data",))

    def _returned(self) -> Any:
        """What the site's own function returns. The file is the site's own, as this code is."""
        written, _, name = self.given["function"].rpartition(":")
        called = f"{self.folder / written}:{name}"
        function = find("data", called, Trust(given=True))
        with explained(f"data `{self.given['function']}`"):
            return function()

    def _plain_table(self, key: str) -> Examples:
        """Columns of numbers as they are."""
        given = self.given
        raw = read_table(self._found(key), WHO, given.get("columns"), given.get("separator"), key)
        label = given.get("label")
        if label not in raw.columns:
            raise HoldfastError(
                f"{self._called} has columns {', '.join(list(raw.columns)[:8])}, and `label` of [data] is "
                f"{label!r}; give the column with labels.",
                about=("data", "label"),
            )
        inputs = {name: numbers(v, frozenset()) for name, v in raw.columns.items() if name != label}
        words = next((n for n, v in inputs.items() if v is None or not np.isfinite(v).all()), None)
        if words is not None:
            raise HoldfastError(
                f"{self._called}: column `{words}` is no number in every row, and this experiment has no "
                f"[data] that says what becomes of it; clean it first, or deploy an experiment file.",
                about=("data", "path"),
            )
        x = np.stack([v for v in inputs.values() if v is not None], axis=1)
        y = numbers(raw.columns[label], frozenset())
        if y is None or not np.isfinite(y).all():
            raise HoldfastError(
                f"{self._called}: the label `{label}` is no number in every row; call classes 0, 1, ...",
                about=("label",),
            )
        whole = bool((y == np.round(y)).all())
        labels, _ = as_labels(y.astype(np.int64) if whole else y, WHO)
        return Examples(as_inputs(x, WHO), labels)


def _as_examples(found: Any, what: str) -> tuple[Examples, Tree]:
    if isinstance(found, Dataset):
        return found.train, found.test if count(found.test) else None
    if isinstance(found, Examples):
        return found, None
    if isinstance(found, tuple) and len(found) == 2 and all(isinstance(f, Examples) for f in found):
        return found[0], found[1]
    raise HoldfastError(
        f"data `{what}` returned a {type(found).__name__}; return hf.Examples(x, y), a pair of them to train "
        f"on and to test on, or an hf.data.Dataset.",
        about=("data", "function"),
    )


@file_errors_said()
def arrays(path: Path) -> tuple[Examples, Tree]:
    """Training examples and held-out ones, from arrays in a file; nothing in it can run code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise HoldfastError(f"there is no file {path}.", about=("data", "file")) from None
    except (ValueError, EOFError, TypeError, AttributeError, BadZipFile) as error:
        raise HoldfastError(
            f"{path} has no arrays that can be read ({error}); write it with np.savez(x=..., y=...).",
            about=("data", "file"),
        ) from None
    if not {"x", "y"} <= found.keys():
        raise HoldfastError(
            f"{path} has {', '.join(sorted(found)) or 'nothing'}; write it with np.savez(x=..., y=...).",
            about=("data", "file"),
        )
    tests = None
    if {"test_x", "test_y"} <= found.keys():
        tests = Examples(found["test_x"], found["test_y"])
    return Examples(found["x"], found["y"]), tests
