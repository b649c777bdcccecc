"""`holdfast papers`: studies run in small and go on after a stop, and their pages are what they give."""

import json
import re
import shlex
import sys

import pytest
from typer.testing import CliRunner

import papers
from holdfast.cli import app, checkout
from holdfast.config.build import sections
from holdfast.config.build import study as build
from holdfast.config.file import read
from holdfast.errors import HoldfastError
from papers import page, running, studies
from papers.study import ROOT, Asked, Cell, Row, Study, Verdict
from tests.config.test_papers_files import stand_in_for_data


def said(*words, code=0):
    done = CliRunner().invoke(app, ["papers", *words], env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done.output


# A study of two cells; `STOPS` and `RAN` are what happens to them.
RAN: list[str] = []
STOPS: list[str] = []


def doubled(name, number, *, asked, folder):
    halfway = folder / "halfway"
    RAN.append(name + (" goes on" if halfway.exists() else ""))
    halfway.write_text("")
    if name in STOPS:
        raise KeyboardInterrupt
    return {"doubled": 2 * number, "quick": asked.quick}


def made_up(numbers):
    return Study(
        "made/up",
        "Twice as much",
        needs=(),
        searched="nothing.",
        cells=lambda asked: [Cell(n, doubled, (n, k), minutes=3.0) for n, k in numbers.items()],
        rows=lambda found: [
            Row("table 2", "one", "2", str(found["one"]["doubled"]), verdict=Verdict.AGREES)
            if "one" in found
            else Row("table 2", "one", "2"),
            Row("table 10", "a | b", "7"),
        ],
        table=lambda found: (
            "| cell | twice |\n|---|---|\n"
            + "\n".join(f"| {name} | {values['doubled']} |" for name, values in found.items())
        ),
        figure=lambda found, path: path.write_bytes(b"picture"),
    )


@pytest.fixture
def aside(tmp_path, monkeypatch):
    """The made-up study alone, in a repository of its own."""
    RAN.clear()
    STOPS.clear()
    for module in ("study", "page"):
        monkeypatch.setattr(f"papers.{module}.ROOT", tmp_path)
    monkeypatch.setattr(page, "DOSSIER", tmp_path / "docs" / "papers.md")
    monkeypatch.setattr(page, "PAPERS", {"made": ("Made", "Nobody")})
    monkeypatch.setattr(checkout, "find", lambda: tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(studies, "NAMES", ("made/up",))
    numbers = {"one": 1, "two": 2}
    monkeypatch.setattr(studies, "study", lambda name: made_up(numbers))
    (tmp_path / "docs").mkdir()
    (tmp_path / "papers" / "made").mkdir(parents=True)
    return numbers


def test_studies_are_listed_with_what_was_run_of_them(aside):
    assert re.search(r"made/up +0\.1 +0 of 2 +nothing +Twice as much", said())
    said("run", "made/up", "--only", "one")
    assert "1 of 2" in said()


def test_a_cell_is_kept_with_what_it_was_made_with(aside, tmp_path):
    shown = said("run", "made/up")
    assert "| two | 4 |" in shown
    assert "2/2  two" in shown
    results = tmp_path / "papers" / "made" / "results"
    kept = json.loads((results / "up.json").read_text())["cells"]["one"]
    assert kept["args"] == ["one", 1]
    assert kept["values"] == {"doubled": 2, "quick": False}
    assert {"python", "holdfast", "jax"} <= set(kept["versions"])
    assert "cores" in kept["machine"]
    assert (
        results / "up.md"
    ).read_text() == "| cell | twice |\n|---|---|\n| one | 2 |\n| two | 4 |\n"
    assert (results / "up.png").read_bytes() == b"picture"
    # What cells needed to go on is gone.
    assert not [
        p for p in (tmp_path / "build" / "papers").rglob("*") if p.is_dir() and "-" in p.name
    ]


def test_a_study_that_was_stopped_goes_on_within_its_cell(aside):
    STOPS.append("two")
    assert "the same command goes on" in said("run", "made/up", code=130)
    assert RAN == ["one", "two"]
    assert "1 of 2" in said()
    STOPS.clear()
    said("run", "made/up")
    assert RAN[2:] == ["two goes on"]
    said("run", "made/up")
    assert len(RAN) == 3


def test_a_cell_whose_settings_changed_is_run_again(aside):
    said("run", "made/up")
    aside["two"] = 5
    shown = said("run", "made/up", "--dry-run")
    assert shown == "one  there\ntwo  about 3 min\n"
    assert "| two | 10 |" in said("run", "made/up")
    assert RAN == ["one", "two", "two"]


def test_a_quick_run_leaves_results_alone(aside, tmp_path):
    assert "| two | 4 |" in said("run", "made/up", "--quick")
    assert not (tmp_path / "papers" / "made" / "results").exists()
    assert not (tmp_path / "build").exists()


def test_what_cannot_work_is_said_in_a_line(aside, tmp_path, monkeypatch):
    assert said("run", "made/uq", code=2) == (
        "error papers: unknown study `made/uq`; did you mean `made/up`?\n"
    )
    assert "they are called one, two, ..." in said("run", "made/up", "--only", "three", code=2)
    missing = str(tmp_path / "nowhere")
    assert "is no folder" in said("run", "made/up", "--data", missing, code=2)


def test_without_a_clone_there_are_no_studies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("holdfast.__file__", str(tmp_path / "lib" / "holdfast" / "__init__.py"))
    with pytest.raises(HoldfastError, match="not in the installed package"):
        checkout.find()


def test_pages_are_written_from_results(aside, tmp_path, monkeypatch):
    readme = tmp_path / "papers" / "made" / "README.md"
    readme.write_text("# Made\n\n<!-- study made/up -->\nold\n<!-- end -->\n\nafter\n")
    place = 'PLACES = (Place("figure 1", "c", "-", "holdfast papers run made/up", 2, "no time"),)'
    (readme.parent / "places.py").write_text(f"from papers.study import Place\n{place}\n")
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path / "papers")])
    said("run", "made/up", "--only", "one")
    assert "not what the results give: docs/papers.md, papers/made/README.md;" in said(
        "page", "--check", code=2
    )
    said("page")
    text = readme.read_text()
    assert "| one | 2 |" in text
    assert "![Twice as much](results/up.png)" in text
    assert "1 of 2 cells" in text
    assert text.endswith("<!-- end -->\n\nafter\n")
    rows = [
        line
        for line in (tmp_path / "docs" / "papers.md").read_text().splitlines()
        if "<br>" in line
    ]
    assert rows[0] == "| **table 2**<br>one | 2 | 2 | **agrees** |"
    run = "`holdfast papers run made/up`<br>about 0.1 hours"
    assert rows[1] == f"| **table 10**<br>a \\| b | 7 | {run} | **not run** |"
    assert rows[2].endswith("about 2.0 hours | **not run**<br>no time |")
    assert "| [Made](#made) | 1 | 0 | 0 | 2 |" in (tmp_path / "docs" / "papers.md").read_text()
    said("page", "--check")


