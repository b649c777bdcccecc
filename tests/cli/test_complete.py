"""Shell completion, asked as the shells ask for it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import app
from holdfast.config import catalogue, examples
from tests.cli.test_command import in_a_process


def asked(*words, shell="bash"):
    """What a shell is told after these words, the last of which is not complete."""
    line = " ".join(("holdfast", *words))
    env = {
        "_HOLDFAST_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    said = CliRunner().invoke(app, [], env=env, prog_name="holdfast")
    return [word for word in said.output.splitlines() if word]


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    for name in ("runs/digits", "runs/more/digits", "other/old"):
        (tmp_path / name / "methods" / "fedavg" / "seed-0").mkdir(parents=True)
        (tmp_path / name / "experiment.toml").write_text("rounds = 1")
    for name in ("runs/digits", "runs/more/digits"):
        about = {"methods": [{"name": "fedavg", "folder": "fedavg"}, {"name": "feddyn"}]}
        (tmp_path / name / "methods.json").write_text(json.dumps(about))
        history = tmp_path / name / "methods" / "fedavg" / "seed-0" / "history.jsonl"
        (tmp_path / name / "split.json").write_text('{"names": ["cleveland", "zurich"]}')
        history.write_text('{"round": 0, "accuracy": 0.1, "loss": 2.0}\n')
    (tmp_path / "mine.toml").write_text("rounds = 1")


def test_commands_and_options():
    assert {"run", "resume", "report"} <= set(asked(""))
    assert asked("sho") == ["show"]
    assert "--dry-run" in asked("run", "--d")


def test_names_of_the_catalogue():
    assert asked("show", "feddy") == ["feddyn", "feddyn_plus"]
    assert asked("show", "breast") == ["breast_cancer"]
    assert asked("list", "comp") == ["compressor"]
    every = {name for entries in catalogue.KINDS.values() for name in entries}
    assert set(asked("show", "")) == every
    assert asked("show", "no_such_name") == []


def test_templates_with_what_they_are_about():
    assert asked("new", "--example", "") == examples.names()
    [line] = asked("new", "--example", "dig", shell="fish")
    word, _, about = line.partition("\t")
    assert word == "digits"
    assert about.endswith(" ...")
    assert examples.title("digits").startswith(about.removesuffix(" ..."))
    [line] = asked("new", "--example", "dig", shell="zsh")
    assert '"digits":"' in line


def test_run_folders_and_experiment_files():
    assert asked("resume", "") == ["runs/digits", "runs/more/digits"]
    assert asked("resume", "runs/m") == ["runs/more/digits"]
    assert asked("compare", "runs/digits", "runs/more/") == ["runs/more/digits"]
    assert asked("report", "elsewhere/") == []
    assert asked("run", "") == ["mine.toml", "other/old/experiment.toml"]
    assert asked("run", f"{os.getcwd()}/m") == [f"{os.getcwd()}/mine.toml"]


def test_what_is_in_the_folders_given():
    assert asked("compare", "runs/digits", "--baseline", "") == ["fedavg", "feddyn"]
    assert asked("compare", "runs/digits", "--metric", "") == ["accuracy", "loss"]
    assert asked("compare", "nowhere", "--baseline", "") == []
    assert asked("predict", "runs/digits", "new.csv", "--method", "fedd") == ["feddyn"]
    assert asked("predict", "runs/digits", "new.csv", "--client", "") == ["cleveland", "zurich"]


def test_names_need_no_jax():
    env = {
        **os.environ,
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": "holdfast show fed",
        "COMP_CWORD": "2",
    }
    assert in_a_process(**env).splitlines() == [*asked("show", "fed"), "False False"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_once_completion_is_installed(tmp_path):
    command = tmp_path / "bin" / "holdfast"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    command.chmod(0o755)
    lines = """
        holdfast --install-completion >/dev/null
        source ~/.bashrc
        complete -p holdfast
        COMP_WORDS=(holdfast resume runs/m) COMP_CWORD=2
        _holdfast_completion holdfast
        echo "${COMPREPLY[@]}"
    """
    env = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(holdfast.__file__).parents[1]),
    }
    said = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, env=env)
    assert said.stdout.splitlines() == [
        "complete -o default -F _holdfast_completion holdfast",
        "runs/more/digits",
    ], said.stderr
