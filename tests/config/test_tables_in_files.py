"""Tables in experiment files: paths beside them, names in what a run leaves, one preprocessing for all."""

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.config import build, examples
from holdfast.config.file import ExperimentFileError, read
from holdfast.data.stand_in import write_sites
from holdfast.runs.folder import RunFolder

pytest.importorskip("pandas")
FILE = """\
rounds = 2
partition = "natural"
model = "logistic_regression"
local = { learning_rate = 0.1, epochs = 1 }
[data]
name = "table"
path = "sites/*.csv"
label = "num"
positive = [1, 2, 3, 4]
na_values = { "*" = "?", chol = 0 }
missing = "median"
[[algorithm]]
name = "fedavg"
"""


@pytest.fixture
def site_files(folder):
    """Files of four sites beside an experiment file, in a folder that is not the current one."""
    there = folder / "study"
    write_sites(there / "sites")
    return there


def written(place, text=FILE):
    path = place / "experiment.toml"
    path.write_text(text)
    return path


def holdfast(*words) -> str:
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_has_the_names_of_sites_and_classes(site_files, folder, monkeypatch):
    experiment = written(site_files)
    shown = holdfast("run", experiment, "--dry-run")
    assert "cleveland         242" in shown
    assert "classes are 0, 1/2/3/4" in shown
    holdfast("run", experiment, "--out", folder / "run", "--no-report")
    run = RunFolder.open(folder / "run")
    names = ["cleveland", "hungarian", "switzerland", "va"]
    assert run.split()["names"] == names
    assert run.split()["label_names"] == ["0", "1/2/3/4"]
    seed = run.seed_folder("fedavg", 0)
    assert seed.clients()["name"] == names
    # Paths of the copy are still those of the file, whatever the current folder.
    seed.sums_file.unlink()
    monkeypatch.chdir("/")
    holdfast("resume", folder / "run", "--no-report")
    assert seed.complete


def test_a_run_does_not_go_on_with_other_rows(site_files, folder):
    holdfast("run", written(site_files), "--out", folder / "run", "--no-report")
    RunFolder.open(folder / "run").seed_folder("fedavg", 0).sums_file.unlink()
    path = site_files / "sites" / "va.csv"
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join([lines[0], *(line.replace("1", "2", 1) for line in lines[1:])]) + "\n"
    )
    result = CliRunner().invoke(app, ["resume", str(folder / "run")])
    assert result.exit_code == 2
    assert "another" in result.output


def test_a_checkpoint_knows_the_preprocessing(tmp_path):
    data = hf.data.hospitals()
    clients, _ = data.natural()
    model, local = hf.models.logistic_regression(), hf.Local(0.1, steps=1)
    settings = {"rounds": 1, "checkpoint": hf.Checkpoint(tmp_path)}
    hf.simulate(hf.algorithms.fedavg(), model, clients, local, **settings)
    made = data.preprocessing
    age = dataclasses.replace(made.inputs[0], fill=1.0)
    other = dataclasses.replace(made, inputs=(age, *made.inputs[1:]))
    # The same training rows, none of which misses its age; a new one might.
    changed = dataclasses.replace(clients, preprocessing=other)
    with pytest.raises(hf.HoldfastError, match="another preprocessing"):
        hf.simulate(hf.algorithms.fedavg(), model, changed, local, **settings)


def test_the_server_and_other_test_sets_get_the_preprocessing_of_the_clients(site_files):
    keys = 'name = "table", path = "sites/va.csv", label = "num", positive = [1, 2, 3, 4], test_share = 0.0'
    wanted = f'{{ {keys}, na_values = {{ "*" = "?", chol = 0 }}, missing = "median" }}'
    text = FILE.replace("[[algorithm]]", f"[server]\ndata = {wanted}\n[[algorithm]]", 1)
    text = text.replace(
        "[server]", f'[[evaluate.test]]\nname = "va"\npart = "train"\ndata = {wanted}\n[server]'
    )
    text = text.replace('"fedavg"', '"fedavg_plus"\ngamma = 0.1')
    study = build.study(read(written(site_files, text)))
    (data,) = study.datasets
    clients, tests = data.natural()
    mine = np.concatenate([clients[3].x, tests[3].x])
    found = study.server.source.x
    assert np.array_equal(np.unique(found, axis=0), np.unique(mine, axis=0))
    (also,) = (e for e in study.evaluators if getattr(e, "name", "") == "va")
    assert np.array_equal(also.examples.x, found)


