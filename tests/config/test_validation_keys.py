"""What a file may say on choosing: examples set apart, early stopping, the round that is kept."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read
from holdfast.runs import results
from holdfast.runs.compare import notes
from holdfast.runs.folder import RunFolder

FILE = """\
rounds = 8
data = "breast_cancer"

[partition]
name = "iid"
clients = 4

[model]
name = "logistic_regression"

[local]
learning_rate = 5.0
steps = 10

[checkpoint]
every = 3

[evaluate]
validation = 0.2
patience = 2
choose_by = "validation_loss"

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "scaffold"
"""


def made(tmp_path, text=FILE, changes=()):
    (tmp_path / "e.toml").write_text(text)
    return study(read(tmp_path / "e.toml", list(changes)))


def holdfast(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("chosen")
    (place / "e.toml").write_text(FILE)
    return place / "out", holdfast("run", place / "e.toml", "--out", place / "out", "--no-report")


def test_results_are_of_the_round_that_is_kept(run, tmp_path):
    path, said = run
    found = results.load([path])
    given = made(tmp_path)
    for method, one in zip(given.methods, found.methods, strict=True):
        python = hf.simulate(given.experiment(method, 0), given.rounds)
        (files,) = RunFolder.open(path).seeds(method.folder)
        about = files.chosen()
        assert about["best_round"] == python.best_round == about["kept_round"] < python.state.round
        assert about["stopped"] == python.stopped
        assert (one.best_rounds, one.stopped) == ((python.best_round,), (python.stopped,))
        at = python.history["accuracy"][python.best_round - 1]
        assert one.last("accuracy").values == (at,)
        clients = [
            hf.evaluate.measure(given.model, python.params, given.tests[i])["accuracy"]
            for i in range(4)
        ]
        assert files.clients()["accuracy"] == clients
        for name, kept in files.params().items():
            assert np.array_equal(kept, python.params[name])
        told = f"{one.label}: round {python.best_round} kept, by validation_loss; 1 of 1 runs ended"
        assert any(note.startswith(told) for note in notes(found, found.methods[0]))
        assert f"round {python.best_round} of {python.state.round}, " in said


def test_resumed_it_is_the_same(run, tmp_path):
    path, _ = run
    shutil.copytree(path, tmp_path / "again")
    for seed in (tmp_path / "again").glob("methods/*/seed-0"):
        for name in ("complete.sha256", "chosen.json", "params.safetensors", "clients.json"):
            (seed / name).unlink()
        newest = sorted((seed / "checkpoints").glob("round-*"))[-1]
        newest.unlink()
    holdfast("resume", tmp_path / "again", "--no-report")
    for seed in path.glob("methods/*/seed-0"):
        other = tmp_path / "again" / seed.relative_to(path)
        for name in ("chosen.json", "params.safetensors", "clients.json", "history.jsonl"):
            assert (seed / name).read_bytes() == (other / name).read_bytes()


def test_what_is_set_apart_is_trained_on_by_nobody(tmp_path):
    plain = made(
        tmp_path, FILE.replace("validation = 0.2\npatience = 2\n", "").replace("choose_by", "#")
    )
    given = made(tmp_path)
    assert given.clients.sizes.sum() < plain.clients.sizes.sum()
    assert given.stop == hf.EarlyStopping("validation_loss", 2, "best")
    assert made(tmp_path, FILE.replace("choose_by", "#")).stop.metric == "validation_accuracy"
    with_auc = ['evaluate.metrics=["auc"]', "metric=auc"]
    assert made(tmp_path, FILE.replace("choose_by", "#"), with_auc).stop.metric == "validation_auc"
    last = made(tmp_path, changes=['evaluate.keep="last"'])
    assert last.stop.keep == "last"
    server = (
        FILE
        + '\n[server]\nclients = 2\neach = 5\n\n[[algorithm]]\nname = "fedavg_plus"\ngamma = 1.0\n'
    )
    apart = hf.data.set_apart(plain.clients, 0.2)[1]
    sent = made(tmp_path, server).server.source
    chosen = {tuple(row) for row in np.asarray(apart.examples.x)[apart.order].tolist()}
    assert not chosen & {tuple(row) for row in np.asarray(sent.x).tolist()}


def test_personal_methods_are_chosen_by_what_they_deploy(tmp_path):
    text = FILE.replace('"scaffold"', '"local_only"').replace("choose_by", "#")
    given = made(tmp_path, text)
    assert (given.metric, given.stop.metric) == (
        "personal_accuracy",
        "validation_personal_accuracy",
    )


def test_so_they_are_where_the_file_compares_by_the_servers_model(tmp_path):
    text = FILE.replace('"scaffold"', '"local_only"').replace("choose_by", "#")
    with_auc = ['evaluate.metrics=["auc"]', "metric=auc"]
    given = made(tmp_path, text, with_auc)
    assert (given.metric, given.stop.metric) == ("auc", "validation_personal_auc")
    assert made(tmp_path, text, ["metric=loss"]).stop.metric == "validation_personal_loss"
    with pytest.raises(ExperimentFileError, match="chooses by what clients use"):
        made(tmp_path, text, ["evaluate.personal=false"])
    said = ["evaluate.personal=false", "evaluate.choose_by=validation_loss"]
    assert made(tmp_path, text, said).stop.metric == "validation_loss"


POPULATIONS = """
[[population]]
name = "a"

