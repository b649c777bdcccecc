"""The notebooks of the documentation run from their first cell to their last, and say what they should."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.data.real import SHARED

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
DOCS = Path(__file__).resolve().parent.parent / "docs"


def loaded():
    spec = importlib.util.spec_from_file_location("notebook_pages", DOCS / "notebook_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = loaded()


def outputs(notebook):
    """What each cell of code shows, by how the cell begins."""
    return {
        cell.source.splitlines()[0]: cell.outputs
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def texts(notebook):
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for shown in outputs(notebook).values()
        for output in shown
    )


def test_all_are_in_the_documentation_and_kept_without_outputs():
    import nbformat

    files = sorted((DOCS / "notebooks").glob("*.ipynb"))
    assert [path.stem for path in files] == sorted(PAGES.TITLES)
    for path in files:
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None


def test_a_paper_in_an_afternoon():
    notebook = PAGES.executed(DOCS / "notebooks" / "paper.ipynb")
    said = texts(notebook)
    assert r"\begin{tabular}" in said
    assert "accuracy-rounds.pdf" in said
    # The saving that the text speaks of.
    rows = re.findall(r"^\d +(FedAvg|SCAFFOLD|FedDyn) +(\S+)", said, re.MULTILINE)
    rounds = {method: float(value) for method, value in rows}
    assert rounds["FedDyn"] < rounds["SCAFFOLD"] < 40
    figures = [
        output
        for shown in outputs(notebook).values()
        for output in shown
        if "application/vnd.plotly.v1+json" in output.get("data", {})
    ]
    assert len(figures) == 2
    # Nine runs of one cell, one bar.
    (runs,) = [shown for source, shown in outputs(notebook).items() if source == "runs = {"]
    assert len(runs) <= 2
    page = PAGES.page("notebooks/paper.md", notebook)
    html = PAGES.put_back(re.sub(r"(output\d+tuptuo)", r"<p>\1</p>", page), "notebooks/paper.md")
    assert html.count("Plotly.newPlot") == 2
    assert "tuptuo" not in html


def test_four_hospitals():
    """With the real files where they are, which are no part of the repository; else with those made up."""
    path, real = DOCS / "notebooks" / "hospitals.ipynb", SHARED / "heart-disease"
    there = real.exists()
    said = texts(PAGES.run(path, HEART_DISEASE=str(real)) if there else PAGES.executed(path))
    assert ("processed.*.data" if there else "'sites/*.csv'") in said
    assert re.search(r"federated \(FedAvg\) 0\.\d+ .*accuracy, alone 0\.\d+", said)
    assert "95 % interval" in said
    assert "no column `age`" in said
    assert "'hospitals.html'" in said
    assert re.search(r"cleveland \[0\.\d+ +0\.\d+\]", said)


def test_many_runs_of_a_cell_leave_one_line(tmp_path):
    """Progress, figures and errors as a kernel shows them."""
    import nbformat
    from nbclient import NotebookClient

    cells = [
        """
import holdfast as hf
from tests.problems import QUADRATIC, two_quadratics
setting = dict(model=QUADRATIC, clients=two_quadratics(), local=hf.Local(0.1))
for seed in range(20):
    run = hf.simulate(hf.algorithms.fedavg(), rounds=30, seed=seed, progress=True, **setting)
""",
        "hf.simulate(hf.algorithms.fedavg(), rounds=3, progress=False, **setting)",
        """
class Mine(hf.Rule):
    def reply(self, delta, at):
        return {}["age"], ()
""",
        "hf.simulate(hf.Algorithm(Mine()), rounds=3, **setting)",
        "hf.simulate(hf.Algorithm(Mine()), rounds=3, cohort=5, **setting)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    root = {"metadata": {"path": str(DOCS.parent)}}
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources=root, allow_errors=True
    )
    client.execute()
    bar, plain, _, raised, refused = (cell.outputs for cell in notebook.cells)
    assert [output.output_type for output in bar] == ["display_data"]
    assert bar[0].data["text/plain"].startswith("fedavg 30/30")
    assert 'value="30" max="30"' in bar[0].data["text/html"]
    assert [output.output_type for output in plain] == ["execute_result"]
    shown = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(raised[0].traceback))
    assert "Raised by Mine.reply (Cell In[3], line 3), which holdfast called." in shown
    assert "holdfast/engine" not in shown
    assert len(shown.splitlines()) < 20
    shown = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(refused[0].traceback))
    assert "hf.cohorts.fixed(5)" in shown
    assert len(shown.splitlines()) < 12
