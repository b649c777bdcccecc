"""Notebooks as pages: kept without outputs, run when the documentation is built, shown with what came out."""

import hashlib
import html
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat

log = logging.getLogger("mkdocs.hooks")
ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "notebooks"
# The copies that were run, by what they depend on.
KEPT = ROOT / "build" / "notebooks"
SECONDS = 300  # for one cell
TITLES = {"hospitals": "Four hospitals", "paper": "A paper in an afternoon"}
# Outputs by their number on the page; Markdown would take their signs for its own.
_outputs: dict[str, list[str]] = {}


def executed(path: Path) -> Any:
    """A notebook with its outputs: run in an empty folder, or as it was run with the same sources."""
    sources = sorted((ROOT / "src").rglob("*.py"))
    digest = hashlib.sha256(b"\0".join(p.read_bytes() for p in (path, *sources))).hexdigest()
    kept = KEPT / f"{path.stem}-{digest[:16]}.ipynb"
    if not kept.exists():
        log.info("running %s", path.name)
        notebook = run(path)
        KEPT.mkdir(parents=True, exist_ok=True)
        for older in KEPT.glob(f"{path.stem}-*.ipynb"):
            older.unlink()
        nbformat.write(notebook, kept)
    return nbformat.read(kept, as_version=4)


def run(path: Path, **environment: str) -> Any:
    """The notebook after all of its cells, in a folder of its own; raises what a cell raises."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        with tempfile.TemporaryDirectory() as folder:
            about = {"metadata": {"path": folder}}
            client = NotebookClient(
                notebook, timeout=SECONDS, kernel_name="python3", resources=about
            )
            client.execute()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return notebook


def pages() -> dict[str, str]:
    """The pages by their address."""
    plain = os.environ.get("HOLDFAST_NOTEBOOKS") == "as they are"
    made = {}
    for name in TITLES:
        path = FOLDER / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4) if plain else executed(path)
        made[f"notebooks/{name}.md"] = page(f"notebooks/{name}.md", notebook)
    return made


def page(uri: str, notebook: Any) -> str:
    """Cells as Markdown, with a word in place of each output."""
    outputs = _outputs[uri] = []
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", ()):
            if "<progress" in output.get("data", {}).get("text/html", ""):
                continue  # a bar is for who waits
            outputs.append(shown(output))
            parts.append(f"output{len(outputs) - 1}tuptuo")
    name = Path(uri).stem
    link = f"[Download the notebook]({name}.ipynb){{ download }}"
    first, *others = parts
    title, _, rest = first.partition("\n")
    return "\n\n".join([title, link, rest.strip(), *others]) + "\n"


def put_back(text: str, uri: str) -> str:
    """The page with its outputs, and what draws figures if it has some."""
    outputs = _outputs.get(uri, [])
    for number, output in enumerate(outputs):
        text = text.replace(f"<p>output{number}tuptuo</p>", output)
    if any("Plotly" in output for output in outputs):
        text = f'<script src="../javascripts/plotly.min.js"></script>\n{text}'
    return text


def shown(output: Any) -> str:
    """An output as HTML; of a figure its values, which plotly draws."""
    data = output.get("data", {})
    if "application/vnd.plotly.v1+json" in data:
        return _figure(data["application/vnd.plotly.v1+json"])
    if "text/html" in data:
        return f'<div class="output">{data["text/html"]}</div>'
    text = output.get("text") or data.get("text/plain", "")
    return f'<div class="output"><pre>{html.escape(text.rstrip())}</pre></div>'


def _figure(figure: dict[str, Any]) -> str:
    values = json.dumps({k: figure[k] for k in ("data", "layout")}, sort_keys=True)
    values = values.replace("<", r"\u003c")
    name = f"figure-{hashlib.sha256(values.encode()).hexdigest()[:12]}"
    height = figure["layout"].get("height", 400)
    return (
        f'<div class="output"><div class="plot" id="{name}" style="height:{height}px"></div></div>'
        f"<script>(() => {{ const figure = {values}; "
        f'Plotly.newPlot("{name}", figure.data, figure.layout, {{responsive: true}}) }})()</script>'
    )


def plotly() -> Path:
    """plotly.js as the Python package has it: figures are drawn without a network."""
    import plotly as package

    return Path(package.__file__).parent / "package_data" / "plotly.min.js"