[[population]]
name = "b"
"""


def test_of_several_populations(tmp_path):
    given = made(tmp_path, FILE + POPULATIONS)
    found = hf.simulate(given.experiment(given.methods[0], 0), given.rounds)
    names = {"validation_loss", "a_validation_loss", "b_validation_loss"}
    assert names <= set(found.history.columns)
    short = hf.simulate(given.experiment(given.methods[0], 0), found.best_round)
    assert np.array_equal(found.params["weights"], short.params["weights"])


def test_what_the_data_set_has(tmp_path):
    rows = [f"{i % 3},{i % 5},{'ab'[i % 2]},{i % 2}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["u,v,site,sick", *rows]))
    text = FILE.replace(
        'data = "breast_cancer"\n',
        "",
    ).replace(
        "[partition]",
        f'[data]\nname = "table"\npath = "{tmp_path}/t.csv"\nlabel = "sick"\n'
        'client = "site"\nvalidation_share = 0.2\n\n[partition]',
    )
    text = text.replace('name = "iid"\nclients = 4', 'name = "natural"').replace(
        "validation = 0.2\n", ""
    )
    given = made(tmp_path, text)
    assert given.stop.metric == "validation_loss"
    with pytest.raises(ExperimentFileError, match="examples to choose by already"):
        made(tmp_path, text, ["evaluate.validation=0.1"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["evaluate.choose_by=loss"], "which is not measured on examples set apart"),
        (["evaluate.choose_by=validation_lose"], "`validation_lose` is not measured; did you mean"),
        (["evaluate.validation=1.5"], "expected less than 1"),
        (["evaluate.patience=0"], "expected at least 1"),
        (["evaluate.keep=first"], "expected 'best' or 'last'"),
    ],
)
def test_what_cannot_be_chosen_by(changes, says, tmp_path):
    with pytest.raises(ExperimentFileError, match=says):
        made(tmp_path, changes=changes)


def test_nothing_is_chosen_by_test_examples(tmp_path):
    text = FILE.replace("validation = 0.2\n", "")
    with pytest.raises(
        ExperimentFileError, match=r"needs examples to choose by.*add validation = 0.1"
    ):
        made(tmp_path, text)
    swept = FILE.replace("validation = 0.2\npatience = 2\n", "").replace("choose_by", "#")
    swept = (
        swept.replace("rounds = 8", "rounds = 1")
        + '\n[sweep]\n"local.learning_rate" = [0.1, 1.0]\n'
    )
    (tmp_path / "s.toml").write_text(swept)
    said = holdfast("run", tmp_path / "s.toml", "--out", tmp_path / "s", "--no-report")
    assert "validation = 0.1 in [evaluate] sets others apart" in " ".join(said.split())
    said = holdfast(
        "run",
        tmp_path / "s.toml",
        "--out",
        tmp_path / "v",
        "--no-report",
        "--set",
        "evaluate.validation=0.1",
    )
    assert "sets others apart" not in " ".join(said.split())
    assert json.loads((tmp_path / "v" / "methods.json").read_text())["metric"] == "accuracy"
