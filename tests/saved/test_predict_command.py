"""`holdfast predict` and `holdfast export` on what `holdfast run` wrote, from another folder."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.runs.folder import RunFolder

FILE = """\
rounds = 3
partition = "natural"
model = { name = "logistic_regression", l2 = 0.1 }
local = { learning_rate = 0.3, epochs = 1, batch_size = 8 }

[data]
name = "table"
path = "sites/*.csv"
label = "num"
positive = [1, 2]
na_values = "?"
missing = "median"
categorical = ["cp"]
ignore = ["patient"]

[[algorithm]]
name = "fedavg"
[[algorithm]]
name = "local_only"
[[algorithm]]
name = "flix"
alpha = 0.5
"""
SITES = ("basel", "bern", "chur")


def site(seed):
    rng = np.random.default_rng(seed)
    age = rng.integers(30, 80, 40)
    sick = age + rng.normal(0, 10, 40) > 55
    return pd.DataFrame(
        {
            "patient": np.arange(40) + 1000 * seed,
            "age": np.where(rng.random(40) < 0.1, "?", age.astype(str)),
            "cp": rng.integers(1, 4, 40),
            "chol": rng.normal(240, 40, 40).round(3),  # no two rows alike
            "num": np.where(sick, rng.integers(1, 3, 40), 0),
        }
    )


def holdfast(*words, code=0):
    result = CliRunner().invoke(app, [str(w) for w in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run folder of three sites, and a folder elsewhere."""
    place = tmp_path_factory.mktemp("hospitals")
    (place / "sites").mkdir()
    for seed, name in enumerate(SITES):
        site(seed).to_csv(place / "sites" / f"{name}.csv", index=False)
    (place / "experiment.toml").write_text(FILE.replace("sites/*", f"{place}/sites/*"))
    holdfast("run", place / "experiment.toml", "--out", place / "run", "--no-report")
    (place / "elsewhere").mkdir()
    return place


@pytest.fixture
def elsewhere(made, monkeypatch):
    monkeypatch.chdir(made / "elsewhere")
    monkeypatch.setenv("COLUMNS", "80")
    return made / "elsewhere"


def test_predictions_are_those_that_the_run_made_of_test_rows(made, elsewhere):
    data = hf.data.table(
        str(made / "sites" / "*.csv"),
        "num",
        positive=[1, 2],
        na_values="?",
        missing="median",
        categorical=["cp"],
        ignore=["patient"],
    )
    whole = pd.concat([site(s) for s in range(3)], ignore_index=True)
    x = data.preprocessing.transform(whole)
    for method in ("fedavg", "local_only", "flix"):
        files = RunFolder.open(made / "run").seeds(method)[0]
        predictions, clients = files.predictions(), files.clients()
        for i, name in enumerate(SITES):
            holdfast("predict", made / "run", made / "sites" / f"{name}.csv", "--method", method,
                     "--client", name, "--out", "found.csv")  # fmt: skip
            found = pd.read_csv("found.csv")
            assert list(found)[:5] == list(whole)
            # Which rows of the site's file were test rows, by their inputs.
            mine = predictions.client == i
            tested = data.test.x[predictions.row[mine]]
            own = x[40 * i : 40 * i + 40]
            rows = [int(np.flatnonzero((own == row).all(axis=1))[0]) for row in tested]
            said = found["probability_1/2"].to_numpy(np.float32)[rows]
            np.testing.assert_allclose(said, predictions.output[mine], atol=1e-6)
            right = (found["prediction"][rows] == "1/2").to_numpy() == (found["num"][rows] > 0)
            assert right.mean() == pytest.approx(clients["accuracy"][i])


def test_personal_models_by_name(made, elsewhere):
    saved = hf.load(made / "run", method="local_only")
    assert saved.clients == SITES
    for i, name in enumerate(SITES):
        path = elsewhere / f"{name}.safetensors"
        said = holdfast(
            "export", made / "run", "--method", "local_only", "--client", name, "--out", path
        )
        assert said == f"wrote {path}\n"
        alone = hf.load(path)
        assert alone.description.client == name
        rows = site(7)
        np.testing.assert_array_equal(
            alone.predict_proba(rows), saved.for_client(i).predict_proba(rows)
        )
    # The one file of all of them, as another folder would have it.
    copy = elsewhere / "copied.safetensors"
    copy.write_bytes((made / "run/methods/flix/seed-0/personal.safetensors").read_bytes())
    site(7).to_csv("new.csv", index=False)
    first = holdfast("predict", copy, "new.csv", "--client", "bern")
    assert "flix, round 3, client bern" in first
    assert "the server's model" in holdfast("predict", copy, "new.csv", "--server")


