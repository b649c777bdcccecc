"""From a file to a folder, and what is read from it."""

import csv
import dataclasses
import io
import json
import re
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.config import catalogue, examples
from holdfast.config.file import locate, read
from holdfast.metrics import Spread
from holdfast.record.history import History
from holdfast.runs import results
from holdfast.runs.folder import RunFolder

FILE = """\
# what is tried here
rounds = 4
seeds = [3, 5]
target = 0.5

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 5
concentration = 0.5

[model]
name = "softmax_regression"

[local]
learning_rate = { schedule = "exponential", value = 0.2, decay = 0.9 }
batch_size = 50

[evaluate]
train = true

[[algorithm]]
name = "fedavg"
weighting = "uniform"

[[algorithm]]
name = "fedprox"
mu = [0.0, 0.0, 0.0, 0.0, 0.0]   # one per client: FedAvg again
label = "none <pulled>"
"""


def holdfast(*words) -> str:
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a finished run, and what was said while it ran."""
    place = tmp_path_factory.mktemp("runs")
    (place / "experiment.toml").write_text(FILE)
    said = holdfast("run", place / "experiment.toml", "--out", place / "out", "--set", "rounds=3")
    return place / "out", said


def test_a_run_is_a_folder(made):
    path, said = made
    folder = RunFolder.open(path)
    for name in ("experiment.toml", "environment.json", "split.json", "log.txt", "report.html"):
        assert (path / name).stat().st_size > 0
    assert folder.environment()["packages"]["jax"]
    assert np.array(folder.split()["counts"]).sum() == 1438
    assert [m["label"] for m in folder.description()["methods"]] == ["fedavg", "none <pulled>"]
    for method in folder.description()["methods"]:
        seeds = folder.seeds(method["folder"])
        assert [s.seed for s in seeds] == [3, 5]
        for seed in seeds:
            history = seed.history()
            assert history["round"].tolist() == [1, 2, 3]
            assert {"accuracy", "loss", "train_loss", "bytes_up", "seconds"} <= set(history.columns)
            assert len((seed.path / "ledger.jsonl").read_text().splitlines()) == 3
            assert seed.clients()["client"] == [0, 1, 2, 3, 4]
            assert set(seed.params()) == {"classifier/bias", "classifier/kernel"}
            # Ten classes are about as likely before the first round.
            assert seed.start()["loss"] == pytest.approx(np.log(10), rel=0.2)
            assert seed.start()["loss"] > history["loss"][0]
            assert {"accuracy", "train_loss"} <= set(seed.start())
            assert seed.complete
    assert "report.html" in said


def test_the_file_is_kept_as_used(made):
    path, _ = made
    text = (path / "experiment.toml").read_text()
    assert "rounds = 3" in text
    assert "# what is tried here" in text
    assert read(path / "experiment.toml").values["rounds"] == 3


def test_numbers_of_the_file_reach_the_method(made):
    # With the same weights and no pull, the two methods are the same, up to their weighting.
    path, _ = made
    folder = RunFolder.open(path)
    one, two = (folder.seeds(m["folder"])[0] for m in folder.description()["methods"])
    assert one.history()["loss"][0] == pytest.approx(two.history()["loss"][0], rel=1e-2)
    assert one.history()["loss"][-1] < one.history()["loss"][0]


def test_a_folder_is_not_written_twice(made):
    path, _ = made
    result = CliRunner().invoke(
        app, ["run", str(path.parent / "experiment.toml"), "--out", str(path)]
    )
    assert result.exit_code == 2
    assert "exists already" in result.output


def test_resuming_what_is_complete_changes_nothing(made):
    path, _ = made
    file = path / "methods" / "fedavg" / "seed-3" / "params.safetensors"
    before = file.stat().st_mtime_ns
    assert "complete" in holdfast("resume", path)
    assert file.stat().st_mtime_ns == before


def test_compare(made, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path, _ = made
    said = holdfast("compare", path, "--target", 0.99, "--baseline", "fedavg")
    assert "> 3" in said
    said = holdfast("compare", path, "--metric", "train_loss", "--target", 100)
    row = next(line for line in said.splitlines() if "fedavg " in line)
    assert row.split()[1:3] == ["1±0", "1.00x"]  # a loss is reached from above, at once
    assert "2 methods to train_loss 100 (first evaluation there)" in said
    said = holdfast("compare", path, "--metric", "train_loss", "--target", 100, "--window", 2)
    assert "2 methods to train_loss 100 (mean of 2 evaluations)" in said
    row = next(line for line in said.splitlines() if "fedavg " in line)
    assert row.split()[1:3] == ["2±0", "1.00x"]
    assert "2.0±0.0" in row  # models transmitted: two rounds of FedAvg
    # A target is one of its metric.
    assert "2 methods by train_loss" in holdfast("compare", path, "--metric", "train_loss")
    result = CliRunner().invoke(app, ["compare", str(path), "--metric", "acuracy"])
    assert result.exit_code == 2
    assert "did you mean `accuracy`?" in " ".join(result.output.split())


def test_compare_writes_plain_numbers(made, tmp_path):
    path, _ = made
    said = holdfast("compare", path, "--target", 0.99, "--csv", tmp_path / "figures.csv")
    assert "…" not in said
    assert f"figures   {tmp_path / 'figures.csv'}\n" in said
    for name in ("rounds", "saving", "MB", "models", "seconds", "rise", "final"):
        assert f" {name}" in said
    alone = holdfast("compare", path, "--target", 0.99, "--csv", "-")
    assert alone == (tmp_path / "figures.csv").read_text()
    with open(tmp_path / "figures.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["fedavg", "none <pulled>"]
    assert (rows[0]["rounds"], rows[0]["rounds_more_than"], rows[0]["rounds_seeds"]) == (
        "",
        "3.0",
        "0",
    )
    assert rows[0]["models_more_than"] == "3.0"
    assert rows[0]["window"] == "1"


def test_two_folders_side_by_side(made):
    path, _ = made
    found = results.load([path, path])
    assert len(found.methods) == 4
    assert found.methods[0].label == "fedavg (out)"


def test_a_mean_is_only_of_all_seeds():
    assert Spread((3.0, 5.0)).mean == 4.0
    assert Spread((3.0, None)).mean is None
    assert Spread((3.0, 5.0)).deviation == pytest.approx(np.std([3, 5], ddof=1))


def test_a_seed_stopped_before_it_measured_anything(made):
    path, _ = made
    found = results.load([path]).methods[0]
    unmeasured = History(tuple({"round": r["round"]} for r in found.histories[0]))
    some = dataclasses.replace(found, histories=(found.histories[0], unmeasured))
    assert some.rounds_to(0.0, "accuracy").values == (1, None)
    assert some.last("accuracy").values[1] is None


def test_a_line_cut_short_by_a_kill_is_not_read(made, tmp_path):
    path, _ = made
    seed = RunFolder.open(path).seeds("fedavg")[0]
    copy = tmp_path / "seed-3"
    copy.mkdir()
    for name in ("history.jsonl", "timing.jsonl"):
        (copy / name).write_text((seed.path / name).read_text()[:-9])
    assert len(type(seed)(copy).history()) == 2


def test_a_method_that_diverges_is_said_and_does_not_stop_the_others(tmp_path):
    (tmp_path / "e.toml").write_text(FILE)
    only = ["--set", "seeds=1", "--set", "rounds=3", "--no-report"]
    only += [
        "--set",
        "local.learning_rate=0.1",
        "--set",
        "algorithm.fedavg.local.learning_rate=9e37",
    ]
    result = CliRunner().invoke(
        app, ["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "o"), *only]
    )
    assert result.exit_code == 1
    assert "failed: round 1: not one of 5 clients" in result.output
    found = results.load([tmp_path / "o"])
    assert [m.label for m in found.methods] == ["none <pulled>"]  # the other has no round to show


def test_every_example_is_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["age,pressure,diagnosis,hospital"]
    rng = np.random.default_rng(0)
    rows += [
        f"{a:.2f},{b:.2f},{int(a > 0)},h{i % 3}"
        for i, (a, b) in enumerate(rng.normal(size=(60, 2)))
    ]
    (tmp_path / "patients.csv").write_text("\n".join(rows) + "\n")
    for name in examples.names():
        holdfast("new", f"{name}.toml", "--example", name)
        assert "methods" in holdfast("run", f"{name}.toml", "--dry-run")
    result = CliRunner().invoke(app, ["new", "digits.toml"])
    assert result.exit_code == 2
    assert "exists already" in result.output


def test_every_name_is_listed_and_explained():
    listed = holdfast("list")
    for kind, names in catalogue.KINDS.items():
        assert catalogue.TITLES[kind] in listed
        for name in names:
            assert re.search(rf"^\s*{name}\b", listed, re.MULTILINE), name
            page = catalogue.page(kind, name)
            assert page.title, f"{kind} {name} has no first line"
            if kind == "algorithm":
                assert page.equation, name
                assert page.travels, name
                assert page.example, name
    said = holdfast("show", "feddyn")
    for words in ("alpha", "Acar et al.", "[[algorithm]]", "hf.algorithms.feddyn(alpha"):
        assert words in said
    result = CliRunner().invoke(app, ["show", "feddynn"])
    assert result.exit_code == 2
    assert "did you mean `feddyn`?" in result.output


def test_lines_of_keys():
    text = 'a = 1\n[b]\nc = [\n  1,\n  2,\n]\nd = """\nx = 1\n"""\n'
    text += "[[e]]\nf = 1\n[[e]]\n[e.g]\nh = { i = 2 }\n"
    lines = locate(text)
    assert lines["a",] == 1
    assert lines["b", "c"] == 3
    assert lines["b", "d"] == 7
    assert ("b", "x") not in lines
    assert lines["e", 0, "f"] == 11
    assert lines["e", 1] == 12
    assert lines["e", 1, "g", "h", "i"] == 14


def test_a_dumb_terminal_is_no_wider_than_it_is(made, monkeypatch):
    """Such as that of an editor: 80 columns whatever is asked for, and methods stand in all tables."""
    from rich.console import Console

    from holdfast.runs.compare import table

    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes a terminal of a file
    console = Console(file=io.StringIO())
    console.print(table(results.load([made[0]]), console=console))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("fedavg" in line for line in lines) >= 2
    assert "…" not in console.file.getvalue()


def test_changes_from_the_command_line(tmp_path):
    (tmp_path / "e.toml").write_text(FILE)
    changes = ("algorithm.fedavg.weighting=examples", "local.batch_size=7", "cohort.name=everyone")
    file = read(tmp_path / "e.toml", changes)
    assert file.values["algorithm"][0]["weighting"] == "examples"
    assert file.values["cohort"] == {"name": "everyone"}
    again = tmp_path / "again.toml"
    again.write_text(file.as_used())
    assert read(again).values == file.values


def test_sinks_get_every_round(tmp_path):
    pytest.importorskip("tensorboardX")
    from holdfast.runs.sinks import open_sink

    with ExitStack() as until:
        sink = open_sink("tensorboard", tmp_path, until)
        for t in (1, 2):
            sink("fedavg", 0, {"round": t, "accuracy": 0.5 * t, "clients": 3})
    events = list((tmp_path / "tensorboard" / "fedavg, seed 0").iterdir())
    assert len(events) == 1
    assert b"accuracy" in events[0].read_bytes()


@pytest.mark.parametrize(
    ("name", "package", "address", "said"),
    [
        (
            "tensorboard",
            "tensorboardX",
            "",
            "{0}/tensorboard; look at it with: tensorboard --logdir",
        ),
        (
            "mlflow",
            "mlflow",
            "sqlite:///a.db",
            "with: mlflow ui --backend-store-uri sqlite:///a.db",
        ),
        ("mlflow", "mlflow", "http://host:5000", "experiment `here` at http://host:5000; look"),
        ("wandb", "wandb", "", "project `here` of your account; look at it at https://wandb.ai"),
        ("wandb", "wandb", "offline", "{0}/wandb; look at it after: wandb sync {0}/wandb/offline-"),
    ],
)
def test_tracking_says_where_to_and_how_to_look(
    name, package, address, said, tmp_path, monkeypatch
):
    """With stand-ins for the packages, of which only what is asked here is used."""
    from holdfast.runs.sinks import where

    library = SimpleNamespace(get_tracking_uri=lambda: address)
    monkeypatch.setitem(sys.modules, package, library)
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    monkeypatch.setenv("WANDB_MODE", address)
    folder = tmp_path / "here"
    assert said.format(folder) in where(name, folder)


def test_a_sink_that_is_not_there_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    (tmp_path / "e.toml").write_text(FILE)
    monkeypatch.setitem(sys.modules, "wandb", None)
    for name, what in (("tensorbord", "did you mean `tensorboard`"), ("wandb", "not installed")):
        words = ["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "out"), "--track", name]
        said = CliRunner().invoke(app, words)
        assert said.exit_code == 2
        assert what in said.output.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_the_environment_is_json(made):
    path, _ = made
    about = json.loads((path / "environment.json").read_text())
    assert about["command"]
    assert about["cores"] >= 1


OWN_MODEL = """\
import dataclasses
import holdfast as hf

