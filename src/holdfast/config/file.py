"""The text of an experiment file: its values, the line of every key, and changes from the command line."""

import dataclasses
import glob
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, did_you_mean

KeyPath = tuple[str | int, ...]
_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")


class ExperimentFileError(HoldfastError):
    """A mistake in an experiment file, with its line."""


@dataclasses.dataclass(frozen=True)
class ExperimentFile:
    """An experiment file as it was written, and with what the command line changed."""

    path: Path
    text: str  # as written
    values: dict[str, Any]  # with the changes
    lines: dict[KeyPath, int]  # where a key was written, from 1
    changed: dict[KeyPath, str]  # what the command line set, as it was typed
    trusted: bool = False  # whether code that it names may be anybody's
    folder: Path | None = None  # where it was first read, if this is the copy that a run keeps

    def error(self, at: KeyPath, message: str) -> ExperimentFileError:
        """A message that begins with the line and ends with the lines around it."""
        message = _in_one_line(message)
        typed = self._typed(at)
        if typed:
            return ExperimentFileError(f"--set {_in_one_line(typed)}: {message}")
        line = self.line_of(at)
        if line is None:
            return ExperimentFileError(f"{self.path}: {message}")
        return ExperimentFileError(f"{self.path}, line {line}: {message}\n{self.around(line)}")

    def _typed(self, at: KeyPath) -> str | None:
        """What the command line set there: the value, a table around it, or something in it."""
        around = [self.changed[at[:n]] for n in range(len(at), 0, -1) if at[:n] in self.changed]
        inside = [typed for key, typed in self.changed.items() if at and key[: len(at)] == at]
        return next(iter(around + inside), None)

    def found(self, path: str) -> str:
        """A path of the file: beside it if something is there, else from the current folder."""
        beside = (self.path.parent if self.folder is None else self.folder) / path
        there = beside.exists() or (
            re.search(r"[*?[]", path) and next(iter(glob.iglob(str(beside))), None)
        )
        return str(beside) if there else path

    def line_of(self, at: KeyPath) -> int | None:
        """The line of a key, or of the nearest table around it; None for the file as a whole."""
        while at:
            # A table may be there by what is in it alone: `server.local.steps = 3`.
            inside = [line for key, line in self.lines.items() if key[: len(at)] == at]
            if inside:
                return self.lines.get(at, min(inside))
            at = at[:-1]
        return None

    def around(self, line: int, margin: int = 2) -> str:
        """A few lines of the file, the one in question marked."""
        lines = self.text.splitlines()
        shown = range(max(1, line - margin), min(len(lines), line + margin) + 1)
        return "\n".join(f"{'>' if n == line else ' '} {n:4} | {lines[n - 1]}" for n in shown)

    def as_used(self) -> str:
        """The file with the changes in it; comments and order are kept."""
        import tomlkit

        document = tomlkit.parse(self.text)
        for at, typed in self.changed.items():
            table: Any = document
            for key in at[:-1]:
                if isinstance(key, str) and key not in table:
                    table[key] = tomlkit.table()
                table = table[key]
            table[at[-1]] = _value(typed.partition("=")[2])
        return tomlkit.dumps(document)


def read(path: str | Path, changes: Sequence[str] = (), trusted: bool = False) -> ExperimentFile:
    """Read an experiment file and apply `key=value` changes such as `local.learning_rate=0.05`.

    Code that a trusted file names is run wherever it lies and whoever owns it.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ExperimentFileError(_missing(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentFileError(
            f"{path} cannot be read: {error}; give a TOML file such as `holdfast new` writes."
        ) from None
    plain = ExperimentFile(path, text, {}, locate(text), {}, trusted)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(plain, error) from None
    except RecursionError:
        raise _too_deep(plain) from None
    changed: dict[KeyPath, str] = {}
    for typed in changes:
        at = _change(values, typed)
        changed[at] = typed
    return dataclasses.replace(plain, values=values, changed=changed)


def _missing(path: Path) -> str:
    near = sorted(p.name for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    hint = did_you_mean(path.name, near) if near else "`holdfast new` writes one to start from."
    return f"{path} does not exist; {hint}"


def _syntax_error(file: ExperimentFile, error: tomllib.TOMLDecodeError) -> ExperimentFileError:
    what, _, location = str(error).partition(" (at ")
    number = re.match(r"line (\d+)", location)
    line = int(number[1]) if number else len(file.text.splitlines())
    hint = "text needs quotes, lists need brackets, a table begins with [name]."
    return ExperimentFileError(
        f"{file.path}, line {line}: {what[:1].lower()}{what[1:]}; {hint}\n{file.around(line)}"
    )


def _too_deep(file: ExperimentFile) -> ExperimentFileError:
    brackets = [len(re.findall(r"[\[{.]", line)) for line in file.text.splitlines()]
    line = brackets.index(max(brackets)) + 1
    return ExperimentFileError(
        f"{file.path}, line {line}: tables or lists are nested too deeply; no section has more than a few "
        f"levels."
    )


def locate(text: str) -> dict[KeyPath, int]:
    """The line on which every table and key begins."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    arrays: dict[KeyPath, int] = {}
    depth, quote = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        inside = depth > 0 or bool(quote)
        if not inside:
            header = _TABLE.match(line)
            if header:
                table = _resolve(_split(header[2]), arrays)
                if header[1] == "[[":
                    arrays[table] = arrays.get(table, -1) + 1
                    lines.setdefault(table, number)
                    table = (*table, arrays[table])
                lines[table] = number
                continue
            assignment = _ASSIGNMENT.match(line)
            if assignment:
                at = (*table, *_split(assignment[1]))
                lines[at] = number
                for within in re.finditer(rf"({_KEY})\s*=[^=]", line[assignment.end() :]):
                    lines.setdefault((*at, within[1].strip("\"'")), number)
        depth, quote = _open_brackets(line, depth, quote)
    return lines