WRONG = {
    "method": (
        ["new.csv"],
        r"has 3 methods; say which, by method= (--method): fedavg; local_only; flix.",
    ),
    "unknown method": (["new.csv", "--method", "fedavgg"], "did you mean `fedavg`?"),
    "seed": (["new.csv", "--method", "fedavg", "--seed", "4"], "has no seed 4; it has 0."),
    "client": (
        ["new.csv", "--method", "flix"],
        "say whose, by client= (--client): basel, bern, chur.",
    ),
    "new site": (
        ["new.csv", "--method", "flix", "--client", "lugano"],
        "A new site begins with the server's: model.server (--server).",
    ),
    "no common model": (
        ["new.csv", "--method", "local_only", "--server"],
        "local_only trains no common model",
    ),
    "column": (["short.csv", "--method", "fedavg"], "predict: no column `age`;"),
    "more": (["wide.csv", "--method", "fedavg"], "unknown column `ward`;"),
    "id": (
        ["wide.csv", "--method", "fedavg", "--id", "wart"],
        "no column `wart`; did you mean `ward`?",
    ),
    "label": (["odd.csv", "--method", "fedavg", "--label", "cp"], "no column `cp`"),
    "same file": (
        ["new.csv", "--method", "fedavg", "--out", "new.csv"],
        "is the file that is read",
    ),
    "ending": (["new.csv", "--method", "fedavg", "--out", "new.txt"], "ends in .csv or .parquet"),
    "no file": (["gone.csv", "--method", "fedavg"], "gone.csv is missing"),
    "both": (["new.csv", "--method", "flix", "--server", "--client", "bern"], "give one of them"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_one_line(case, made, elsewhere):
    rows = site(7)
    rows.to_csv("new.csv", index=False)
    rows.drop(columns="age").to_csv("short.csv", index=False)
    rows.drop(columns="cp").to_csv("odd.csv", index=False)
    rows.assign(ward="a").to_csv("wide.csv", index=False)
    words, message = WRONG[case]
    said = holdfast("predict", made / "run", *words, code=2)
    assert message in " ".join(said.split())
    assert len(said.strip().splitlines()) == 1


def test_the_summary_fits_a_terminal_and_labels_are_measured(made, elsewhere):
    rows = site(8)
    rows.to_parquet("new.parquet")
    said = holdfast(
        "predict", made / "run", "new.parquet", "--method", "fedavg", "--out", "out.parquet"
    )
    assert max(map(len, said.splitlines())) <= 80
    found = pd.read_parquet("out.parquet")
    accuracy = ((found["prediction"] == "1/2") == (found["num"] > 0)).mean()
    assert f"accuracy {accuracy:.4g} over 40 rows" in said
    rows.assign(ward="a").drop(columns="num").to_csv("bare.csv", index=False)
    said = holdfast("predict", made / "run", "bare.csv", "--method", "fedavg", "--id", "ward")
    assert "accuracy" not in said
    rows.assign(num=9).to_csv("odd.csv", index=False)
    # Any other value is the other class, as it was in training.
    assert "accuracy" in holdfast("predict", made / "run", "odd.csv", "--method", "fedavg")


def test_damage_and_folders_of_before_are_one_line(made, elsewhere, tmp_path):
    params = made / "run/methods/fedavg/seed-0/params.safetensors"
    whole = params.read_bytes()
    site(7).to_csv("new.csv", index=False)
    for bad in (whole[:-4], b"", bytes(b ^ (i == len(whole) // 2) for i, b in enumerate(whole))):
        params.write_bytes(bad)
        said = holdfast("predict", made / "run", "new.csv", "--method", "fedavg", code=2)
        assert "params.safetensors is damaged" in " ".join(said.split())

    params.write_bytes(safetensors.numpy.save(safetensors.numpy.load(whole)))
    sums = params.with_name("complete.sha256")
    kept = sums.read_bytes()
    sums.unlink()
    said = holdfast("predict", made / "run", "new.csv", "--method", "fedavg", code=2)
    assert "written before models could be loaded" in " ".join(said.split())
    sums.write_bytes(kept)
    params.write_bytes(whole)


def test_too_many_personal_models_are_left_out_and_said(made, elsewhere):
    said = holdfast("run", made / "experiment.toml", "--out", elsewhere / "small", "--no-report",
                    "--set", "storage.personal=10", "--set", "rounds=1")  # fmt: skip
    assert "`personal` of [storage]" in " ".join(said.split())
    assert not (elsewhere / "small/methods/flix/seed-0/personal.safetensors").exists()
    with pytest.raises(hf.HoldfastError, match="so that they are not kept; raise it and run again"):
        hf.load(elsewhere / "small", method="flix", client="bern")
    assert hf.load(elsewhere / "small", method="flix").server.description.stored == "server"


RUN_ALONE = """
import json, sys
import numpy as np
import jax.export
assert "holdfast" not in sys.modules
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
rows = np.load(sys.argv[2])
print(json.dumps([np.asarray(program.call(rows[:n])).tolist() for n in (1, len(rows))]))
assert "holdfast" not in sys.modules
"""


def test_an_exported_program_needs_no_holdfast(made, elsewhere):
    said = holdfast("export", made / "run", "--method", "flix", "--client", "chur",
                    "--format", "stablehlo", "--out", "chur.stablehlo")  # fmt: skip
    assert said.splitlines() == ["wrote chur.stablehlo", "wrote chur.stablehlo.json"]
    about = json.loads((elsewhere / "chur.stablehlo.json").read_text())
    assert about["input"]["columns"] == ["age", "cp", "chol"]
    assert about["input"]["what"] == "columns of the table, NaN where missing"
    assert about["output"]["labels"] == ["0", "1/2"]
    rows = site(9)
    raw = np.column_stack([pd.to_numeric(rows["age"], errors="coerce"), rows["cp"], rows["chol"]])
    raw[0, 1] = 99  # a category that was not there
    np.save("rows.npy", raw.astype(np.float32))
    found = subprocess.run(
        [sys.executable, "-I", "-c", RUN_ALONE, "chur.stablehlo", "rows.npy"],
        capture_output=True,
        text=True,
        check=True,
        cwd=elsewhere,
    ).stdout
    one, every = json.loads(found)
    saved = hf.load(made / "run", method="flix", client="chur")
    expected = saved.predict_proba(raw)
    np.testing.assert_allclose(every, expected, atol=1e-5)
    np.testing.assert_allclose(one, expected[:1], atol=1e-5)


RUN_ONNX_ALONE = """
import json, sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
rows = np.load(sys.argv[2])
name = session.get_inputs()[0].name
print(json.dumps([session.run(None, {name: rows[:n]})[0].tolist() for n in (1, len(rows))]))
assert "holdfast" not in sys.modules and "jax" not in sys.modules
"""


def test_an_onnx_file_needs_neither_holdfast_nor_jax(made, elsewhere):
    for name in ("jax2onnx", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed (holdfast[onnx], onnxruntime)")
    holdfast("export", made / "run", "--method", "fedavg", "--format", "onnx", "--out", "f.onnx")
    rows = site(9)
    raw = np.column_stack([pd.to_numeric(rows["age"], errors="coerce"), rows["cp"], rows["chol"]])
    np.save("rows.npy", raw.astype(np.float32))
    found = subprocess.run(
        [sys.executable, "-c", RUN_ONNX_ALONE, "f.onnx", "rows.npy"],
        capture_output=True,
        text=True,
        check=True,
        cwd=elsewhere,
    ).stdout
    one, every = json.loads(found)
    expected = hf.load(made / "run", method="fedavg").predict_proba(raw)
    np.testing.assert_allclose(every, expected, atol=1e-5)
    np.testing.assert_allclose(one, expected[:1], atol=1e-5)


OWN = """
import flax.linen as nn
import holdfast as hf

def wide(width: int, classes: int):
    module = nn.Sequential((nn.Dense(width), nn.relu, nn.Dense(classes)))
    return hf.models.from_linen(module, classes)
"""


def test_a_model_of_ones_own_file_is_found_by_its_path_and_trusted(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    text = (made / "experiment.toml").read_text().partition("[[algorithm]]")[0]
    model = 'model = { name = "mine.py:wide", width = 4 }'
    text = text.replace('model = { name = "logistic_regression", l2 = 0.1 }', model)
    (tmp_path / "own.toml").write_text(f'{text}\n[[algorithm]]\nname = "fedavg"\n')
    holdfast("run", "own.toml", "--out", "run", "--no-report", "--set", "rounds=1")
    site(7).to_csv("new.csv", index=False)
    first = holdfast("predict", "run", "new.csv", "--out", "first.csv")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    said = holdfast("predict", tmp_path / "run", tmp_path / "new.csv", code=2)
    assert "model `mine.py:wide`: there is no file mine.py" in " ".join(said.split())
    assert "give hf.load(path, model=...)" in " ".join(said.split())
    (tmp_path / "else" / "mine.py").write_text(OWN + "# another comment\n")
    said = holdfast("predict", tmp_path / "run", tmp_path / "new.csv", "--out", "second.csv")
    assert "mine.py is not what the model was trained with" in " ".join(said.split())
    assert (
        first.splitlines()[:3] == [line for line in said.splitlines() if "warning" not in line][:3]
    )
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "else/second.csv").read_bytes()
