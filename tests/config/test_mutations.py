"""A few hundred mutated files and `--set`s; `python -m tests.trials.mutations` has as many as one likes."""

import collections

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from tests.config.test_wrong_files import GOOD, refused
from tests.trials.mutations import trial

COUNT = 300


@pytest.mark.parametrize("part", range(3))
def test_a_mutated_file_is_right_or_refused_in_one_line_with_its_place(part, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    size = COUNT // 3
    found = list(trial(size, seed=15, first=part * size))
    assert [(o.case.number, o.kind, o.said) for o in found if o.bad] == []
    counts = collections.Counter(o.kind for o in found)
    # Neither is everything refused for the same reason, nor does everything pass.
    assert counts["refused"] > size / 2
    assert counts["passed"] > size / 20
    assert len({o.said for o in found}) > size / 2


# What a change in the good file was answered with: a traceback, or nothing until the run was over.
MENDED = {
    "a table for the name of a schedule": (
        ("learning_rate = 0.1", "learning_rate = { schedule = { a = 1 } }"),
        15,
        "expected a number, a list with one number per client, or a schedule",
    ),
    "a schedule with another name": (
        (
            "learning_rate = 0.1",
            'learning_rate = { schedule = "constant", value = 0.1, name = "x" }',
        ),
        15,
        "unknown key `name` in a schedule; remove it.",
    ),
    "a size no array has": (
        ("clients = 4", "clients = 9223372036854775808"),
        9,
        "`clients` is 9223372036854775808 in [partition]; expected less than 2147483648.",
    ),
    "a model no machine can hold": (
        ('name = "softmax_regression"', 'name = "mlp"\nhidden = [2147483647, 2147483647]'),
        11,
        "the model's parameters are 18,446,744,",
    ),
    "more seeds than anybody runs": (
        ("target = 0.9", "seeds = 2147483648"),
        2,
        "`seeds` is 2147483648; expected at most 10000.",
    ),
    "a second seed below zero": (
        ("target = 0.9", "seeds = [1, -1]"),
        2,
        "`1` is -1 in [seeds]; expected at least 0.",
    ),
    "a hyper-parameter that is no number": (
        ("alpha = 0.1", "alpha = nan"),
        27,
        "`alpha` is nan in [algorithm]; expected a number",
    ),
    "a key with a bracket": (
        ("target = 0.9", '"target[" = 0.9'),
        2,
        "unknown key `target[`; did you mean `target`?",
    ),
    "a key with an escape": (
        ("target = 0.9", '"target\\u0000" = 0.9'),
        2,
        "unknown key `target\\x00`; did you mean `target`?",
    ),
    "lines in a value": (
        ('name = "digits"', 'name = "a\\nb"'),
        5,
        "unknown data `a\\nb`; known are",
    ),
    "lists in lists in lists": (
        ("target = 0.9", f"target = {'[' * 5000}{']' * 5000}"),
        2,
        "tables or lists are nested too deeply",
    ),
}


@pytest.mark.parametrize("what", MENDED)
def test_what_was_a_traceback_names_its_line(folder, what):
    (old, new), line, words = MENDED[what]
    assert old in GOOD
    said = refused(GOOD.replace(old, new, 1), "--dry-run")
    assert f"experiment.toml, line {line}: " in said
    assert words in said


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("data=mnits", "unknown data `mnits`; did you mean `mnist`?"),
        ("data=[1]", "expected a name in quotes or a table"),
        ("rounds.first=1", "`rounds` is no table"),
        ("local=5", "`local` is 5; expected a table."),
        ("target=nan", "target nan; give a number."),
        ("name=../../x", "expected a name for a folder in runs/"),
        ("\udcff=1", "it is no text; give UTF-8."),
        ("rounds", "give key=value"),
    ],
)
def test_a_wrong_set_is_named_as_it_was_typed(folder, typed, words):
    said = refused(GOOD, "--dry-run", "--set", typed)
    assert said.startswith(f"error --set {typed}: ".replace("\udcff", "\\udcff"))
    assert words in said


def test_a_value_in_a_list_of_values_cannot_be_set(folder):
    listed = refused(GOOD, "--dry-run", "--set", "seeds=[1, 2]", "--set", "seeds.x=1")
    assert "no entry `x` in a list of values; set the whole list." in listed


LATE = """
import holdfast as hf

class Measure:
    every = 1
    keeps_last_models = False
    def check(self, model, params, clients): pass
    def __call__(self, view): raise RuntimeError("late\\nand long")

class Nothing(Measure):
    def __call__(self, view): return None

class Draws:
    steady = True
    drawn = None
    def check(self, able, population): pass
    def draw(self, t, able, rng): return self.drawn

class Far(Draws):
    drawn = __import__("numpy").array([99])
"""
EVALUATOR = '\n[[evaluate.also]]\nname = "late.py:{}"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            GOOD + EVALUATOR.format("Measure"),
            "own code failed: late.py, line 8: RuntimeError: late and",
        ),
        (
            GOOD + EVALUATOR.format("Nothing"),
            "evaluate: Nothing returned a NoneType; return a dictionary",
        ),
        (
            GOOD.replace('"fixed"\nsize = 2', '"late.py:Draws"'),
            "cohort: Draws drew None for round 1;",
        ),
        (
            GOOD.replace('"fixed"\nsize = 2', '"late.py:Far"'),
            "cohort: Far drew [99] for round 1;",
        ),
    ],
)
def test_own_code_that_fails_in_a_round_is_named(folder, text, words):
    (folder / "late.py").write_text(LATE)
    (folder / "e.toml").write_text(text)
    result = CliRunner().invoke(app, ["run", "e.toml", "--out", "out"])
    assert result.exit_code == 2, result.output
    assert words in result.output
