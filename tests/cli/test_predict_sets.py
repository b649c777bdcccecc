"""`holdfast predict --calibrate`: a set, or an interval, beside every prediction."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app


def table(seed, rows=60):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2)).round(4)
    sick = np.where(x.sum(axis=1) + rng.normal(size=rows) > 0, "yes", "no")
    dose = (x @ [1.0, -2.0] + rng.normal(size=rows)).round(4)
    site = np.where(np.arange(rows) % 3, "basel", "bern")
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "site": site, "sick": sick, "dose": dose})


def holdfast(*words, code=0):
    result = CliRunner().invoke(app, [str(w) for w in words], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A classifier and a regression of a table, rows to calibrate with and new ones."""
    place = tmp_path_factory.mktemp("sure")
    for kind, model, label in (
        ("labels", hf.models.logistic_regression(l2=0.1), "sick"),
        ("numbers", hf.models.least_squares(), "dose"),
    ):
        other = {"sick": "dose", "dose": "sick"}[label]
        more = {"target": "regression"} if label == "dose" else {}
        data = hf.data.table(
            table(0).drop(columns=[other]), label=label, client="site", test_share=0.1, **more
        )
        clients, _ = data.natural()
        run = hf.simulate(hf.algorithms.fedavg(), model, clients, hf.Local(0.3, epochs=3), rounds=2)
        run.save(place / f"{kind}.safetensors", data=data)
        table(1).drop(columns=[other]).rename(columns={label: "truth"}).to_csv(
            place / f"{kind}_held_out.csv", index=False
        )
        table(2).drop(columns=[other]).rename(columns={label: "truth"}).to_csv(
            place / f"{kind}_new.csv", index=False
        )
    return place


COMMON = ("--label", "truth", "--id", "site")


def quantile(scores, kappa):
    rank = int(np.ceil(round((len(scores) + 1) * (1 - kappa), 9)))
    return np.inf if rank > len(scores) else np.sort(scores)[rank - 1]


def probabilities(path):
    found = pd.read_csv(path)
    return found, found[["probability_no", "probability_yes"]].to_numpy()


def test_sets_beside_predictions(made, tmp_path):
    model, held, new = (
        made / f"labels{end}" for end in (".safetensors", "_held_out.csv", "_new.csv")
    )
    said = holdfast("predict", model, new, *COMMON, "--calibrate", held, "--kappa", 0.2,
                    "--out", tmp_path / "sure.csv")  # fmt: skip
    holdfast("predict", model, held, *COMMON, "--out", tmp_path / "held.csv")
    own, p = probabilities(tmp_path / "held.csv")
    q = quantile(1 - np.where(own["truth"] == "yes", p[:, 1], p[:, 0]), 0.2)
    found, p = probabilities(tmp_path / "sure.csv")
    sets = 1 - p <= q + 1e-7
    names = np.array(["no", "yes"], object)
    wanted = [" | ".join(names[row]) for row in sets]
    assert found["set"].fillna("").tolist() == wanted
    assert found["set_size"].tolist() == sets.sum(1).tolist()
    covered = sets[np.arange(60), (found["truth"] == "yes").astype(int)]
    assert "hold the label of at least 0.8 of rows like the 60 calibrated with" in said
    assert f"coverage {covered.mean():.4g} over 60 rows" in said


def test_each_site_by_its_own_rows(made, tmp_path):
    model, held, new = (
        made / f"labels{end}" for end in (".safetensors", "_held_out.csv", "_new.csv")
    )
    said = holdfast("predict", model, new, "--label", "truth", "--calibrate", held, "--by", "site",
                    "--kappa", 0.3, "--out", tmp_path / "sure.csv")  # fmt: skip
    assert "for each of 2 site" in said
    found, _ = probabilities(tmp_path / "sure.csv")
    saved = hf.load(model)
    for name in ("basel", "bern"):
        rows, mine = (t[t["site"] == name] for t in map(pd.read_csv, (held, new)))
        one = saved.for_client(name).calibrate(rows[["a", "b"]], rows["truth"])
        wanted = one.sets(mine[["a", "b"]], coverage=0.7).sum(1)
        assert found[found["site"] == name]["set_size"].tolist() == wanted.tolist()


