"""The documentation says what is there: its code runs, its files are valid, its commands exist."""

import ast
import dataclasses
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.config import catalogue, schema, signatures
from holdfast.config.build import study
from holdfast.config.file import read

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(DOCS.glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"Save this as `(\w+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, also_printed: bool = False) -> list:
    """Every fenced block of a language, named by its page and place; maybe with what it prints."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for i, block in enumerate(BLOCK.finditer(text)):
            if block[1] == language:
                after = PRINTED.match(text, block.end())
                values = (block[2], after and after[1]) if also_printed else (block[2],)
                found.append(pytest.param(*values, id=f"{page.stem}-{i}"))
    return found


def save_files(folder: Path) -> None:
    """Every file that a page says to save."""
    for page in PAGES:
        for name, code in SAVED.findall(page.read_text("utf-8")):
            (folder / name).write_text(code)


def script(name: str):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # As mkdocs does it: a hook may import what is beside it.
    sys.path.insert(0, str(DOCS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


def hooks():
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    return script("hooks")


# Numbers that were measured. `make numbers` measures and writes them.


def test_numbers_are_those_of_the_stored_results():
    quoted = script("quoted")
    made = quoted.names()
    used = set()
    for page in quoted.PAGES:
        text = page.read_text("utf-8")
        assert quoted.filled(text, made) == text, f"{page.name}: run `python docs/quoted.py`"
        used |= {place[2] for place in quoted.PLACE.finditer(text)}
    assert used >= {"digits.table", "digits.choose", "digits.shown", "own_rule.shown"}
    with pytest.raises(SystemExit, match="no such name"):
        quoted.filled("<!-- =digits.fedavg.sum -->1<!-- = -->", made)


def test_stored_results_are_of_the_experiment_there_is(tmp_path, monkeypatch):
    quoted = script("quoted")
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(quoted.DEMO.read_text("utf-8"))
    words = ["run", "experiment.toml", "--dry-run"]
    said = CliRunner().invoke(app, words, env={"COLUMNS": "80"}).output
    planned = [line.rstrip() for line in said.splitlines()]
    assert planned == quoted.stored("digits")["planned"], "the demo changed: run `make numbers`"


# Python. A block that imports holdfast and leaves nothing out is complete, and is run. It prints what
# stands below it, but for seconds.


@pytest.mark.parametrize(("code", "printed"), blocks("python", also_printed=True))
def test_python_compiles_and_what_is_complete_runs(code, printed, tmp_path, monkeypatch, capsys):
    left_out = any(
        isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(ast.parse(code))
    )
    if re.search("import holdfast( as hf|.torch)", code) and not left_out:
        if re.search("^import torch|^from torch", code, re.MULTILINE):
            pytest.importorskip("torch", reason="PyTorch is an extra")
        monkeypatch.chdir(tmp_path)
        exec(compile(code, "documentation", "exec"), {"__name__": "__main__"})
        said = capsys.readouterr().out
        if printed is not None and "seconds" in printed:
            assert without_seconds(said) == without_seconds(printed)
        elif printed is not None:
            assert said == printed


def without_seconds(table: str) -> list[list[str]]:
    lines = [line.split() for line in table.splitlines()]
    kept = [i for i, name in enumerate(lines[0]) if "seconds" not in name]
    return [[line[i] for i in kept] for line in lines]


# Experiment files. A block with rounds and an algorithm is complete; others are completed by this one.

BASE = """
rounds = 2
data = "breast_cancer"
model = "logistic_regression"
partition = { name = "iid", clients = 4 }
local = { learning_rate = 0.1, steps = 1 }
algorithm = [{ name = "fedavg" }]
"""
NOT_BUNDLED = ("mnist", "table", "arrays", "mapped", "hapt")


def completed(text: str) -> str:
    """A piece of an experiment file, with the rest of the base file before it."""
    given = tomllib.loads(text)
    missing = [line for line in BASE.split("\n") if line.partition(" ")[0] not in given]
    return "\n".join([*missing, text])


@pytest.mark.parametrize("text", blocks("toml"))
def test_experiment_files_are_valid(text, tmp_path, monkeypatch):
    if "[privacy]" in text:
        pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
    monkeypatch.chdir(tmp_path)
    save_files(tmp_path)
    path = tmp_path / "experiment.toml"
    path.write_text(completed(text))
    file = read(path)
    schema.check(file, (), schema.FileSchema, file.values)
    data = file.values["data"]
    if isinstance(data, str) or data["name"] not in NOT_BUNDLED:
        assert study(file).methods
    else:
        function = catalogue.find("data", data["name"])
        schema.check(file, ("data",), signatures.arguments(function, schema.ALSO["data"]), data)


def test_every_key_of_an_experiment_file_is_explained():
    text = (DOCS / "experiments.md").read_text("utf-8")
    sections = [schema.FileSchema, schema.Evaluate, schema.Checkpoints, schema.ServerSection]
    sections += [schema.PopulationSection, schema.ConformalSection]
    keys = {key for section in (*sections, *schema.ALSO.values()) for key in section.model_fields}
    keys |= set(inspect.signature(hf.Local).parameters)
    headings = set(re.findall(r"^## `\[+(\w+)\]+`", text, re.MULTILINE))
    assert {key for key in keys - headings if f"`{key}" not in text} == set()


def test_needs_traits_and_checks_are_explained():
    text = (DOCS / "own_rule.md").read_text("utf-8")
    assert [need.name for need in hf.Need if f"`{need.name}`" not in text] == []
    assert [name for name in hf.testing.CHECKS if f"| {name} |" not in text] == []
    assert [f.name for f in dataclasses.fields(hf.Traits) if f"`{f.name}`" not in text] == []


def test_members_of_what_can_be_written_are_explained():
    text = (DOCS / "extend.md").read_text("utf-8")
    members = {*vars(hf.Wire), *vars(hf.Engine), *hf.evaluate.EvaluationView._fields, "latest"}
    public = [name for name in members if not name.startswith("_")]
    assert len(public) > 20
    assert [name for name in public if not re.search(rf"`{name}\b", text)] == []


def test_commands_and_options_exist():
    group = typer.main.get_command(app)
    for page in PAGES:
        text = page.read_text("utf-8")
        consoles = "\n".join(m[2] for m in BLOCK.finditer(text) if m[1] == "console")
        lines = re.findall(r"^(?:\$ )?holdfast (.+)$", consoles, re.MULTILINE)
        prose = BLOCK.sub("", text)
        for line in [*lines, *re.findall(r"`holdfast ([^`]+)`", prose)]:
            words = line.partition("#")[0].split()
            if words[0].startswith("--"):
                assert words[0] in {o for p in group.params for o in p.opts} | {"--help"}
                continue
            assert words[0] in group.commands, f"{page.name}: holdfast {line}"
            named = group.commands[words[0]]
            # A command with commands of its own.
            if hasattr(named, "commands") and len(words) > 1:
                assert words[1] in named.commands, f"{page.name}: holdfast {line}"
                named = named.commands[words[1]]
            params = named.params
            known = {o for p in params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
            assert {w for w in words if w.startswith("--")} <= known, (
                f"{page.name}: holdfast {line}"
            )


# Generated pages.


@pytest.fixture(scope="module")
def made():
    return hooks().pages()


def test_every_name_has_a_page(made):
    assert {f"methods/{name}.md" for name in hf.algorithms.__all__} <= set(made)
    together = "\n".join(text for uri, text in made.items() if uri.startswith("reference/"))
    for kind, names in catalogue.KINDS.items():
        if kind != "algorithm":
            assert [n for n in names if f"## {n} " not in together] == [], kind


def test_equations_are_drawn_whole_and_code_is_left_alone(made):
    module = hooks()
    texts = [*made.values(), *(page.read_text("utf-8") for page in PAGES)]
    for text in texts:
        _, formulas = module.take_out_maths(text)
        for drawn in formulas:
            # A command that was not understood stays as it was written.
            assert "\\" not in drawn
    code = "a `$x$` b\n\n```sh\necho $HOME $y$\n```\n"
    assert module.take_out_maths(code) == (code, [])
    taken, formulas = module.take_out_maths("so $x_1 | y$ and\n\n$$ a_i \\\\ b $$\n")
    assert len(formulas) == 2
    assert "<math" in module.put_back_maths(f"<p>{taken}</p>", formulas)


def test_links_out_of_the_site_become_links_within_it_or_text():
    mend = hooks().mend_links
    assert mend("[a](../papers/fsl/README.md)", "choose.md") == "[a](studies/fsl/index.md)"
    assert mend("[`round.py`](../src/holdfast/core/round.py)", "design.md") == "`round.py`"
    assert mend("[b](round.md#x)", "choose.md") == "[b](round.md#x)"
    assert mend("[c](docs/design.md)", "contributing.md") == "[c](design.md)"
    assert mend("[d](../flix/README.md#y)", "studies/fsl/index.md") == "[d](../flix/index.md#y)"
    assert mend("[e](study.py)", "studies/fsl/index.md") == "e"
    assert mend("[f](https://example.org)", "design.md") == "[f](https://example.org)"


# The built site.


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocstrings")
    place = tmp_path_factory.mktemp("documentation") / "site"
    # Notebooks are run by a test of their own.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "HOLDFAST_NOTEBOOKS": "as they are"}
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(place),
    ]
    done = subprocess.run(command, cwd=DOCS.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place


def public_names():
    """Every name of `hf` and of its public modules, as one would write it."""
    for name in hf.__all__:
        found = getattr(hf, name)
        if not inspect.ismodule(found):
            yield f"hf.{name}"
            continue
        yield from (
            f"hf.{name}.{inner}"
            for inner in found.__all__
            if not inspect.ismodule(getattr(found, inner))
        )


def test_every_public_name_is_in_the_reference(site):
    pages = {path.stem: path.read_text("utf-8") for path in (site / "api").glob("*.html")}
    headings = {
        re.sub(r"<[^>]+>|\s|&para;|¶", "", heading)
        for text in pages.values()
        for heading in re.findall(r"<h2 [^>]*doc-heading[^>]*>(.*?)</h2>", text, re.DOTALL)
    }
    names = list(public_names())
    assert len(names) > 200
    # What is public under two names is drawn once, and the other name leads there.
    second = [name for name in names if not any(h.startswith(name) for h in headings)]
    assert len(second) < 10
    for name in second:
        link = re.search(
            rf'href="(\w+)\.html#([\w.]+)"><code>{re.escape(name)}</code>', "".join(pages.values())
        )
        assert link is not None, name
        assert f'id="{link[2]}"' in pages[link[1]]
    # What was not found by static analysis, or not understood, would be left as it was written.
    together = "".join(pages.values())
    assert "arithmatex" not in together
    assert ":::" not in together
    assert together.count("<math") > 200


def test_search_finds_what_people_look_for(site):
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    separator = re.compile(index["config"]["separator"])
    found = {}
    for entry in index["docs"]:
        words = {
            w.lower()
            for w in separator.split(f"{entry['title']} {re.sub('<[^>]+>', '', entry['text'])}")
        }
        for asked in ("from_equinox", "on_round", "optimizer=", "hf.History", "hf.load"):
            wanted = [w.lower() for w in separator.split(asked) if w]
            if all(word in words for word in wanted):
                found.setdefault(asked, []).append(entry["location"])
    assert any(place.startswith("api/models.html") for place in found["from_equinox"])
    assert any(place.startswith("api/run.html") for place in found["on_round"])
    assert any(place.startswith("api/run.html") for place in found["optimizer="])
    assert any(place.startswith("api/results.html") for place in found["hf.History"])
    assert found["hf.load"]
