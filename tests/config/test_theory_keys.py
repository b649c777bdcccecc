"""FLIX in a file: from the one-shot average, with the step of theory."""

import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from tests.config.test_sweep_section import holdfast
from tests.config.test_wrong_files import folder, refused
from tests.problems import same_bits

__all__ = ["folder"]  # a fixture

FILE = """\
rounds = 3
metric = "personal_loss"

[data]
name = "breast_cancer"

[partition]
name = "iid"
clients = 3

[model]
name = "logistic_regression"
l2 = 0.1

[local]
learning_rate = 0.1
steps = 1

[evaluate]
personal = true

[[algorithm]]
name = "flix"
alpha = 0.5
start_at = "average"
step_size = "theory"

[[algorithm]]
name = "flix"
label = "diana"
alpha = 0.5
by = { name = "diana", compressor = { name = "RandK", share = 0.2 }, start = "gradients" }
start_at = "average"
step_size = "theory"
"""


def test_a_file_starts_where_python_does(folder):
    (folder / "experiment.toml").write_text(FILE)
    made = study(read("experiment.toml"))
    plain = hf.Experiment(
        hf.algorithms.flix(0.5),
        made.model,
        made.clients,
        hf.Local(0.1, steps=1),
        evaluate=made.evaluators,
    )
    wanted = hf.flix.by_theory(plain)
    given = made.experiment(made.methods[0], 0)
    known = hf.flix.constants(made.model, made.clients)
    assert given.local.learning_rate == wanted.local.learning_rate == known.step_size(0.5)
    run, same = (hf.simulate(e, rounds=3) for e in (given, wanted))
    assert same_bits(run.params, same.params)
    assert run.ledger == same.ledger
    # x_avg is a model and a number up.
    assert run.ledger.entries[0].bits_up == run.ledger.entries[1].bits_up + 32
    compressed = made.experiment(made.methods[1], 0)
    step = known.step_size(0.5, hf.wires.RandK(share=0.2), diana=True)
    assert compressed.local.learning_rate == pytest.approx(step)
    assert compressed.algorithm.wire.start == "gradients"
    # A look at the file searches for nothing.
    looked = study(read("experiment.toml"), pretrained=False)
    assert not looked._made


def test_it_runs(folder):
    (folder / "experiment.toml").write_text(FILE)
    assert "flix" in holdfast("run", "experiment.toml", "--dry-run")
    assert "diana" in holdfast("run", "experiment.toml")


MISTAKES = {
    "another method": (
        ('name = "flix"\nalpha = 0.5', 'name = "fedavg"'),
        "fedavg is not FLIX",
    ),
    "a cohort": (
        ("[evaluate]", '[cohort]\nname = "fixed"\nsize = 2\n\n[evaluate]'),
        "let everyone take part",
    ),
    "more steps": (("steps = 1", "steps = 2"), "one plain full-batch step a round"),
    "another step": (('step_size = "theory"', 'step_size = "best"'), "expected 'theory'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(folder, name):
    change, message = MISTAKES[name]
    assert message in refused(FILE.replace(*change, 1))
