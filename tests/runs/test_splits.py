"""The same study on several draws of its split."""

import shutil

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.runs import results
from holdfast.runs.folder import RunFolder
from holdfast.runs.verdict import verdict

FILE = """\
rounds = 2
seeds = 2

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 4
concentration = 0.5
splits = [3, 5]

[model]
name = "softmax_regression"

[local]
learning_rate = 0.2
batch_size = 50

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "local_only"
"""
SAME = ("history.jsonl", "ledger.jsonl", "clients.json", "params.safetensors")
SAME += ("predictions.safetensors",)


def holdfast(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("splits")
    (place / "e.toml").write_text(FILE)
    said = holdfast("run", place / "e.toml", "--out", place / "run")
    assert said.exit_code == 0, said.output
    return place / "run", said.output


def test_every_split_and_seed_is_a_run_of_its_own(made):
    path, said = made
    folder = RunFolder.open(path)
    found = folder.seeds("fedavg")
    assert [(s.split, s.seed) for s in found] == [(3, 0), (3, 1), (5, 0), (5, 1)]
    assert all(s.complete for s in found)
    assert len({s.params()["classifier/kernel"].tobytes() for s in found}) == 4
    assert "2 methods x 2 splits x 2 seeds = 8 runs" in said
    assert "fedavg, split 5, seed 1" in said
    assert folder.description()["splits"] == {
        "numbers": [3, 5],
        "tested_per_trained": pytest.approx(359 / 1438),
    }


def test_a_split_is_the_plain_run_with_its_seeds(made, tmp_path):
    path, _ = made
    (tmp_path / "e.toml").write_text(
        FILE.replace("splits = [3, 5]", "seed = 5").replace('"digits"', '"digits"\nseed = 5')
    )
    said = holdfast("run", tmp_path / "e.toml", "--out", tmp_path / "run", "--no-report")
    assert said.exit_code == 0, said.output
    for method in ("fedavg", "local_only"):
        for name in SAME:
            one = tmp_path / "run" / "methods" / method / "seed-1" / name
            other = path / "methods" / method / "split-5" / "seed-1" / name
            assert one.read_bytes() == other.read_bytes(), name


def test_one_split_has_the_old_layout(tmp_path):
    (tmp_path / "e.toml").write_text(FILE.replace("splits = [3, 5]", "repeats = 1"))
    said = holdfast("run", tmp_path / "e.toml", "--out", tmp_path / "run", "--no-report")
    assert said.exit_code == 0, said.output
    assert (tmp_path / "run" / "methods" / "fedavg" / "seed-0" / "complete.sha256").exists()
    assert "splits" not in RunFolder.open(tmp_path / "run").description()


def test_what_is_missing_of_a_split_is_run_again_to_the_same_bits(made, tmp_path):
    path, _ = made
    copy = tmp_path / "run"
    shutil.copytree(path, copy)
    place = copy / "methods" / "local_only" / "split-5"
    shutil.rmtree(place / "seed-1")
    (place / "seed-0" / "params.safetensors").write_bytes(b"damaged")
    said = holdfast("resume", copy, "--no-report")
    assert said.exit_code == 0, said.output
    assert "params.safetensors was missing or damaged" in said.output
    for seed in ("seed-0", "seed-1"):
        for name in SAME:
            whole = path / "methods" / "local_only" / "split-5" / seed / name
            assert (place / seed / name).read_bytes() == whole.read_bytes()


def test_deviations_over_splits_and_seeds_are_told_apart(made):
    path, said = made
    found = results.load([path])
    final = found.methods[0].last("accuracy")
    assert final.splits == (3, 3, 5, 5)
    values = final.values
    means = (values[0] + values[1]) / 2, (values[2] + values[3]) / 2
    assert final.over_splits == pytest.approx(abs(means[0] - means[1]) / 2**0.5)
    assert final.over_seeds > 0
    judged = verdict(found)
    assert (judged.gain.splits, judged.gain.seeds) == (2, 2)
    assert "over 4 clients and 2 splits" in judged.sentence
    assert judged.sentence in " ".join(said.split())
    # Client 0 of one draw is not client 0 of the other.
    assert all(site.gain is None for site in judged.sites)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("splits = [3, 5]", "splits = [3, 5]\nrepeats = 2"), "leave one of them out"),
        (("splits = [3, 5]", "splits = [3, 3]"), "give each once"),
        (("splits = [3, 5]", "splits = [3, 5]\nseed = 1"), "which are seeds; leave one out"),
        (('"digits"', '"digits"\nseed = 1'), "which are seeds; leave one out"),
        (("splits = [3, 5]", "repeats = 0"), "repeats"),
        (("splits = [3, 5]", "splits = [-1]"), "splits"),
    ],
)
def test_what_cannot_be_meant_is_refused_on_its_line(tmp_path, change, says):
    (tmp_path / "e.toml").write_text(FILE.replace(*change))
    said = holdfast("run", tmp_path / "e.toml", "--dry-run")
    assert said.exit_code == 2
    assert says in " ".join(said.output.split())
    assert "line " in said.output


