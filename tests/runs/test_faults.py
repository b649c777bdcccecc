"""Damaged results are written again, other versions are named, and a full disk is one line."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.errors import FileAccessError
from holdfast.record import checkpoint, files
from holdfast.record.lock import held
from tests.problems import tiny_clients
from tests.trials.run_folders import FILE

SEED = Path("methods/scaffold/seed-0")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("faults")
    (place / "file.toml").write_text(FILE.format(seeds="", storage="", sweep=""))
    said = holdfast("run", place / "file.toml", "--out", place / "whole", "--no-report")
    assert said.exit_code == 0, said.output
    return place / "whole"


@pytest.fixture
def run(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "run"))


def holdfast(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})


@pytest.mark.parametrize(
    "name",
    [
        "params.safetensors",
        "predictions.safetensors",
        "history.jsonl",
        "clients.json",
        "timing.jsonl",
        "ledger.jsonl",
    ],
)
def test_damaged_results_are_refused_by_readers_and_written_again_by_resume(whole, run, name):
    path = run / SEED / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    if name in ("history.jsonl", "clients.json", "timing.jsonl"):
        said = holdfast("compare", run)
        assert said.exit_code == 2
        assert (
            f"{path} is damaged (its checksum does not fit); `holdfast resume {run}`" in said.output
        )
    said = holdfast("resume", run, "--no-report")
    assert said.exit_code == 0, said.output
    assert f"{name} was missing or damaged; written again from the last save" in said.output
    assert f"{name} was missing or damaged" in (run / "log.txt").read_text()
    assert path.read_bytes() == (whole / SEED / name).read_bytes()
    assert "complete" in holdfast("resume", run, "--no-report").output


@pytest.mark.parametrize("name", ["methods.json", "split.json", "environment.json"])
def test_a_damaged_description_is_named_and_written_again(whole, run, name):
    path = run / name
    path.write_text(path.read_text().replace("}", "]", 1))
    said = holdfast("report", run)
    assert said.exit_code == 2
    assert f"{path} is damaged (" in said.output
    assert f"`holdfast resume {run}` writes it again" in said.output
    said = holdfast("resume", run, "--no-report")
    assert said.exit_code == 0, said.output
    assert f"{name} was missing or damaged; written again" in said.output
    if name != "environment.json":
        assert path.read_bytes() == (whole / name).read_bytes()


def test_another_experiment_file_is_refused_and_says_what_to_do(run):
    path = run / "experiment.toml"
    path.write_text(path.read_text().replace("rounds = 14", "rounds = 12"))
    for command in ("resume", "compare", "report"):
        said = holdfast(command, run)
        assert said.exit_code == 2
        assert "is not what the run was begun with" in said.output
        assert "restore it, or delete experiment.sha256" in said.output


def test_a_folder_with_an_experiment_file_and_no_run_is_refused_and_left_as_it_is(
    run, tmp_path, monkeypatch
):
    own = tmp_path / "own"
    own.mkdir()
    (own / "methods").mkdir()  # a user's own folder of that name
    shutil.copy(run / "experiment.toml", own)
    monkeypatch.chdir(own)
    for command in ("resume", "compare", "report"):
        said = holdfast(command, ".")
        assert said.exit_code == 2
        assert said.output.count("\n") == 1
        assert ". has an experiment.toml and no run" in said.output
        assert "`holdfast run experiment.toml`" in said.output
    assert sorted(p.name for p in own.rglob("*")) == ["experiment.toml", "methods"]


@pytest.mark.parametrize(
    "gone",
    [
        ("methods.json",),
        ("experiment.sha256",),
        ("methods.json", "experiment.sha256", "split.json", "environment.json", "log.txt"),
        ("methods", "methods.json", "split.json", "environment.json", "log.txt"),
    ],
    ids=" ".join,
)
def test_a_run_of_which_much_is_gone_is_still_a_run(whole, run, gone):
    for name in gone:
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        else:
            (run / name).unlink()
    said = holdfast("resume", run, "--no-report")
    assert said.exit_code == 0, said.output
    for name in (SEED / "params.safetensors", "methods.json", "split.json", "experiment.sha256"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_in_use_is_refused_with_its_own_exit_code(run):
    with held(run):
        for words in (("resume", run), ("run", run.parent / "file.toml", "--out", run)):
            if words[0] == "run":
                shutil.copy(run / "experiment.toml", words[1])
            said = holdfast(*words)
            assert said.exit_code == 75, said.output
            assert f"{run} is in use: process " in said.output


def test_a_report_that_cannot_be_written_is_one_line(run):
    (run.parent / "file").write_text("")
    for words in (
        ("report", run, "--out", run.parent / "file" / "page.html"),
        ("report", run, "--out", run),
        ("compare", run, "--csv", run.parent / "missing" / "table.csv"),
        ("new", run.parent / "missing" / "file.toml"),
    ):
        said = holdfast(*words)
        assert said.exit_code == 74, said.output
        assert len([line for line in said.output.splitlines() if line.startswith("error ")]) == 1
        assert ";" in said.output


def simulate(folder, rounds=4):
    model, local = hf.models.softmax_regression(3), hf.Local(0.1, steps=1, batch_size=4)
    saves = hf.Checkpoint(folder, every=1)
    method = hf.algorithms.scaffold()
    return hf.simulate(method, model, tiny_clients(), local, rounds=rounds, checkpoint=saves)


def test_a_full_disk_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    whole = simulate(tmp_path / "whole")
    count = 0

    def full(*given):
        nonlocal count
        count += 1
        if count > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return fsync(*given)

    fsync = files.os.fsync
    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full)
        with pytest.raises(
            FileAccessError, match=r"no space left on device; make room on the disk"
        ):
            simulate(tmp_path / "run")
    again = simulate(tmp_path / "run")
    for a, b in zip(*(r.params["classifier"].values() for r in (whole, again)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.ledger == whole.ledger


def test_other_versions_are_named_when_a_run_goes_on(tmp_path, monkeypatch):
    simulate(tmp_path, rounds=1)
    now = checkpoint.versions()
    monkeypatch.setattr(checkpoint, "versions", lambda: now | {"jax": "99.0", "numpy": "9.9"})
    with pytest.warns(hf.HoldfastWarning, match="saved with") as caught:
        simulate(tmp_path, rounds=2)
    said = str(caught[0].message)
    assert f"jax {now['jax']} (now 99.0), numpy {now['numpy']} (now 9.9)" in said
    assert "jaxlib" not in said


def test_what_was_killed_before_it_was_described_is_begun_again(run, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(run / "environment.json", begun)
    (begun / "split.json.partial").write_text("{")
    file = tmp_path / "file.toml"
    shutil.copy(run / "experiment.toml", file)
    said = holdfast("run", file, "--out", begun, "--no-report")
    assert said.exit_code == 0, said.output
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    said = holdfast("run", file, "--out", tmp_path / "other", "--no-report")
    assert said.exit_code == 2
    assert "exists already" in said.output
    assert json.loads((begun / "environment.json").read_text())["packages"]


@pytest.mark.parametrize("name", ["history.jsonl", "timing.jsonl"])
def test_a_changed_digit_of_an_unfinished_run_is_refused_where_a_save_has_the_round(run, name):
    (run / SEED / "complete.sha256").unlink()
    (run / SEED / "params.safetensors").unlink()
    assert holdfast("compare", run).exit_code == 0
    path = run / SEED / name
    lines = path.read_text().splitlines(keepends=True)
    # The first digit after a point: another seventeenth may be the same number.
    at = lines[4].rindex(".") + 1
    lines[4] = f"{lines[4][:at]}{(int(lines[4][at]) + 1) % 10}{lines[4][at + 1 :]}"
    path.write_text("".join(lines))
    for command in ("compare", "report"):
        said = holdfast(command, run)
        assert said.exit_code == 2, said.output
        assert f"{path} is damaged (round 5 is not that of the save)" in said.output
    assert holdfast("resume", run, "--no-report").exit_code == 0
    assert holdfast("compare", run).exit_code == 0
