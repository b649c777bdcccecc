"""Write `described.json`, what commands know of names without JAX: `python -m holdfast.config.describe`."""

import json
from pathlib import Path
from typing import Any, get_args, get_origin

from holdfast.config import catalogue, described, entries, schema, signatures
from holdfast.core.local import Local

# Types that schema.py has a name for.
_NAMES = (
    "Number",
    "Table",
    "Prefixes",
    "OPTAX",
    "WholeNumber",
    "SomeNumber",
    "StrictBool",
    "StrictStr",
)


def text() -> str:
    """The file, from the code."""
    found = {
        "titles": catalogue.TITLES,
        "local": _fields(Local),
        "kinds": {
            kind: {name: _about(kind, name) for name in known}
            for kind, known in catalogue.KINDS.items()
        },
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _about(kind: str, name: str) -> dict[str, Any]:
    page, function = catalogue.page(kind, name), catalogue.KINDS[kind][name]
    numbers = [n for n in page.arguments if kind == "algorithm" and entries.is_number(name, n)]
    hints = {} if kind == "metric" else signatures.hints(function)
    return {
        "title": page.title,
        "body": page.body,
        "equation": page.equation,
        "travels": page.travels,
        "tells": page.tells,
        "arguments": page.arguments,
        "reduces_to": page.reduces_to,
        "reference": page.reference,
        "signature": page.signature,
        "entry": entries.entry(kind, name),
        "swept": numbers[0] if numbers else "",
        "fields": {} if kind == "metric" else _fields(function, schema.ALSO.get(kind)),
        "tables": {n: inside for n, h in hints.items() if (inside := signatures.nested(h))},
    }


def _fields(function: Any, also: Any = None) -> dict[str, str]:
    found = signatures.fields(function, also)
    return {n: described.mark(written(kind), required) for n, (kind, required) in found.items()}


def written(kind: Any) -> str:
    """A type as schema.py would write it."""
    for name in _NAMES:
        if kind is getattr(schema, name):
            return name
    inside = get_args(kind)
    if get_origin(kind) in (list, tuple) and inside:
        parts = ("..." if i is Ellipsis else written(i) for i in inside)
        return f"{get_origin(kind).__name__}[{', '.join(parts)}]"
    if signatures.options(kind) != (kind,):
        return " | ".join(map(written, inside))
    return kind.__name__ if isinstance(kind, type) and not inside else str(kind)


if __name__ == "__main__":
    Path(__file__).with_name(described.FILE).write_text(text(), encoding="utf-8")
