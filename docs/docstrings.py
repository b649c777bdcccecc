"""Docstrings as griffe reads them: its word for an example is `Examples`, ours is `Example`."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class OneExample(griffe.Extension):
    """Doctests are drawn as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Every class, function and attribute that was found."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub("Examples:", obj.docstring.value)
