"""Several populations in a file: each has what differs, all is checked with its line, runs equal Python's."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from tests.config.test_sweep_section import holdfast
from tests.config.test_wrong_files import folder, refused
from tests.problems import same_bits

__all__ = ["folder"]  # a fixture

FILE = """\
rounds = 2
metric = "speakers_accuracy"

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

[evaluate]
train = true
personal = true

[[population]]
name = "phones"
data = { name = "digits", train_labels = [0, 1, 2, 3, 4] }
cohort = { name = "fixed", size = 2 }

[[population]]
name = "speakers"
weight = 0.5
data = { name = "digits", train_labels = [5, 6, 7, 8, 9] }
partition = { name = "iid", clients = 3 }
local = { learning_rate = 0.02, steps = 2 }

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "population_transfer"
"""


def test_a_file_is_what_python_would_run(folder):
    made = study(read(write(FILE)))
    train, test = hf.data.digits()

    def part(labels, clients, **settings):
        chosen = np.isin(train.y, labels)
        data = hf.Examples(train.x[chosen], train.y[chosen])
        return hf.Population(
            hf.data.partition.iid(data, clients), hf.models.softmax_regression(10), **settings
        )

    both = hf.join(
        [
            part(
                range(5),
                4,
                name="phones",
                cohort=hf.cohorts.fixed(2),
                local=hf.Local(0.1, batch_size=50),
            ),
            part(
                range(5, 10),
                3,
                name="speakers",
                weight=0.5,
                local=hf.Local(0.02, steps=2, batch_size=50),
            ),
        ]
    )
    measured = hf.evaluate.populations(both.clients, [test, test])
    algorithms = (hf.algorithms.fedavg(), hf.algorithms.population_transfer())
    for algorithm, method in zip(algorithms, made.methods, strict=True):
        ours = hf.simulate(algorithm, **both, rounds=2, evaluate=measured)
        theirs = hf.simulate(made.experiment(method, 0), rounds=2)
        assert same_bits(ours.params, theirs.params)
        mean = (ours.history["phones_loss"][-1] + 0.5 * ours.history["speakers_loss"][-1]) / 1.5
        assert ours.history["loss"][-1] == pytest.approx(mean)
        for column in ("loss", "speakers_accuracy"):
            assert theirs.history[column][-1] == ours.history[column][-1]
        assert "phones_train_loss" in theirs.history.columns
        assert "personal_accuracy" in theirs.history.columns


def write(text):
    with open("experiment.toml", "w") as file:
        file.write(text)
    return "experiment.toml"


WRONG = {
    "a misspelt key": (('name = "speakers"', 'nam = "speakers"'), 28, "unknown key `nam`"),
    "nothing to test on": (
        ("train_labels = [5, 6, 7, 8, 9] }", "train_labels = [5, 6, 7, 8, 9], test_share = 1e-9 }"),
        30,
        "its test part is empty",
    ),
    "a weight of 0": (("weight = 0.5", "weight = 0"), 29, "`weight` is 0"),
    "an unknown partition": (('"iid", clients = 3', '"idd", clients = 3'), 31, "unknown partition"),
    "its own local training": (
        ("local = { learning_rate = 0.02", "local = { learning_rate = -1.0"),
        32,
        "learning_rate",
    ),
    "a cohort that is too large": (("size = 2", "size = 9"), 25, "9 clients are asked for"),
    "the same name": (('name = "speakers"', 'name = "phones"'), 22, "two populations are called"),
    "another number": (
        ('name = "population_transfer"', 'name = "population_transfer"\npopulations = 3'),
        39,
        "populations=3, and the clients are of 2",
    ),
    "another model": (
        ("weight = 0.5", 'weight = 0.5\nmodel = { name = "mlp", hidden = [3] }'),
        22,
        "let all train the same parameters",
    ),
    "what is not measured": (("speakers_accuracy", "speakers_acuracy"), 2, "is not measured"),
    "whose data the server has": (
        ("[[algorithm]]", "[server]\nexamples = 20\n\n[[algorithm]]"),
        34,
        'add population = "phones"',
    ),
    "an unknown population": (
        ("[[algorithm]]", '[server]\nexamples = 20\npopulation = "phone"\n\n[[algorithm]]'),
        36,
        "did you mean `phones`?",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_with_its_line(folder, name):
    (old, new), line, words = WRONG[name]
    assert old in FILE
    said = refused(FILE.replace(old, new, 1), "--dry-run")
    assert words in said
    assert f"experiment.toml, line {line}:" in said


def test_the_server_has_data_of_a_population(folder):
    section = '[server]\nexamples = 20\npopulation = "speakers"\n\n[[algorithm]]'
    text = FILE.replace("[[algorithm]]", section, 1).replace("population_transfer", "fedavg_plus")
    made = study(read(write(text + "gamma = 0.5\n")))
    source = made.methods[1].server.source
    assert source.population == 1
    assert set(np.unique(source.examples.y)) <= {5, 6, 7, 8, 9}
    sizes = [int(d.train.y.size) for d in made.datasets]
    assert made.clients.sizes.sum() == sum(sizes) - 20
    assert "fedavg_plus" in holdfast("run", "experiment.toml", "--dry-run")
    holdfast("run", "experiment.toml", "--out", "run")
