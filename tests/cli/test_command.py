"""The command itself: its version, its help, and `python -m holdfast`."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import COMMANDS, app

# Runs the command in a process of its own and says whether JAX was imported for it.
WITHOUT_JAX = """
import sys
from holdfast.cli import main
sys.argv[0] = "holdfast"
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended
print("jax" in sys.modules, "numpy" in sys.modules)
"""


def in_a_process(*words, **env):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX, *words], capture_output=True, text=True, env=env or None
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_version_and_help_need_no_jax(tmp_path):
    assert in_a_process("--version") == f"holdfast {holdfast.__version__}\nFalse False\n"
    for words in (("--help",), ("run", "--help"), ("new", str(tmp_path / "one.toml"))):
        assert in_a_process(*words).endswith("False False\n")
    assert (tmp_path / "one.toml").exists()


def test_the_package_is_the_command():
    command = [sys.executable, "-m", "holdfast"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"holdfast {holdfast.__version__}\n"
    done = subprocess.run([*command, "resume", "nowhere"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error nowhere does not exist; give a folder that")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_an_example(name):
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
    assert f"holdfast {name}" in shown.partition("Example")[2]
    assert max(map(len, shown.splitlines())) <= 80
