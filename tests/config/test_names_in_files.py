"""Names and labels of an experiment file: one folder in runs/, one line in a table, never a command."""

import json

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.cli.console import printable
from tests.config.test_wrong_files import GOOD, refused

NAMES = [
    "../../x",
    "/tmp/x",
    "a/b",
    "a\\\\b",
    "..",
    ".",
    "",
    " ",
    ".hidden",
    "x" * 300,
    "a\\u0000b",
    "a\\nb",
    "[/x]",
    "~",
    "a ",
    "a.",
    "\\u202ex",
    "-rf",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_folder_in_runs_is_refused(folder, name):
    for options in ([], ["--dry-run"]):
        said = refused(f'name = "{name}"\n{GOOD}', *options)
        assert "experiment.toml, line 1: `name` is" in said
        assert "expected a name for a folder in runs/" in said


@pytest.mark.parametrize("name", ["a", "ångström 2.0", "a=1, b=(2)", "x" * 100])
def test_other_names_are_folders_in_runs(folder, name):
    (folder / "experiment.toml").write_text(f'name = "{name}"\n{GOOD}')
    result = CliRunner().invoke(app, ["run", "experiment.toml", "--dry-run"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("label", ["", " ", "x" * 201, "a\\u0000b", "a\\nb", "a\\u001b[31mb"])
def test_a_label_that_is_no_line_of_text_is_refused(folder, label):
    said = refused(GOOD.replace('name = "fedavg"', f'name = "fedavg"\nlabel = "{label}"'))
    assert "experiment.toml, line 24: `label` is" in said
    assert "expected 1 to 200 letters that can be printed, in one line." in said


def test_labels_are_shown_as_they_are_and_stay_in_their_folder(folder):
    labels = ["[/x]", "[bold]", "..", "../../up", "$y$", "<b>&"]
    entries = "".join(f'\n[[algorithm]]\nname = "fedavg"\nlabel = "{n}"\n' for n in labels)
    text = GOOD.partition("\n[[algorithm]]")[0].replace("rounds = 2", "rounds = 1")
    path = folder / "experiment.toml"
    path.write_text(f'name = "mine"\n{text}{entries}')
    result = CliRunner().invoke(app, ["run", "experiment.toml"])
    assert result.exit_code == 0, result.output
    for label in labels:
        assert f"  {label} " in result.output
    described = json.loads((folder / "runs" / "mine" / "methods.json").read_text())
    folders = {m["label"]: m["folder"] for m in described["methods"]}
    assert folders == {
        "[/x]": "x",
        "[bold]": "bold",
        "..": "method",
        "../../up": "up",
        "$y$": "y",
        "<b>&": "b",
    }
    assert sorted(p.name for p in folder.iterdir()) == ["experiment.toml", "runs"]
    for words in (["compare", "runs/mine"], ["report", "runs/mine", "--figures", "figures"]):
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 0, shown.output


def test_what_a_terminal_would_obey_is_spelt_out(folder):
    assert printable("a\x1b[31m\tb\nc\udc80") == "a\\x1b[31m b\nc\\udc80"
    said = refused(GOOD.replace("rounds = 2", "rounds = 2 # \x1b]0;x\x07"))
    assert "\x1b]" not in said
    assert "\\x1b]0;x\\x07" in said


def test_a_file_of_any_name_has_a_folder(folder):
    (folder / "[..x].toml").write_text(GOOD.replace("rounds = 2", "rounds = 1"))
    result = CliRunner().invoke(app, ["run", "[..x].toml", "--no-report"])
    assert result.exit_code == 0, result.output
    assert (folder / "runs" / "x").is_dir()