def with_waste(classes: int, declared: bool = True):
    plain = hf.models.softmax_regression(classes)
    def metrics(params, batch):
        found = plain.measure(params, batch)
        return {"loss": found["loss"], "waste": 1 - found["accuracy"]}
    declared = {"waste": False} if declared else None
    return dataclasses.replace(plain, metrics=metrics, greater_is_better=declared)
"""


def own_model(place, declared):
    (place / "own.py").write_text(OWN_MODEL)
    model = f'name = "{place}/own.py:with_waste"\ndeclared = {str(declared).lower()}'
    text = FILE.replace('name = "softmax_regression"', model).replace("seeds = [3, 5]", "seeds = 1")
    file = place / "own.toml"
    file.write_text('metric = "waste"\n' + text.partition('\n\n[[algorithm]]\nname = "fedprox"')[0])
    return file


def test_a_declared_direction_is_kept_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "out"
    holdfast(
        "run", own_model(tmp_path, declared=True), "--out", out, "--trust", "--set", "rounds=2"
    )
    assert json.loads((out / "methods.json").read_text())["greater_is_better"] == {"waste": False}
    waste = results.load([out]).methods[0].histories[0]["waste"]
    assert waste[1] < waste[0]
    said = holdfast("compare", out, "--target", float(waste.mean()))
    row = next(line for line in said.splitlines() if line.startswith("  fedavg"))
    assert row.split()[1] == "2"


def test_a_target_of_an_unknown_direction_is_refused_before_the_first_round(tmp_path):
    file = own_model(tmp_path, declared=False)
    words = ["run", str(file), "--dry-run", "--trust"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "own.toml, line 1: metric `waste`: nobody said whether greater is better" in said
    file.write_text(file.read_text().replace("target = 0.5\n", ""))
    holdfast(*words)  # without a target it is not needed


def test_a_comparison_of_different_objectives_says_so(tmp_path):
    text = FILE.replace("seeds = [3, 5]", "seeds = 1").replace("rounds = 4", "rounds = 1")
    start = text.index("[[algorithm]]")
    both = text[:start] + '[[algorithm]]\nname = "fedavg"\n\n[[algorithm]]\nname = "scaffold"\n'
    (tmp_path / "both.toml").write_text(
        both.replace('"dirichlet"', '"lognormal"').replace("concentration = 0.5", "sigma = 1.0")
    )
    run = tmp_path / "run"
    words = r"minimise different means of their losses \(over examples: fedavg; over clients: scaffold\)"
    said = holdfast("run", tmp_path / "both.toml", "--out", run)
    # Before the first round, and below the table.
    assert len(re.findall(words, " ".join(said.split()))) == 2
    assert re.search(words, " ".join(holdfast("compare", run).split()))
    page = (run / "report.html").read_text("utf-8")
    assert re.search(words.replace("fedavg", "FedAvg").replace("scaffold", "SCAFFOLD"), page)
    said = holdfast(
        "run",
        tmp_path / "both.toml",
        "--out",
        tmp_path / "same",
        "--set",
        'algorithm.scaffold.weighting="examples"',
    )
    assert "different means" not in said
