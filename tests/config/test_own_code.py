"""Code of one's own in experiment files: found by path, in any process, and run only where it is trusted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import app
from holdfast.config import own_code
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.record.identity import describe
from tests.config.test_wrong_files import GOOD, refused

RULE = "import holdfast as hf\n\ndef f(mu: float = {mu}):\n    return hf.algorithms.fedprox({mu})\n"


def write(path, text):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)


def with_methods(*names: str) -> str:
    entries = "".join(
        f'\n[[algorithm]]\nname = "{n}"\nlabel = "{i}"\n' for i, n in enumerate(names)
    )
    return GOOD.partition("\n[[algorithm]]")[0] + entries


def methods(*names: str, trusted: bool = False):
    with open("experiment.toml", "w") as file:
        file.write(with_methods(*names))
    return [m.algorithm for m in study(read("experiment.toml", trusted=trusted)).methods]


def test_files_of_one_name_in_two_folders_are_two(folder):
    write(folder / "a" / "rules.py", RULE.format(mu=0.25))
    write(folder / "b" / "rules.py", RULE.format(mu=0.5))
    assert [m.rule.mu for m in methods("a/rules.py:f", "b/rules.py:f")] == [0.25, 0.5]


def test_a_file_may_be_called_like_a_module_of_python(folder):
    write(folder / "random.py", RULE.format(mu=0.125))
    assert methods("random.py:f")[0].rule.mu == 0.125
    import random

    assert random.random() < 1


def test_files_beside_it_can_be_imported_and_are_those_of_its_own_folder(folder):
    for place, mu in (("a", 0.25), ("b", 0.5)):
        write(folder / place / "helper.py", f"MU = {mu}\n")
        text = RULE.format(mu="MU").replace(
            "import holdfast", "from helper import MU\nimport holdfast"
        )
        write(folder / place / "rules.py", text)
        write(folder / place / "more.py", f"import helper\n{text}")
    names = ("a/rules.py:f", "b/rules.py:f", "a/more.py:f")
    assert [m.rule.mu for m in methods(*names)] == [0.25, 0.5, 0.25]
    assert "helper" not in sys.modules
    assert str(folder / "a") not in sys.path


def test_a_file_that_was_edited_is_read_again(folder):
    write(folder / "rules.py", RULE.format(mu=0.25))
    assert methods("rules.py:f")[0].rule.mu == 0.25
    write(folder / "rules.py", RULE.format(mu=0.0625))
    assert methods("./rules.py:f")[0].rule.mu == 0.0625


SHOW = """
import sys
from holdfast.config import own_code
from holdfast.record.identity import describe
print(describe(own_code.find("algorithm", sys.argv[1], own_code.Trust())))
"""


def test_identity_is_the_same_in_other_processes_and_folders(folder, tmp_path):
    here = {}
    for place in (folder, tmp_path / "elsewhere"):
        write(place / "a" / "rules.py", RULE.format(mu=0.25))
        write(place / "b" / "rules.py", RULE.format(mu=0.25))
        for name in ("a/rules.py:f", "b/rules.py:f", "./a/../a/rules.py:f"):
            command = [sys.executable, "-c", SHOW, name]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
            here.setdefault(name, set()).add(done.stdout.strip())
    found = describe(own_code.find("algorithm", "a/rules.py:f", own_code.Trust()))
    assert here["a/rules.py:f"] == here["./a/../a/rules.py:f"] == {found}
    assert len(here["b/rules.py:f"]) == 1
    assert here["b/rules.py:f"] != here["a/rules.py:f"]


MODULES = [
    "pip._internal.cli.main:main",
    "builtins:dict",
    "holdfast:simulate",
    ":",
    "rules.py:",
    "rules.py:os.system",
    "rules:f",
    ".py:f",
]


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_not_imported_by_name(folder, name):
    write(folder / "rules.py", "import os\n" + RULE.format(mu=0.5))
    said = refused(GOOD.replace('name = "digits"', f'name = "{name}"'), "--dry-run")
    assert "experiment.toml, line 5:" in said
    assert f"data `{name}`" in said


def test_a_module_with_the_right_name_is_not_run(folder):
    write(folder / "touching.py", "open('touched', 'w').close()\n" + RULE.format(mu=0.5))
    said = refused(with_methods("touching:f"))
    assert "modules are not imported by name" in said
    assert not (folder / "touched").exists()


def test_code_outside_the_current_folder_needs_trust(folder, tmp_path):
    outside = tmp_path / "theirs" / "rules.py"
    write(outside, "open('touched', 'w').close()\n" + RULE.format(mu=0.5))
    (folder / "linked.py").symlink_to(outside)
    for name in ("../theirs/rules.py:f", f"{outside}:f", "linked.py:f"):
        said = refused(with_methods(name), "--dry-run")
        assert "experiment.toml, line 23:" in said
        assert f"runs the code of {outside}, which lies outside the current folder" in said
        assert said.index("read it first, then add --trust.")
        assert not (folder / "touched").exists()
    assert methods("linked.py:f", trusted=True)[0].rule.mu == 0.5
    assert (folder / "touched").exists()


def test_code_of_another_user_needs_trust(folder, monkeypatch):
    write(folder / "rules.py", RULE.format(mu=0.5))
    text = with_methods("rules.py:f")
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert "which belongs to another user; read it first" in refused(text, "--dry-run")
    result = CliRunner().invoke(app, ["run", "experiment.toml", "--dry-run", "--trust"])
    assert result.exit_code == 0, result.output


def test_a_run_folder_asks_for_trust_too(folder, tmp_path, monkeypatch):
    write(tmp_path / "theirs" / "rules.py", RULE.format(mu=0.5))
    with open("experiment.toml", "w") as file:
        file.write(with_methods("../theirs/rules.py:f"))
    command = ["run", "experiment.toml", "--out", "out", "--set", "rounds=1", "--no-report"]
    assert CliRunner().invoke(app, [*command, "--trust"]).exit_code == 0
    again = CliRunner().invoke(app, ["resume", "out"])
    assert again.exit_code == 2
    assert "then add --trust" in again.output
    assert CliRunner().invoke(app, ["resume", "out", "--trust"]).exit_code == 0


FAILING = {
    "raise ValueError('no such\\nthing')": "rules.py, line 2: ValueError: no such thing",
    "import nothing_of_this_name": "rules.py, line 2: ModuleNotFoundError: No module named",
    "def broken(": "rules.py, line 2: SyntaxError:",
    "import sys; sys.exit(3)": "rules.py, line 2: SystemExit: 3",
    "f = 3": "algorithm `rules.py:f` is a int; give a function.",
    "g = 3": "rules.py has no `f`",
    "def f(): return None": "algorithm `rules.py:f` returned None; return an hf.Algorithm.",
    "def f(): return 1 / 0": "algorithm `rules.py:f` failed: rules.py, line 2: ZeroDivisionError:",
    "def f(x: 'Nothing'): return x": "algorithm `rules.py:f` failed: NameError: name 'Nothing'",
    "from builtins import dict as f": "algorithm `rules.py:f`",
}


@pytest.mark.parametrize("line", FAILING)
def test_own_code_that_fails_is_explained_with_both_lines(folder, line):
    write(folder / "rules.py", f"import holdfast as hf\n{line}\n")
    said = refused(with_methods("rules.py:f"), "--dry-run")
    assert "experiment.toml, line 2" in said
    assert FAILING[line] in said


@pytest.mark.parametrize(
    ("kind", "old"),
    [
        ("data", "digits"),
        ("partition", "iid"),
        ("model", "softmax_regression"),
        ("cohort", "fixed"),
        ("algorithm", "fedavg"),
    ],
)
@pytest.mark.parametrize("body", ["return None", "return 3", "raise KeyError('x')"])
def test_every_kind_of_own_function_is_checked(folder, kind, old, body):
    write(folder / "rules.py", f"def f(*args: int, clients: int = 1, size: int = 1):\n    {body}\n")
    said = refused(GOOD.replace(f'name = "{old}"', 'name = "rules.py:f"'), "--dry-run")
    assert "experiment.toml, line" in said
    assert f"{kind} `rules.py:f`" in said


def test_a_file_in_the_current_folder_is_no_module_of_the_command(tmp_path):
    (tmp_path / "random.py").write_text("raise SystemExit('run unasked')\n")
    sources = str(Path(holdfast.__file__).parents[1])
    said = subprocess.run(
        [sys.executable, "-m", "holdfast", "list", "cohorts"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "bernoulli" in said.stdout
