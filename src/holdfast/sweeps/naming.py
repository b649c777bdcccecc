"""What points of a sweep are called, in tables and folders."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

Point = dict[str, Any]  # dotted path -> value
_LONGEST = 200  # bytes; file systems take 255


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """The last word of each path, or as many as tell it from the others.

    Example:
        >>> list(short_names(["rule.alpha", "local.learning_rate"]).values())
        ['alpha', 'learning_rate']
        >>> list(short_names(["local.momentum", "server.local.momentum", "rule.momentum"]).values())
        ['local.momentum', 'server.local.momentum', 'rule.momentum']
    """
    return {path: _shortest(path, [other for other in paths if other != path]) for path in paths}


def _shortest(path: str, others: list[str]) -> str:
    words = path.split(".")
    for count in range(1, len(words)):
        ending = ".".join(words[-count:])
        if ending.isdigit() or any(f".{other}".endswith(f".{ending}") for other in others):
            continue
        return ending
    return path


def label(point: Mapping[str, Any]) -> str:
    """A point in a few words.

    Example:
        >>> label({"rule.alpha": 0.01, "local.learning_rate": 0.1})
        'alpha=0.01, learning_rate=0.1'
    """
    names = short_names(point)
    return ", ".join(f"{names[path]}={brief(value)}" for path, value in point.items())


def brief(value: Any) -> str:
    """A value in a few letters, different for different values."""
    called = getattr(value, "in_short", None)
    if isinstance(called, str):
        return called
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, Mapping):
        return "-".join(map(brief, value.values()))
    text = str(value) if isinstance(value, str | int | None) else _described(value)
    if len(text) <= 30 and "#" not in text:
        return text
    # A schedule or many numbers: what it is, and a few letters that tell it from others.
    name = re.search(r"[A-Za-z]\w*(?=[#(])", text)
    return f"{name[0] if name else ''}#{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _described(value: Any) -> str:
    # Files are checked before anybody waits for JAX, which it needs for arrays.
    from holdfast.record.identity import describe

    return describe(value)


def folder_name(text: str) -> str:
    """A label as a name for files: no spaces, and no longer than file systems take.

    Example:
        >>> folder_name("feddyn alpha=0.01, learning_rate=0.1")
        'feddyn-alpha=0.01-learning_rate=0.1'
        >>> folder_name("../../elsewhere")
        'elsewhere'
    """
    # No dots at the ends: `..` is another folder.
    safe = re.sub(r"[^\w.=-]+", "-", text).strip("-.")
    if len(safe.encode()) <= _LONGEST:
        return safe
    return f"{safe[: _LONGEST // 4]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
