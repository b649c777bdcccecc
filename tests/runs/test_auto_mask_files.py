"""`mask = "auto"` in an experiment file: chosen, written down, and kept when the run goes on."""

import json

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.engine import auto_mask
from holdfast.record.progress import Progress
from holdfast.runs.execute import create, execute

FILE = """\
rounds = 3
seeds = 2

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 4
concentration = 0.1

[model]
name = "mlp"
hidden = [4]

[local]
learning_rate = 0.1
steps = 2
batch_size = 20

[checkpoint]
every = 1

[[algorithm]]
name = "fedpvr"
mask = "auto"
"""
SAME = ("history.jsonl", "ledger.jsonl", "clients.json", "params.safetensors", "mask.json")


def begun(place):
    place.mkdir(exist_ok=True)
    path = place / "auto.toml"
    path.write_text(FILE)
    built = study(read(path))
    return create(built, place / "run"), built


def carried_out(folder, built):
    execute(built, folder, Progress(3, 2))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # With the first seed one layer, with the second both.
        answers = iter([1, 0])
        patch.setattr(auto_mask, "suggested", lambda diversity, clients: next(answers))
        return carried_out(*begun(tmp_path_factory.mktemp("whole")))


def holdfast(*words):
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_the_choice_is_in_the_folder(whole):
    for seed, first in ((0, 1), (1, 0)):
        mask = whole.seed_folder("fedpvr", seed).mask()
        assert mask.layers == ("hidden_0", "classifier")
        assert mask.first == first
    assert "seed 0: masked from classifier on" in (whole.path / "log.txt").read_text()
    said = holdfast("compare", whole.path)
    assert "by the drift of the first round masked from classifier on, 16.1% of the" in said
    assert (
        "parameters (seed 0); masked from hidden_0 on, 100.0% of the parameters (seed 1)." in said
    )


def test_a_dry_run_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(auto_mask, "chosen", None)
    path = tmp_path / "auto.toml"
    path.write_text(FILE)
    assert "fedpvr" in holdfast("run", path, "--dry-run")


def test_what_is_killed_or_damaged_ends_with_the_same_choice(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(auto_mask, "suggested", lambda diversity, clients: 1)
    folder, built = begun(tmp_path)
    seed = folder.seed_folder("fedpvr", 0)

    class KilledError(BaseException):
        pass

    written = type(seed).record

    def record(files, state):
        if state.round == 2:
            raise KilledError
        written(files, state)

    with monkeypatch.context() as until:
        until.setattr(type(seed), "record", record)
        with pytest.raises(KilledError):
            carried_out(folder, built)
    assert len(list(seed.checkpoints.glob("round-*"))) > 0
    assert seed.mask() is None
    # Had it to choose again, it would choose otherwise.
    answers = iter([0])
    monkeypatch.setattr(auto_mask, "suggested", lambda diversity, clients: next(answers))
    carried_out(folder, study(folder.experiment()))
    for name in SAME:
        for n in (0, 1):
            own, other = (f.seed_folder("fedpvr", n).path / name for f in (folder, whole))
            assert own.read_bytes() == other.read_bytes()
    (seed.path / "mask.json").write_text(json.dumps({}))
    assert seed.damaged() == ["mask.json"]
    carried_out(folder, study(folder.experiment()))
    assert seed.damaged() == []
    assert seed.mask() == whole.seed_folder("fedpvr", 0).mask()


def test_another_word_is_the_name_of_parameters(tmp_path):
    path = tmp_path / "named.toml"
    path.write_text(FILE.replace('"auto"', '["auto", "classifier"]'))
    built = study(read(path))
    rule = built.experiment(built.methods[0], 0).algorithm.rule
    assert [rule.mask(n) for n in ("auto_0/bias", "classifier/bias", "hidden_0/bias")] == [
        True,
        True,
        False,
    ]
