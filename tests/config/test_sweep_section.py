"""`[sweep]` in an experiment file: its points are methods, each the run it would be alone."""

import json

import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.engine.compiled import compiled_programs
from holdfast.runs import results
from tests.config.test_wrong_files import folder, refused

__all__ = ["folder"]  # a fixture

FILE = """\
rounds = 2
seeds = 2
target = 0.9

[data]
name = "breast_cancer"

[partition]
name = "iid"
clients = 4

[model]
name = "logistic_regression"

[local]
learning_rate = 0.1
steps = 2
batch_size = 8

[cohort]
name = "fixed"
size = 2

[sweep]
"algorithm.feddyn.alpha" = [0.01, 0.1]
"local.learning_rate" = [0.05, 0.2]

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "feddyn"

[[algorithm]]
name = "fedprox"
mu = 0.1
local = { learning_rate = 0.02 }
"""
SWEEP = FILE[FILE.index("[sweep]") : FILE.index("[[algorithm]]")]


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """No line is broken, whatever terminal there is or is not."""
    monkeypatch.setenv("COLUMNS", "200")


def holdfast(*words) -> str:
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output
    return result.output


def studied(folder, text=FILE, *changes):
    (folder / "experiment.toml").write_text(text)
    return study(read("experiment.toml", changes))


def labels(made):
    return [m.label for m in made.methods]


def test_points_are_methods(folder):
    made = studied(folder)
    assert labels(made) == [
        "fedavg learning_rate=0.05",
        "fedavg learning_rate=0.2",
        "feddyn alpha=0.01, learning_rate=0.05",
        "feddyn alpha=0.01, learning_rate=0.2",
        "feddyn alpha=0.1, learning_rate=0.05",
        "feddyn alpha=0.1, learning_rate=0.2",
        "fedprox",  # it has a step size of its own
    ]
    assert made.methods[3].folder == "feddyn-alpha=0.01-learning_rate=0.2"
    assert [m.local.learning_rate for m in made.methods] == [0.05, 0.2] * 3 + [0.02]
    assert [m.algorithm.rule.alpha for m in made.methods[2:6]] == [0.01, 0.01, 0.1, 0.1]


def test_keys_without_quotes_are_the_same(folder):
    bare = SWEEP.replace('"', "")
    assert labels(studied(folder, FILE.replace(SWEEP, bare))) == labels(studied(folder))


def test_paired(folder):
    text = FILE.replace("[sweep]", '[sweep]\nhow = "paired"').replace("[0.05, 0.2]", "[0.05, 0.05]")
    assert labels(studied(folder, text)) == [
        "fedavg learning_rate=0.05",  # once, though it is paired twice
        "feddyn alpha=0.01, learning_rate=0.05",
        "feddyn alpha=0.1, learning_rate=0.05",
        "fedprox",
    ]


def test_values_may_be_schedules_and_stand_in_tables(folder):
    sweep = """\
[sweep]
local.learning_rate = [0.1, { schedule = "exponential", value = 0.1, decay = 0.9 }]
"algorithm.fed 1.5.wire.compressor.share" = [0.5, 0.25]
"algorithm.fedprox.local.steps" = [1, 3]
"""
    text = FILE.replace(SWEEP, sweep).replace('"feddyn"', '"feddyn"\nalpha = 0.1')
    coded = 'label = "fed 1.5"\nwire = { name = "Compressed", compressor = { name = "RandK" } }'
    made = studied(folder, text.replace('"fedavg"', f'"fedavg"\n{coded}', 1))
    assert labels(made) == [
        "fed 1.5 learning_rate=0.1, share=0.5",
        "fed 1.5 learning_rate=0.1, share=0.25",
        "fed 1.5 learning_rate=exponential-0.1-0.9, share=0.5",
        "fed 1.5 learning_rate=exponential-0.1-0.9, share=0.25",
        "feddyn learning_rate=0.1",
        "feddyn learning_rate=exponential-0.1-0.9",
        "fedprox steps=1",
        "fedprox steps=3",
    ]
    assert made.methods[3].algorithm.wire.compressor.share == 0.25
    assert made.methods[3].local.learning_rate(1) == pytest.approx(0.09)
    assert made.methods[7].local.steps == 3


def test_the_server_trains_as_the_point_says(folder):
    text = FILE.replace("[cohort]", "[server]\nexamples = 20\n\n[cohort]")
    made = studied(folder, text)
    assert [m.server.local.learning_rate for m in made.methods[:2]] == [0.05, 0.2]
    own = text.replace("examples = 20", "examples = 20\nlocal = { learning_rate = 1, steps = 1 }")
    assert {m.server.local.learning_rate for m in studied(folder, own).methods} == {1}


def test_a_dry_run_counts(folder):
    (folder / "experiment.toml").write_text(FILE)
    said = holdfast("run", "experiment.toml", "--dry-run")
    assert "feddyn: 4 points, alpha 0.01, 0.1 x learning_rate 0.05, 0.2" in said
    assert "7 methods x 2 seeds = 14 runs" in said
    said = holdfast("run", "experiment.toml", "--dry-run", "--set", "sweep.how=paired")
    assert "2 points, alpha=0.01, learning_rate=0.05; alpha=0.1, learning_rate=0.2" in said


