"""Mistakes in an experiment file: the line, what was found, what was meant; exit code 2, no folder."""

import os
import textwrap
import urllib.error
import urllib.request
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli import app

GOOD = """\
rounds = 2
target = 0.9

[data]
name = "digits"

[partition]
name = "iid"
clients = 4

[model]
name = "softmax_regression"

[local]
learning_rate = 0.1
batch_size = 50

[cohort]
name = "fixed"
size = 2

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "feddyn"
alpha = 0.1
"""

# what is changed in the good file, the line that is named, and words of the message
WRONG = {
    "a network of images for a table": (
        ('name = "softmax_regression"', 'name = "cnn_fsl_emnist"'),
        4,
        "CNN takes images of shape (examples, height, width, channels)",
    ),
    "a number per client beyond 32 bits": (
        ("alpha = 0.1", "alpha = [4294967296]"),
        27,
        "a PerClient has 1 values for 4 clients",
    ),
    "a misspelt key": (
        ("learning_rate = 0.1", "learningrate = 0.1"),
        15,
        "unknown key `learningrate` in [local]; did you mean `learning_rate`?",
    ),
    "a misspelt key at the top": (
        ("target = 0.9", "targt = 0.9"),
        2,
        "unknown key `targt`; did you mean `target`?",
    ),
    "text for a number": (
        ("learning_rate = 0.1", 'learning_rate = "fast"'),
        15,
        '`learning_rate` is "fast" in [local]; expected a number',
    ),
    "a fraction for a whole number": (
        ("clients = 4", "clients = 4.5"),
        9,
        "`clients` is 4.5 in [partition]; expected a whole number.",
    ),
    "a size that is none": (
        ("[cohort]", '[storage]\nmemory = "much"\n\n[cohort]'),
        19,
        'Storage: memory=\'much\' is not a size; give bytes, or such as "500 MB" or "2 GB".',
    ),
    "devices that are not there": (
        ("[cohort]", "[engine]\ndevices = 64\n\n[cohort]"),
        19,
        "Engine: devices=64, and JAX has",
    ),
    "a target in percent": (
        ("target = 0.9", "target = 90"),
        2,
        "target 90 for accuracy, which is never above 1; give 0.9.",
    ),
    "a target that is no number": (
        ("target = 0.9", "target = nan"),
        2,
        "target nan; give a number.",
    ),
    "a window that is never full": (
        ("target = 0.9", "target = 0.9\nwindow = 10"),
        3,
        "`window` is 10, and 2 rounds have 2 evaluations, so no mean of 10 would be there; give at "
        "most 2.",
    ),
    "rounds below one": (("rounds = 2", "rounds = 0"), 1, "`rounds` is 0; expected at least 1."),
    "an unknown method": (
        ('name = "feddyn"', 'name = "fedyn"'),
        26,
        "unknown algorithm `fedyn`; did you mean `feddyn`?",
    ),
    "an unknown data set": (
        ('name = "digits"', 'name = "digitz"'),
        5,
        "unknown data `digitz`; did you mean `digits`?",
    ),
    "an argument missing": (
        ("alpha = 0.1\n", ""),
        25,
        "`alpha` is missing in [algorithm]; add alpha = ...",
    ),
    "an argument the method has not": (
        ("alpha = 0.1", "mu = 0.1\nalpha = 0.1"),
        27,
        "unknown key `mu` in [algorithm]; known are",
    ),
    "an impossible cohort": (
        ("size = 2", "size = 9"),
        20,
        "9 clients are asked for but 4 of 4 have data; ask for at most 4.",
    ),
    "a value out of range": (
        ("learning_rate = 0.1", "learning_rate = -0.1"),
        15,
        "learning_rate=-0.1; give numbers above 0.",
    ),
    "epochs and steps": (
        ("batch_size = 50", "epochs = 1\nsteps = 2"),
        16,
        "epochs=1 and steps=2 are both given; give one.",
    ),
    "a section missing": (
        ('[model]\nname = "softmax_regression"\n', ""),
        None,
        "`model` is missing; add [model] with name",
    ),
    "no TOML": (("clients = 4", "clients = four"), 9, "invalid value; text needs quotes"),
    "a method without its server": (
        ('name = "feddyn"\nalpha = 0.1', 'name = "fedavg_plus"\ngamma = 0.5'),
        25,
        "needs data or a loss at the server, but the run has none; give simulate(server=hf.Server("
        "data_or_loss, local=...)), or in an experiment file [server] with examples = 500.",
    ),
    "a metric nobody measures": (
        ("target = 0.9", 'target = 0.9\nmetric = "acuracy"'),
        3,
        "`acuracy` is not measured; did you mean `accuracy`?",
    ),
    "a metric nobody measures, beside operations": (
        ("target = 0.9", 'metric = "fedavg"\nevaluate = { also = [{ name = "flops" }] }'),
        2,
        "`fedavg` is not measured; known are accuracy, loss, mflop, mflop_per_client.",
    ),
    "two methods of one name": (
        ('name = "feddyn"\nalpha = 0.1', 'name = "fedavg"'),
        25,
        "two algorithms are called `fedavg`; give one another `label`.",
    ),
    "a choice that does not exist": (
        ('name = "fedavg"', 'name = "fedavg"\nweighting = "evenly"'),
        24,
        "`weighting` is \"evenly\" in [algorithm]; expected 'examples', 'uniform' or 'processed'.",
    ),
    "an unknown schedule": (
        ("learning_rate = 0.1", 'learning_rate = { schedule = "exponental", value = 0.1 }'),
        15,
        "unknown schedule `exponental`; did you mean `exponential`?",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def refused(text: str, *options: str) -> str:
    with open("experiment.toml", "w") as file:
        file.write(text)
    before = set(os.listdir())
    result = CliRunner().invoke(app, ["run", "experiment.toml", *options])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)  # said in words, no traceback
    assert "Traceback" not in result.output
    assert set(os.listdir()) == before  # no folder, not even half of one
    assert len(result.output.splitlines()) <= 24  # one screen
    return " ".join(result.output.split())


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_with_its_line(folder, name):
    (old, new), line, words = WRONG[name]
    assert old in GOOD
    said = refused(GOOD.replace(old, new, 1))
    assert " ".join(words.split()) in said
    if line is not None:
        assert f"experiment.toml, line {line}:" in said
        assert f"> {line} |" in said


RENAMED = {
    "max_examples": ("clients = 4", "clients = 4\nmost = 3", "most"),
    "solver": ('name = "feddyn"', 'name = "flix"\noptimum = "LBFGS"', "optimum"),
    "max_steps": (
        'name = "feddyn"',
        'name = "flix"\nsolver = { name = "LBFGS", most = 3 }',
        "most",
    ),
}


@pytest.mark.parametrize("new", RENAMED)
def test_the_old_name_of_a_key_is_refused(folder, new):
    before, after, old = RENAMED[new]
    said = refused(GOOD.replace(before, after, 1))
    assert f"unknown key `{old}`" in said
    # Without the table the new name is one of all that are known.
    assert f"`{new}` now" in said


def test_noise_beyond_numbers_is_one_line(folder):
    text = GOOD.replace('name = "digits"', 'name = "sine"\nnoise = 1e300')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = refused(text.replace('name = "softmax_regression"', 'name = "least_squares"'))
    assert "data: y contains infinity, first in row 0" in said


def test_nan_in_the_data(folder):
    x = np.ones((20, 3))
    x[7, 1] = np.nan
    np.savez("mine.npz", x=x, y=np.arange(20) % 2)
    said = refused(GOOD.replace('name = "digits"', 'name = "arrays"\npath = "mine.npz"'))
    assert "experiment.toml, line" in said
    assert "contains NaN, first in row" in said


def test_a_file_that_is_not_there(folder):
    said = refused(GOOD.replace('name = "digits"', 'name = "arrays"\npath = "mine.npz"'))
    assert "experiment.toml, line" in said
    assert "mine.npz does not exist; give the path of a file." in said


def test_no_experiment_file(folder):
    (folder / "experiment.toml").write_text(GOOD)
    result = CliRunner().invoke(app, ["run", "experimnt.toml"])
    assert result.exit_code == 2
    assert "did you mean `experiment.toml`?" in result.output


def test_a_mistake_on_the_command_line_is_named_as_it_was_typed(folder):
    assert "--set local.learningrate=0.5: unknown key `learningrate`" in refused(
        GOOD, "--set", "local.learningrate=0.5"
    )
    assert "--set rounds: give key=value" in refused(GOOD, "--set", "rounds")
    assert "no entry `fedavgg`; did you mean `fedavg`?" in refused(
        GOOD, "--set", "algorithm.fedavgg.weighting=uniform"
    )


def test_every_data_set_that_is_absent_says_which_files_to_put_where(folder, monkeypatch):
    monkeypatch.setenv("HOLDFAST_DATA", str(folder / "cache"))

    def unreachable(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    said = refused(GOOD.replace('name = "digits"', 'name = "mnist"'))
    assert "train-images-idx3-ubyte.gz" in said
    assert "cache" in said


def test_the_good_file_is_good(folder):
    (folder / "experiment.toml").write_text(textwrap.dedent(GOOD))
    result = CliRunner().invoke(app, ["run", "experiment.toml", "--dry-run"])
    assert result.exit_code == 0, result.output
