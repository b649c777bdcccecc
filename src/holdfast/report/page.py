"""One HTML page of the results that needs nothing but itself: no network, no server, no other file."""

import base64
import functools
import gzip
import html
import importlib.util
import json
import re
import string
from importlib import resources
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, file_errors_said
from holdfast.record.files import write_whole
from holdfast.report.appearance import PLAIN, Appearance
from holdfast.report.content import content
from holdfast.runs.results import Results

# In the order in which they are put together: what is constant must be there before it is used.
_SCRIPTS = (
    "elements",
    "methods",
    "tables",
    "charts",
    "curves",
    "evidence",
    "classes",
    "drift",
    "confidence",
    "privacy",
    "sweep",
    "clients",
    "splits",
    "configuration",
    "live",
    "start",
)


def write(results: Results, path: Path, appearance: Appearance = PLAIN) -> Path:
    """Write the page; returns where it is."""
    with file_errors_said():
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, render(results, appearance))
    return path


def render(results: Results, appearance: Appearance = PLAIN) -> str:
    """The page as text."""
    return filled(content(results, appearance))


def filled(values: dict[str, Any]) -> str:
    """The page with these values."""
    return string.Template(_part("page.html")).substitute(
        title=html.escape(values["title"]),
        verdict=_text(" ".join(values["verdict"][:1])),
        reasons=_text(" ".join(values["verdict"][1:])),
        summary=_text(values["summary"]),
        style=_part("page.css"),
        script=_script(),
        data=as_json(values),
        plotly=_plotly(),
    )


def _text(words: str) -> str:
    return re.sub(r"(\d) %", r"\1&nbsp;%", html.escape(words).replace(" ± ", "&nbsp;±&nbsp;"))


def _part(name: str) -> str:
    place = resources.files("holdfast.report").joinpath("browser")
    return place.joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    """One function of all parts, which share what they define with nobody else."""
    parts = "\n".join(_part(f"{name}.js") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();'


def as_json(values: Any) -> str:
    r"""JSON that is safe within a script element, whatever labels say.

    Example:
        >>> as_json({"label": "</script><b>"})
        '{"label":"\\u003c/script>\\u003cb>"}'
    """
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c")


@functools.cache
def _plotly() -> str:
    """plotly.js as the Python package ships it, compressed to less than half; browsers unpack it."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise HoldfastError("report: plotly is missing; install it with `pip install plotly`.")
    source = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    # Without the time, the same results make the same page.
    return base64.b64encode(gzip.compress(source.read_bytes(), mtime=0)).decode()