def test_set_changes_what_is_swept(folder):
    made = studied(folder, FILE, "sweep.local.learning_rate=[0.3]", "seeds=1")
    assert labels(made)[:2] == ["fedavg learning_rate=0.3", "feddyn alpha=0.01, learning_rate=0.3"]
    (folder / "used.toml").write_text(made.file.as_used())
    assert labels(study(read("used.toml"))) == labels(made)
    new = studied(
        folder, FILE.replace(SWEEP, ""), "sweep.local.steps=[1, 2]", "algorithm.feddyn.alpha=1"
    )
    (folder / "used.toml").write_text(new.file.as_used())
    assert (
        labels(study(read("used.toml")))
        == labels(new)
        == [f"{name} steps={n}" for name in ("fedavg", "feddyn", "fedprox") for n in (1, 2)]
    )


ALPHA, RATE = '"algorithm.feddyn.alpha" = [0.01, 0.1]', '"local.learning_rate" = [0.05, 0.2]'
WRONG = {
    "an unknown method": (
        (ALPHA, '"algorithm.fedyn.alpha" = [1]'),
        25,
        "no algorithm is called `fedyn`; did you mean `feddyn`?",
    ),
    "an unknown key": (
        (ALPHA, '"algorithm.feddyn.alpa" = [1]'),
        25,
        "unknown key `alpa` in [algorithm]; did you mean `alpha`?",
    ),
    "text for a number": (
        (ALPHA, '"algorithm.feddyn.alpha" = [0.01, "x"]'),
        25,
        '`alpha` is "x" in [algorithm]; expected a number',
    ),
    "a value out of range": (
        (RATE, '"local.learning_rate" = [0.05, -0.2]'),
        26,
        "learning_rate=-0.2; give numbers above 0.",
    ),
    "an unknown key of [local]": (
        (RATE, "local.learningrate = [0.05]"),
        26,
        "unknown key `learningrate` in [local]; did you mean `learning_rate`?",
    ),
    "what a method cannot do": (
        (
            'name = "fedavg"',
            'name = "scaffold"\n\n[sweep.algorithm.scaffold.local]\nmomentum = [0.9]',
        ),
        32,
        "Local has momentum on",
    ),
    "one value": ((RATE, '"local.learning_rate" = 0.05'), 26, "is 0.05 in [sweep]; give a list"),
    "another section": (
        (RATE, "partition.clients = [3]"),
        26,
        "`partition.clients` cannot be swept",
    ),
    "a value twice": ((RATE, RATE.replace("0.2", "0.05")), 26, "the value 0.05 is there twice"),
    "a key twice": ((RATE, "algorithm.1.alpha = [2]"), 26, "`alpha` is swept twice"),
    "another way": ((RATE, 'how = "pared"'), 26, "did you mean `paired`?"),
    "unequal pairs": (
        (RATE, 'local.learning_rate = [0.1]\nhow = "paired"'),
        26,
        "1 values paired with 2 of `alpha`; give as many of each.",
    ),
    "a name of two": (
        ('name = "fedavg"', 'name = "feddyn"\nalpha = 3'),
        25,
        "2 algorithms are called `feddyn`; give each a label.",
    ),
    "into what is no table": (
        (ALPHA, '"algorithm.fedprox.mu.x" = [1]'),
        25,
        "`algorithm.2.mu` is no table",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_with_its_line(folder, name):
    (old, new), line, words = WRONG[name]
    assert old in FILE
    said = refused(FILE.replace(old, new, 1))
    assert words in said
    assert f"experiment.toml, line {line}:" in said


def test_a_mistake_on_the_command_line_is_named_as_it_was_typed(folder):
    said = refused(FILE, "--set", "sweep.local.learning_rate=[0.1, -1.0]")
    assert "--set sweep.local.learning_rate=[0.1, -1.0]: Local: learning_rate=-1.0" in said
    said = refused(FILE, "--set", "local.learning_rate=0.3")
    assert "--set local.learning_rate=0.3: [sweep] has values for it; set sweep.local" in said


def test_run_compare_resume_and_the_same_bits_as_alone(folder):
    (folder / "experiment.toml").write_text(FILE)
    before = compiled_programs()
    holdfast("run", "experiment.toml", "--out", "all", "--no-report")
    assert (
        compiled_programs() - before == 3
    )  # one for each algorithm, whatever its points and seeds
    about = json.loads((folder / "all" / "methods.json").read_text())["methods"]
    assert about[2]["point"] == {"of": "feddyn", "values": {"alpha": 0.01, "learning_rate": 0.05}}
    assert "point" not in about[-1]

    (folder / "alone.toml").write_text(FILE.replace(SWEEP, ""))
    alone = ["--set", "algorithm.feddyn.alpha=0.1", "--set", "local.learning_rate=0.2"]
    holdfast("run", "alone.toml", "--out", "alone", "--no-report", *alone)
    swept, single = "all/methods/feddyn-alpha=0.1-learning_rate=0.2", "alone/methods/feddyn"
    for seed in ("seed-0", "seed-1"):
        for name in ("predictions.safetensors", "history.jsonl", "ledger.jsonl", "clients.json"):
            one, two = (folder / p / seed / name for p in (swept, single))
            assert one.read_bytes() == two.read_bytes()
        # The file of the model names the method it is of.
        one, two = (load_file(folder / p / seed / "params.safetensors") for p in (swept, single))
        assert {n: a.tobytes() for n, a in one.items()} == {n: a.tobytes() for n, a in two.items()}

    said = holdfast("compare", "all", "--metric", "loss", "--target", 0.5)
    assert "feddyn alpha=0.1, learning_rate=0.2" in said
    assert len(results.load(["all"]).methods) == 7
    # What a kill leaves out, and nothing else, is run again.
    lost = folder / swept / "seed-1" / "params.safetensors"
    content = lost.read_bytes()
    lost.unlink()
    said = holdfast("resume", "all", "--no-report")
    assert said.count("complete") == 13
    assert lost.read_bytes() == content