# The studies there are.


@pytest.mark.parametrize("name", studies.NAMES)
def test_every_study_runs_in_small(name, tmp_path):
    study = studies.study(name)
    assert study.name == name
    results = running.Results(tmp_path / "results.json")
    found = running.run(study, Asked(quick=True), results, tmp_path / "saves")
    assert len(found) == len(study.cells(Asked(quick=True)))
    picture = running.write(study, results)
    assert (picture is not None) == (study.figure is not None)
    assert results.path.with_suffix(".md").read_text().strip()


@pytest.mark.parametrize("name", studies.NAMES)
def test_every_study_can_be_told_of_before_it_is_run(name):
    study = studies.study(name)
    cells = study.cells(Asked())
    assert len({cell.name for cell in cells}) == len(cells)
    assert study.hours() > 0
    rows = study.rows({})
    assert rows
    assert {row.verdict for row in rows} == {Verdict.NOT_RUN}
    found = running.Results(study.results).found
    assert [(r.place, r.what, r.paper) for r in study.rows(found)] == [
        (r.place, r.what, r.paper) for r in rows
    ]
    assert all(row.ours for row in study.rows(found) if row.verdict is not Verdict.NOT_RUN)


def test_pages_are_what_the_results_give():
    assert page.stale() == [], "run `holdfast papers page`"


COMMANDS = sorted({place.command for paper in page.PAPERS for place in page.places(paper)})


def test_commands_of_what_was_not_run_name_what_there_is():
    for command in COMMANDS:
        words = shlex.split(command)
        if words[:3] == ["holdfast", "papers", "run"]:
            assert words[3] in studies.NAMES
            continue
        assert words[:2] == ["holdfast", "run"], command
        assert set(words[3::2]) <= {"--set"}, command
        # Files as they are, are put together in tests/config/test_papers_files.py.
        assert sections(read(ROOT / words[2], words[4::2])).algorithm, command


@pytest.mark.parametrize("name", ["shakespeare", "emnist_letters"])
def test_commands_with_other_splits_can_be_put_together(name, monkeypatch):
    """As `--dry-run` does it, on data of the same make where the real one must be fetched."""
    stand_in_for_data(monkeypatch)
    command = next(c for c in COMMANDS if f"feddyn/{name}.toml --set 'partition={{" in c)
    words = shlex.split(command)
    assert build(read(ROOT / words[2], [*words[4::2], "seeds=1"]), pretrained=False).methods