def test_one_model_does_not_take_scaled_and_raw_rows(site_files):
    np.savez(site_files / "raw.npz", x=np.ones((4, 13)), y=np.arange(4) % 2)
    text = FILE.replace(
        "[[algorithm]]",
        '[[evaluate.test]]\nname = "raw"\ndata = { name = "arrays", path = "raw.npz" }\n[[algorithm]]',
        1,
    )
    with pytest.raises(ExperimentFileError, match=r"line 14: .*these examples are not"):
        build.study(read(written(site_files, text)))


def test_populations_fitted_each_by_itself_are_refused(site_files):
    keys = 'name = "table", path = "sites/va.csv", label = "num", features = ["age"], positive = [1, 2, 3, 4]'
    own = f"{{ {keys} }}"
    text = FILE.replace('label = "num"\n', 'label = "num"\nfeatures = ["age"]\n')
    text = text.replace('partition = "natural"', 'partition = { name = "iid", clients = 2 }')
    text = text.replace(
        "[[algorithm]]",
        f'[[population]]\nname = "all"\n[[population]]\nname = "va"\ndata = {own}\n[[algorithm]]',
        1,
    )
    with pytest.raises(
        ExperimentFileError, match=r"tables of all and va were scaled and encoded each"
    ):
        build.study(read(written(site_files, text)))


def test_weights_of_classes_in_a_file(site_files):
    study = build.study(
        read(written(site_files, FILE.replace("missing =", 'class_weight = "balanced"\nmissing =')))
    )
    assert study.model.name.startswith("class_weighted(logistic_regression")
    counts = np.bincount(study.datasets[0].train.y)
    assert study.datasets[0].class_weights == pytest.approx(counts.sum() / (2 * counts))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"sites/*.csv"', '"site/*.csv"'), r"line 7: .*no file fits site/\*\.csv"),
        (
            ('missing = "median"', 'missing = "mode"'),
            r"line 11: `missing` is \"mode\".*'mean', 'median'",
        ),
        (('missing = "median"', 'missin = "median"'), r"line 11: unknown key `missin`.*`missing`"),
        (('missing = "median"', ""), r"column `trestbps` is missing and"),
        (("positive = [1, 2, 3, 4]", "positive = [5]"), r"line 9: .*no row has '5' in `num`"),
        (
            ('missing = "median"', 'missing = "median"\nleave_out = "hungary"'),
            r"line 12: .*did you mean `hungarian`",
        ),
        (
            ('missing = "median"', 'missing = "median"\npreprocessing = {}'),
            r"unknown key `preprocessing`",
        ),
    ],
)
def test_mistakes_are_named_with_their_line(site_files, change, message):
    with pytest.raises(ExperimentFileError, match=message):
        build.study(read(written(site_files, FILE.replace(*change))))


def test_groups_are_not_torn_by_validation_drawn_at_random(site_files):
    text = FILE.replace("missing =", 'group = "age"\nmissing =')
    torn = text.replace("[data]", "evaluate = { validation = 0.1 }\n[data]")
    with pytest.raises(ExperimentFileError, match=r"say validation_share = 0\.1 in \[data\]"):
        build.study(read(written(site_files, torn)))
    whole = text.replace("missing =", "validation_share = 0.1\nmissing =")
    (data,) = build.study(read(written(site_files, whole))).datasets
    assert data.ordered
    assert len(data.validation.y) > 50


@pytest.mark.parametrize("design", ['leave_out = "va"', "unseen = 0.25"])
def test_sites_that_train_nothing_are_in_the_results_by_name(site_files, folder, design):
    text = FILE.replace("missing =", f"{design}\nmissing =").replace("rounds = 2", "rounds = 1")
    holdfast("run", written(site_files, text), "--out", folder / "run", "--no-report")
    found = json.loads((folder / "run/methods/fedavg/seed-0/clients.json").read_text())
    assert len(found["name"]) == 1
    assert found["examples"] == [0]
    assert "va" in found["name"] or design.startswith("unseen")


def test_the_template_of_hospitals_is_short_and_valid(folder):
    assert len(examples.text("hospitals").splitlines()) <= 25
    holdfast("new", "trial/mine.toml", "--example", "hospitals")
    study = build.study(read("trial/mine.toml"))
    assert study.clients.names == ("cleveland", "hungarian", "switzerland", "va")
    result = CliRunner().invoke(app, ["new", "trial/other.toml", "--example", "hospitals"])
    assert result.exit_code == 2
    assert "exists already, and made-up hospitals would go there" in result.output