def test_a_model_that_was_calibrated_before(made, tmp_path):
    rows = pd.read_csv(made / "labels_held_out.csv")
    saved = hf.load(made / "labels.safetensors")
    for score in ("lac", "aps"):
        path = saved.calibrate(rows[["a", "b"]], rows["truth"], score).save(
            tmp_path / "sure.safetensors"
        )
        assert hf.load(path).calibration.score == hf.conformal.Score(score)
        holdfast("predict", path, made / "labels_new.csv", *COMMON, "--kappa", 0.2,
                 "--out", tmp_path / "kept.csv")  # fmt: skip
        holdfast("predict", made / "labels.safetensors", made / "labels_new.csv", *COMMON, "--kappa", 0.2,
                 "--calibrate", made / "labels_held_out.csv", "--score", score,
                 "--out", tmp_path / "now.csv")  # fmt: skip
        assert (tmp_path / "kept.csv").read_text() == (tmp_path / "now.csv").read_text()
        mine = pd.read_csv(made / "labels_new.csv")[["a", "b"]]
        wanted = hf.load(path).sets(mine, coverage=0.8).sum(1)
        assert pd.read_csv(tmp_path / "kept.csv")["set_size"].tolist() == wanted.tolist()


def test_intervals_of_numbers(made, tmp_path):
    model, held, new = (
        made / f"numbers{end}" for end in (".safetensors", "_held_out.csv", "_new.csv")
    )
    said = holdfast(
        "predict", model, new, *COMMON, "--calibrate", held, "--out", tmp_path / "sure.csv"
    )
    holdfast("predict", model, held, *COMMON, "--out", tmp_path / "held.csv")
    own, found = pd.read_csv(tmp_path / "held.csv"), pd.read_csv(tmp_path / "sure.csv")
    q = quantile(np.abs(own["prediction"] - own["truth"]), 0.1)
    np.testing.assert_allclose(found["low"], found["prediction"] - q, atol=1e-5)
    np.testing.assert_allclose(found["high"], found["prediction"] + q, atol=1e-5)
    covered = found["truth"].between(found["low"], found["high"]).mean()
    assert f"coverage {covered:.4g} over 60 rows" in said
    assert f"{2 * q:.4g} wide on average" in said


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("labels", ["--kappa", "0.1"], "the model is not calibrated; give --calibrate FILE"),
        ("labels", ["--score", "aps"], "--score is of rows to calibrate with"),
        ("labels", ["--calibrate", "HELD", "--kappa", "1"], "kappa=1.0, the share of rows"),
        ("labels", ["--calibrate", "HELD", "--score", "apz"], "score `apz`; did you mean `aps`"),
        ("labels", ["--calibrate", "HELD", "--score", "residual"], "predicts labels; use lac"),
        ("numbers", ["--calibrate", "HELD", "--score", "lac"], "numbers, which have intervals"),
        ("labels", ["--calibrate", "NEW"], "is the file to predict"),
        ("labels", ["--calibrate", "BARE"], "it has no labels"),
        ("labels", ["--calibrate", "OTHER", "--by", "site"], "no row to calibrate with is of it"),
        ("labels", ["--calibrate", "HELD", "--by", "ward"], "no column `ward`"),
        ("labels", ["--calibrate", "missing.csv"], "missing.csv"),
    ],
)
def test_bad_input_gets_one_clear_line(made, tmp_path, kind, words, message):
    held, new = (made / f"{kind}{end}" for end in ("_held_out.csv", "_new.csv"))
    rows = pd.read_csv(held)
    rows.assign(truth="").to_csv(tmp_path / "bare.csv", index=False)
    rows.query("site == 'bern'").to_csv(tmp_path / "other.csv", index=False)
    files = {
        "HELD": held,
        "NEW": new,
        "BARE": tmp_path / "bare.csv",
        "OTHER": tmp_path / "other.csv",
    }
    given = [files.get(word, word) for word in words]
    said = holdfast("predict", made / f"{kind}.safetensors", new, *COMMON, *given, code=2)
    assert message in " ".join(said.split())
    assert said.startswith("error")