def _split(dotted: str) -> KeyPath:
    return tuple(_key(part.strip()) for part in re.findall(_KEY, dotted))


def _key(part: str) -> str:
    if part[0] != '"' or "\\" not in part:
        return part.strip("\"'")
    try:
        return next(iter(tomllib.loads(f"{part} = 0")))
    except tomllib.TOMLDecodeError:  # the file is refused for it anyway
        return part


def _resolve(at: KeyPath, arrays: dict[KeyPath, int]) -> KeyPath:
    """`algorithm.local` after the second `[[algorithm]]` is `algorithm, 1, local`."""
    found: KeyPath = ()
    for i, key in enumerate(at):
        found = (*found, key)
        if i < len(at) - 1 and found in arrays:
            found = (*found, arrays[found])
    return found


def _open_brackets(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Brackets and long strings that a line leaves open."""
    i = 0
    while i < len(line):
        if quote:
            end = line.find(quote, i)
            if end < 0:
                return depth, quote if len(quote) == 3 else ""
            i, quote = end + len(quote), ""
        elif line[i] == "#":
            break
        elif line[i] in "\"'":
            quote = line[i] * 3 if line[i : i + 3] == line[i] * 3 else line[i]
            i += len(quote)
        else:
            depth += (line[i] in "[{") - (line[i] in "]}")
            i += 1
    return max(depth, 0), quote if len(quote) == 3 else ""


def _is_text(typed: str) -> bool:
    try:
        typed.encode()
    except UnicodeEncodeError:  # bytes of the command line that are no letters
        return False
    return True


_LONGEST_MESSAGE = 1000  # letters; a file may hold a name of any length


def _in_one_line(text: str) -> str:
    line = text.replace("\r", "\\r").replace("\n", "\\n")
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}..."


def _value(typed: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.value(typed.strip()).unwrap()
    except TOMLKitError:
        return typed.strip()  # a bare word is a string


def _change(values: dict[str, Any], typed: str) -> KeyPath:
    """Set one value; `algorithm.feddyn.alpha` finds the algorithm of that label or name."""
    dotted, equals, value = typed.partition("=")
    if not equals or not dotted.strip():
        raise ExperimentFileError(
            f"--set {_in_one_line(typed)}: give key=value, such as --set local.learning_rate=0.05."
        )
    if not _is_text(typed):
        raise ExperimentFileError(f"--set {_in_one_line(typed)}: it is no text; give UTF-8.")
    try:
        return put(values, dotted.strip(), _value(value))
    except HoldfastError as error:
        raise ExperimentFileError(
            f"--set {_in_one_line(typed)}: {_in_one_line(str(error))}"
        ) from None


def put(values: dict[str, Any], dotted: str, value: Any) -> KeyPath:
    """Set the value of a dotted key, in tables that are there or are made; returns where it stands."""
    at: KeyPath = ()
    here: Any = values
    words = dotted.split(".")
    for i, word in enumerate(words):
        rest = ".".join(words[i:])
        key: str | int = word
        if isinstance(here, list):
            key = _index(here, word)
        elif not isinstance(here, dict):
            raise HoldfastError(f"`{'.'.join(words[:i])}` is no table; give a key of the file.")
        elif rest in here:  # the keys of [sweep] have dots in them
            here[rest] = value
            return (*at, rest)
        at = (*at, key)
        if i == len(words) - 1:
            here[key] = value
        elif isinstance(key, int):
            here = here[key]
        else:
            here = here.setdefault(key, {})
    return at


def _index(items: list[Any], word: str) -> int:
    if word.isdigit() and int(word) < len(items):
        return int(word)
    if not all(isinstance(item, dict) for item in items):
        raise HoldfastError(f"no entry `{word}` in a list of values; set the whole list.")
    names = [str(item.get("label") or item.get("name", "")) for item in items]
    if word in names:
        return names.index(word)
    raise HoldfastError(f"no entry `{word}`; {did_you_mean(word, names)}")