def test_repeats_that_would_change_nothing_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import holdfast as hf\n\n\ndef data():\n    return hf.data.digits()\n"
    )
    file = FILE.replace('name = "digits"', 'name = "mine.py:data"')
    file = file.replace(
        'name = "dirichlet"\nclients = 4\nconcentration = 0.5\n', 'name = "in_order"\nclients = 4\n'
    )
    (tmp_path / "e.toml").write_text(file)
    said = holdfast("run", tmp_path / "e.toml", "--dry-run")
    assert said.exit_code == 2
    assert "split 5 is the same as split 3" in " ".join(said.output.split())


def test_points_of_a_sweep_are_run_on_every_split(tmp_path):
    file = FILE.replace("seeds = 2", "seeds = 1").replace("rounds = 2", "rounds = 1")
    file = file.replace('[[algorithm]]\nname = "local_only"\n', "")
    file += '\n[sweep]\n"local.learning_rate" = [0.1, 0.2]\n'
    (tmp_path / "e.toml").write_text(file)
    said = holdfast("run", tmp_path / "e.toml", "--out", tmp_path / "run", "--no-report")
    assert said.exit_code == 0, said.output
    found = results.load([tmp_path / "run"])
    assert [m.splits for m in found.methods] == [(3, 5), (3, 5)]
    assert "2 methods x 2 splits x 1 seed = 4 runs" in said.output


POPULATIONS = """
[[population]]
name = "one"

[[population]]
name = "two"
partition = { name = "iid", clients = 2 }
"""


def test_every_population_is_drawn_anew(tmp_path):
    first = FILE.replace('[[algorithm]]\nname = "local_only"\n', POPULATIONS)
    first = first.replace("seeds = 2", "seeds = 1").replace("rounds = 2", "rounds = 1")
    plain = first.replace("splits = [3, 5]", "seed = 5").replace('"digits"', '"digits"\nseed = 5')
    plain = plain.replace("clients = 2 }", "clients = 2, seed = 5 }")
    for name, text in (("several", first), ("plain", plain)):
        (tmp_path / f"{name}.toml").write_text(text)
        said = holdfast("run", tmp_path / f"{name}.toml", "--out", tmp_path / name, "--no-report")
        assert said.exit_code == 0, said.output
    for name in SAME:
        one = tmp_path / "several/methods/fedavg/split-5/seed-0" / name
        other = tmp_path / "plain/methods/fedavg/seed-0" / name
        assert one.read_bytes() == other.read_bytes(), name
    inside = first.replace("clients = 2 }", "clients = 2, repeats = 2 }")
    (tmp_path / "inside.toml").write_text(inside)
    said = holdfast("run", tmp_path / "inside.toml", "--dry-run")
    assert said.exit_code == 2
    assert "give it in [partition]" in " ".join(said.output.split())
