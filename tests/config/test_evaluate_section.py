"""What a file may say about what is measured: test sets, evaluators by name, adapted models."""

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read
from holdfast.runs import results
from holdfast.runs.compare import notes

FILE = """\
rounds = 2

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 5
concentration = 0.5

[model]
name = "softmax_regression"

[local]
learning_rate = 0.1
steps = 3
batch_size = 20

[[algorithm]]
name = "fedavg"
weighting = "uniform"

[[algorithm]]
name = "reptile"
"""


def made(tmp_path, text="", changes=()):
    path = tmp_path / "e.toml"
    path.write_text(FILE + text)
    return study(read(path, list(changes)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of the file as it is."""
    place = tmp_path_factory.mktemp("adapted")
    (place / "e.toml").write_text(FILE)
    words = ["run", str(place / "e.toml"), "--out", str(place / "out"), "--no-report"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return place / "out", result.output


def test_reptile_is_judged_by_what_it_deploys(run):
    path, said = run
    found = results.load([path])
    assert found.metric == "personal_accuracy"
    fedavg, reptile = (m.histories[0] for m in found.methods)
    # The same server's model to the last digit, but not what clients use.
    assert fedavg["accuracy"].tolist() == reptile["accuracy"].tolist()
    assert reptile["personal_accuracy"][-1] > fedavg["personal_accuracy"][-1] + 0.02
    clients = [np.mean(m.clients[0]["accuracy"]) for m in found.methods]
    assert clients[1] == pytest.approx(reptile["personal_accuracy"][-1])
    assert clients[0] == pytest.approx(fedavg["personal_accuracy"][-1])
    told = "reptile: clients' own models are taken after 3 steps of 0.1 on their own data."
    assert told in notes(found, found.methods[0])
    assert "reptile: clients' own models" in " ".join(said.split())
    by_server = results.load([path], metric="accuracy")
    assert "accuracy is of the server's model" in " ".join(notes(by_server, found.methods[0]))
    described = json.loads((path / "methods.json").read_text())["methods"]
    assert [m.get("adapt") for m in described] == [None, "3 steps of 0.1"]


def test_the_run_of_a_file_and_python_agree(run, tmp_path):
    path, _ = run
    given = made(tmp_path)
    experiment = given.experiment(given.methods[1], 0)
    python = hf.simulate(dataclasses.replace(experiment, evaluate=None), rounds=2)
    own = [hf.evaluate.measure(given.model, python.personal(i), given.tests[i]) for i in range(5)]
    written = results.load([path]).methods[1].histories[0]["personal_accuracy"][-1]
    assert np.mean([o["accuracy"] for o in own]) == pytest.approx(written)


ALONE = FILE.replace('name = "reptile"', 'name = "local_only"').replace("steps = 3", "epochs = 3")


def test_who_trains_alone_is_judged_by_what_it_has(tmp_path):
    (tmp_path / "e.toml").write_text(ALONE)
    words = ["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "out"), "--no-report"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = results.load([tmp_path / "out"])
    assert found.metric == "personal_accuracy"
    fedavg, alone = found.methods
    # The server's model is as it began; clients' own are not.
    assert alone.last("accuracy").mean < 0.2
    assert alone.last(found.metric).mean > 0.6
    assert alone.last(found.metric).mean == pytest.approx(np.mean(alone.clients[0]["accuracy"]))
    assert fedavg.last(found.metric).mean == pytest.approx(np.mean(fedavg.clients[0]["accuracy"]))
    by_server = results.load([tmp_path / "out"], metric="accuracy")
    said = " ".join(notes(by_server, fedavg))
    assert "local_only: accuracy is of the server's model, and clients use models of" in said


@pytest.mark.parametrize(
    "method",
    [
        'name = "flix"\nalpha = 0.5\nsolver = { name = "LBFGS", tolerance = 0.1 }',
        'name = "flix"\nalpha = [0.5, 0.5, 1.0, 1.0, 0.0]',
        'name = "fomaml"',
    ],
)
def test_every_personal_method_is_judged_by_what_it_deploys(method, tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(FILE.replace('name = "reptile"', method))
    given = study(read(path))
    assert (given.metric, given.measures_clients) == ("personal_accuracy", True)


@pytest.mark.parametrize(
    "method",
    ["scaffold", "centralised", "fedadam", 'feddc"\nalpha = "0.1', 'fedsplit"\nstep_size = "0.1'],
)
def test_who_leaves_clients_the_servers_model_is_judged_by_that(method, tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(FILE.replace('"reptile"', f'"{method}"').replace('"0.1"', "0.1"))
    given = study(read(path))
    assert (given.metric, given.measures_clients) == ("accuracy", False)


def test_adapt_for_all_for_one_and_for_nobody(tmp_path):
    plain = made(tmp_path)
    assert [m.algorithm.adapt for m in plain.methods] == [False, True]
    everyone = made(tmp_path, changes=["evaluate.adapt={ steps = 7 }"])
    # What is not said is as in training.
    for method in everyone.methods:
        assert method.algorithm.adapt == dataclasses.replace(method.local, steps=7)
        assert method.adapt == "7 steps of 0.1"
    changes = ["algorithm.fedavg.adapt={ epochs = 1, learning_rate = 0.5 }"]
    one = made(tmp_path, changes=[*changes, "algorithm.reptile.adapt=false"])
    adapt = one.methods[0].algorithm.adapt
    assert (adapt.steps, adapt.epochs, adapt.learning_rate, adapt.batch_size) == (None, 1, 0.5, 20)
    assert one.methods[1].algorithm.adapt is False
    nobody = made(tmp_path, changes=["evaluate.adapt=false"])
    assert not any(m.algorithm.adapt for m in nobody.methods)
    assert (nobody.metric, nobody.measures_clients) == ("accuracy", False)
    quiet = made(tmp_path, changes=["evaluate.personal=false"])
    assert (quiet.metric, quiet.measures_clients) == ("accuracy", False)


MORE = """
[evaluate]
every = 2
personal = false

[[evaluate.test]]
name = "seen"
data = { name = "digits", only_examples = 50 }
part = "train"

[[evaluate.also]]
name = "dissimilarity"
federated = 0.75
central = 0.25
every = 1

[[evaluate.also]]
name = "client_average"
on = "seen"

[[evaluate.also]]
name = "personal"
on = "seen"
latest = true
adapt = { learning_rate = 0.2, steps = 2 }
label = "tuned"

[[evaluate.also]]
name = "track_curvature"
sample = 4
points = 0
"""


def test_a_second_test_set_and_every_evaluator_by_name(tmp_path):
    given = made(tmp_path, MORE, ['metric="seen_accuracy"'])
    experiment = given.experiment(given.methods[0], 0)
    history = hf.simulate(experiment, rounds=2).history
    assert given.metric == "seen_accuracy"
    assert np.isfinite(history["G2_clients"]).all()
    assert np.isnan(history["accuracy"]).tolist() == [True, False]
    last = history[-1]
    for name in ("seen_accuracy", "seen_average_loss", "tuned_personal_accuracy", "smoothness"):
        assert np.isfinite(last[name]), name
    python = hf.simulate(
        dataclasses.replace(
            experiment,
            evaluate=[
                hf.evaluate.on(given.evaluators[1].examples, name="seen"),
                hf.diagnose.dissimilarity(0.75, 0.25),
            ],
        ),
        rounds=2,
    ).history[-1]
    for name in ("seen_accuracy", "G2_clients"):
        assert python[name] == last[name]
    bent = hf.diagnose.curvature(
        given.model, given.clients, hf.simulate(experiment, rounds=2).params, examples=4, points=0
    )
    assert last["smoothness"] == pytest.approx(bent.mean_smoothness, rel=1e-6)
    assert last["smoothness_max"] == pytest.approx(bent.smoothness.max(), rel=1e-6)


def test_an_evaluator_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting.py").write_text(COUNTING)
    text = '\n[[evaluate.also]]\nname = "counting.py:Examples"\non = "train"\n'
    given = made(tmp_path, text, ['metric="train_examples"'])
    history = hf.simulate(given.experiment(given.methods[0], 0), rounds=1).history
    assert history["train_examples"].tolist() == [1438]


COUNTING = """
import dataclasses
import holdfast as hf

@dataclasses.dataclass(frozen=True)
class Examples:
    examples: hf.Examples
    every: int = 1
    name: str = ""
    keeps_last_models = False

    def check(self, model, params, clients):
        assert clients == 5

    def __call__(self, view):
        return {f"{self.name}_examples": len(self.examples.y)}
"""

WRONG = {
    "a set of another shape": (
        '[[evaluate.test]]\nname = "other"\ndata = { name = "breast_cancer" }\n',
        27,
        "the model cannot take examples",
    ),
    "a name that is taken": (
        '[[evaluate.test]]\nname = "train"\ndata = { name = "digits" }\n',
        26,
        "give each a word of its own",
    ),
    "an unknown evaluator": (
        '[[evaluate.also]]\nname = "disimilarity"\n',
        26,
        "unknown evaluator `disimilarity`; did you mean `dissimilarity`?",
    ),
    "an unknown argument": (
        '[[evaluate.also]]\nname = "dissimilarity"\nfederatd = 0.5\n',
        27,
        "unknown key `federatd`",
    ),
    "a set that is not there": (
        '[[evaluate.also]]\nname = "on"\non = "validation"\n',
        27,
        "no test set is called `validation`",
    ),
    "what an evaluator has no use for": (
        '[[evaluate.also]]\nname = "dissimilarity"\non = "train"\n',
        27,
        "`dissimilarity` has no use for `on`",
    ),
    "steps and epochs to adapt": (
        "[evaluate]\nadapt = { epochs = 1, steps = 2 }\n",
        26,
        "epochs=1 and steps=2 are both given",
    ),
    "no steps to adapt": ("[evaluate]\nadapt = 3\n", 26, "expected true, false, or local steps"),
    "an evaluator that is never due": (
        '[[evaluate.also]]\nname = "dissimilarity"\nevery = 3\n',
        27,
        "`every` is 3 with 2 rounds",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_named_with_their_line(tmp_path, mistake):
    text, line, words = WRONG[mistake]
    with pytest.raises(ExperimentFileError) as caught:
        made(tmp_path, text)
    said = " ".join(str(caught.value).split())
    assert f"line {line}:" in said
    assert words in said


def test_pooled_data_is_nobodys_own(tmp_path):
    text = '\n[[algorithm]]\nname = "centralised"\n'
    with pytest.raises(ExperimentFileError, match="no client has data of its own"):
        made(tmp_path, text, ["evaluate.adapt=true"])
    made(tmp_path, text, ["evaluate.adapt=true", "algorithm.centralised.adapt=false"])
