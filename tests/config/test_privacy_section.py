"""`[privacy]`: noise for every method of a file, the guarantee in the run folder and in the report."""

import dataclasses

import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read
from holdfast.report.content import content
from holdfast.runs.folder import RunFolder
from holdfast.runs.results import load

pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
FILE = """
rounds = 5
[data]
name = "breast_cancer"
[partition]
name = "iid"
clients = 12
[model]
name = "logistic_regression"
[local]
learning_rate = 0.1
steps = 2
[cohort]
name = "bernoulli"
probability = 0.5
[privacy]
clip = 0.5
delta = 1e-3
noise_multiplier = 2.0
epsilon = 2.0
accountant = "rdp"
[[algorithm]]
name = "feddyn"
alpha = 0.1
[[algorithm]]
name = "local_only"
"""


def made(tmp_path, *changes):
    (tmp_path / "e.toml").write_text(FILE)
    return study(read(tmp_path / "e.toml", list(changes)))


def test_the_guarantee_is_in_the_folder_and_in_the_report(tmp_path):
    given = made(tmp_path)
    out = tmp_path / "out"
    command = ["run", str(tmp_path / "e.toml"), "--out", str(out), "--no-report"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    folder = RunFolder.open(out)
    private, alone = (folder.seeds(m.folder)[0] for m in given.methods)
    assert alone.privacy() == {}
    python = hf.simulate(given.experiment(given.methods[0], 0), given.rounds)
    told = private.privacy()
    assert told == dataclasses.asdict(python.privacy)
    history = private.history()
    # The budget is for fewer rounds than the file has.
    assert told["rounds"] == len(history) == python.state.round < 5
    assert history["epsilon"][-1] == told["epsilon"] <= 2.0
    assert "budget is spent" in python.stopped
    assert told["noise_in_mean"] == pytest.approx(2.0 * 0.5 / 6)
    again = CliRunner().invoke(app, ["resume", str(out)], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert private.privacy() == told
    said = content(load([out]))["privacy"]
    (words,) = said["words"]
    assert words["methods"] == [0]
    assert told["sentence"] in words["text"]
    assert "over 6 expected clients" in words["text"]
    cells = dict(zip(said["columns"], said["rows"][0], strict=True))
    assert cells["epsilon"]["value"] == told["epsilon"]
    assert cells["over"]["text"] == f"{told['rounds']} rounds"
    # Nothing of training alone leaves a client.
    assert said["rows"][1] is None


def test_noise_is_found_for_the_rounds_of_the_file(tmp_path):
    (tmp_path / "e.toml").write_text(FILE.replace("noise_multiplier = 2.0\n", ""))
    given = study(read(tmp_path / "e.toml", []))
    wire = given.methods[0].algorithm.wire
    assert (wire.rounds, wire.epsilon, wire.noise_multiplier) == (5, 2.0, None)


def test_local_noise_of_every_reply(tmp_path):
    text = FILE.replace("noise_multiplier = 2.0", 'noise = "local"').replace(" 2.0", " 9.0", 1)
    (tmp_path / "e.toml").write_text(text)
    out = tmp_path / "out"
    command = ["run", str(tmp_path / "e.toml"), "--out", str(out), "--no-report"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    folder = RunFolder.open(out)
    told = folder.seeds(study(read(tmp_path / "e.toml", [])).methods[0].folder)[0].privacy()
    # Noise was found for a client that is there in all five rounds, and nobody was.
    assert 0 < told["rounds"] <= 5
    assert told["noise_in_reply"] == told["noise_multiplier"] * 0.5
    (said,) = content(load([out]))["privacy"]["words"]
    assert "towards the server too" in said["text"]
    assert "in every number of every reply" in said["text"]


def test_noise_in_every_step_for_examples(tmp_path):
    text = FILE.replace("clip = 0.5", 'unit = "example"\nclip = 0.5').replace(
        "steps = 2", "batch_size = 8"
    )
    (tmp_path / "e.toml").write_text(text)
    given = study(read(tmp_path / "e.toml", ["privacy.delta=1e-4"]))
    dyn, alone = given.methods
    assert alone.local.private is None  # nothing leaves a client
    assert dyn.local.private.clip == 0.5
    out = tmp_path / "out"
    command = [
        "run",
        str(tmp_path / "e.toml"),
        "--out",
        str(out),
        "--no-report",
        "--set",
        "privacy.delta=1e-4",
    ]
    command += ["--set", "privacy.epsilon=9.0"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    told = RunFolder.open(out).seeds(dyn.folder)[0].privacy()
    assert told["unit"] == "example"
    assert told["noise_in_step"] == pytest.approx(2.0 * 0.5 / 8)
    (said,) = content(load([out]))["privacy"]["words"]
    assert "for each of its examples" in said["text"]
    assert "in every number of the gradient of a local step" in said["text"]
    for change, message in (
        ("privacy.secret='s'", "is for unit"),
        ("privacy.noise='local'", "is for unit"),
        ("privacy.delta=0.5", "delta=0.5, and a client has"),
        ("algorithm.feddyn.adapt=true", "takes further steps"),
        ("local.private=1", "unknown key `private`"),
    ):
        with pytest.raises(ExperimentFileError, match=message):
            study(read(tmp_path / "e.toml", ["privacy.delta=1e-4", change]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("privacy.delta=0.5", "delta=0.5 for 12 clients"),
        ("privacy.clipp=1.0", "unknown key `clipp`"),
        ("privacy.clip=0", "clip"),
        ("privacy.replies=3", "is for noise"),
        ('privacy={noise="local",clip=1.0,delta=1e-3,epsilon=8.0,secret="s"}', "is for noise"),
        ('cohort={name="schedule",rounds=[[0,1]]}', "no account of that is known"),
        ("algorithm.feddyn.weighting='examples'", "without a cap"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, change, message):
    with pytest.raises(ExperimentFileError, match=message):
        made(tmp_path, change)


def test_noise_that_is_taken_back_is_in_files(tmp_path):
    turns = str([[k, k + 4, k + 8] for k in range(4)])
    changes = [f'cohort={{ name = "schedule", rounds = {turns} }}', "privacy.correlated.bands=2"]
    with pytest.raises(ExperimentFileError, match="accountant='rdp'"):
        made(tmp_path, *changes)
    given = made(
        tmp_path, *changes, "privacy={ clip = 0.5, delta = 1e-3, epsilon = 9.0, correlated = {} }"
    )
    wire = given.methods[0].algorithm.wire
    assert wire.rounds == 5
    assert wire.correlated == hf.privacy.Banded()
    with pytest.raises(ExperimentFileError, match='`correlated` is for noise = "central"'):
        made(tmp_path, *changes, 'privacy.noise="local"')
