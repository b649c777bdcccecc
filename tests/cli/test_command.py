"""The command itself: its version, its help, and `python -m holdfast`."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import COMMANDS, app, console
from holdfast.config import examples

# Runs the command in a process of its own and says whether JAX was imported for it.
WITHOUT_JAX = """
import sys
from pathlib import Path
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
    for words in (
        ("--help",),
        ("run", "--help"),
        ("new", str(tmp_path / "one.toml")),
        ("list",),
        ("show", "feddyn"),
    ):
        assert in_a_process(*words).endswith("False False\n")
    assert (tmp_path / "one.toml").exists()


def test_a_wrong_file_is_refused_without_jax(tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text(examples.text("digits").replace("learning_rate", "learningrate"))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX.replace("assert not", "assert 2 =="), "run", str(file)],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False False\n", done.stderr
    assert "unknown key `learningrate` in [local]; did you mean `learning_rate`?" in done.stderr


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


# A process for each room, forked from one that has what all of them need.
EACH_ROOM_FIRST = """
import os, sys
import flax, jax, optax, plotly, pydantic, rich.console, scipy
failed = []
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        __import__(name)
        os._exit(0)
    failed += [name] * (os.waitpid(child, 0)[1] != 0)
sys.exit(" ".join(failed) or 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_any_room_may_be_imported_first():
    package = Path(holdfast.__file__).parent
    rooms = [f"holdfast.{p.parent.name}" for p in sorted(package.glob("*/__init__.py"))]
    modules = ["holdfast.runs.results", "holdfast.report.page", "holdfast.record.history"]
    command = [sys.executable, "-W", "ignore", "-c", EACH_ROOM_FIRST, *rooms, *modules]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_public_names_and_rooms_are_there_when_asked_for():
    lines = """
import sys
import warnings
from pathlib import Path
import holdfast as hf
assert "jax" not in sys.modules
assert hf.metrics.__name__ == "holdfast.metrics"
assert "holdfast.public" not in sys.modules
first = {name: getattr(hf, name) for names in hf._OF_A_RUN.values() for name in names}
assert "holdfast.public" not in sys.modules
assert not [name for name in ("scipy", "pydantic") if name in sys.modules]
import holdfast.report.plots
assert callable(hf.report)  # and there is a room of that name
import holdfast.public
assert all(getattr(holdfast.public, name) is found for name, found in first.items())
assert {"Clients", "simulate", "data"} <= set(hf.__all__) & set(dir(hf))
from holdfast import *
assert simulate is hf.simulate
try:
    hf.nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert done.stdout == "module `holdfast` has no attribute `nothing`\n", done.stderr


def test_warnings_of_others_are_said_once():
    said = []

    @console.said_in_one_line
    def command():
        for _ in range(3):
            # As every metric of scikit-learn's does: Python then forgets what it has shown.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
            warnings.warn("of somebody's own metric", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *where, **more: said.append(str(message))
        command()
    assert said == ["of somebody's own metric"]
