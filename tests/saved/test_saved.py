"""A saved model predicts what the run's model predicts, for whom it is, and says what it cannot do."""

import dataclasses
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import safetensors
import safetensors.numpy

import holdfast as hf
from holdfast.engine.saving import Saving
from holdfast.models.constructor import REBUILDABLE
from tests.problems import QUADRATIC, same_bits, tiny_clients, two_quadratics

LOCAL = hf.Local(learning_rate=0.1, steps=2, batch_size=4)
MODEL = hf.models.mlp([4], classes=3)
SITES = pd.DataFrame(
    {
        "age": [31.0, 52, 47, 60, 39, None, 44, 70],
        "sex": ["m", "w", "w", "m", "w", "m", "w", "m"],
        "patient": range(8),
        "sick": ["no", "yes", "no", "yes", "no", "yes", "no", "yes"],
        "clinic": ["basel", "basel", "basel", "basel", "bern", "bern", "bern", "bern"],
    }
)


def trained(algorithm, model=MODEL, clients=None, **settings):
    clients = tiny_clients() if clients is None else clients
    return hf.simulate(algorithm, model, clients, LOCAL, rounds=2, **settings)


@pytest.fixture(scope="module")
def table():
    return hf.data.table(
        SITES, "sick", client="clinic", missing="mean", ignore=["patient"], test_share=0.25
    )


@pytest.fixture(scope="module")
def personal(table):
    clients, _ = table.natural()
    return trained(hf.algorithms.local_only(), hf.models.logistic_regression(), clients)


def test_the_saved_model_is_the_servers(tmp_path):
    run = trained(hf.algorithms.fedavg())
    saved = hf.load(run.save(tmp_path / "model.safetensors"))
    x = tiny_clients().examples.x
    assert same_bits(saved.params, run.params)
    expected = np.asarray(MODEL.predict(run.params, hf.Examples(x, None)))
    np.testing.assert_array_equal(saved.predict_proba(x), expected)
    np.testing.assert_array_equal(saved.predict(x), expected.argmax(axis=1))
    assert saved.clients == ("0", "1", "2", "3")
    assert saved.for_client("2") is saved
    about = saved.description
    assert (about.method, about.round, about.task, about.personal) == (
        "fedavg",
        2,
        "classes",
        False,
    )
    assert about.versions["jax"] == jax.__version__


PREDICT = """
import json, sys
import numpy as np, pandas as pd
import holdfast as hf
saved = hf.load(sys.argv[1], client=sys.argv[2])
rows = pd.read_json(sys.stdin)
print(json.dumps([saved.predict(rows).tolist(), saved.predict_proba(rows).tolist()]))
"""


def test_the_same_bits_in_a_fresh_process_and_another_folder(personal, table, tmp_path):
    path = personal.save(tmp_path / "personal.safetensors", data=table)
    rows = SITES[["age", "sex"]]
    (tmp_path / "elsewhere").mkdir()
    said = subprocess.run(
        [sys.executable, "-c", PREDICT, str(path), "bern"],
        input=rows.to_json(),
        capture_output=True,
        text=True,
        cwd=tmp_path / "elsewhere",
        check=True,
    ).stdout
    labels, probabilities = json.loads(said)
    here = hf.load(path).for_client("bern")
    x = table.preprocessing.transform(rows)
    own = personal.experiment.model.predict(personal.personal(1), hf.Examples(x, None))
    np.testing.assert_array_equal(np.asarray(probabilities, np.float32)[:, 1], np.asarray(own))
    assert labels == here.predict(rows).tolist()
    assert set(labels) <= {"no", "yes"}


def test_a_number_that_is_another_clients_name_is_refused(personal, tmp_path):
    saved = hf.load(personal.save(tmp_path / "all.safetensors"))
    people = dataclasses.replace(
        saved, description=dataclasses.replace(saved.description, clients=("1", "2"))
    )
    assert same_bits(people.for_client("1").params, personal.personal(0))
    assert same_bits(people.for_client(0).params, personal.personal(0))
    with pytest.raises(hf.HoldfastError, match="number 1 is called `2`, and another one `1`; give"):
        people.for_client(1)


def test_personal_methods_save_every_clients_own_model_by_name(personal, table, tmp_path):
    saved = hf.load(personal.save(tmp_path / "all.safetensors", data=table))
    assert saved.clients == ("basel", "bern")
    for number, name in enumerate(saved.clients):
        assert same_bits(saved.for_client(name).params, personal.personal(number))
        alone = hf.load(personal.save(tmp_path / "one.safetensors", client=name, data=table))
        assert same_bits(alone.params, personal.personal(number))
        extracted = hf.load(saved.for_client(name).save(tmp_path / "extracted.safetensors"))
        assert same_bits(extracted.params, alone.params)
        assert extracted.description == alone.description
    with pytest.raises(
        hf.HoldfastError, match=r"local_only has a model for each client.*basel, bern\."
    ):
        saved.predict(SITES[["age", "sex"]])
    with pytest.raises(
        hf.HoldfastError, match=r"no client is called `berne`; did you mean `bern`\? A new"
    ):
        saved.for_client("berne")
    with pytest.raises(
        hf.HoldfastError, match="trains no common model, the server's is as it began"
    ):
        _ = saved.server
    with pytest.raises(
        hf.HoldfastError, match="holds the model of client bern alone, not of basel"
    ):
        hf.load(tmp_path / "one.safetensors", client="basel")


ALGORITHMS = {
    "fedavg": (hf.algorithms.fedavg(), False),
    "scaffold": (hf.algorithms.scaffold(), False),
    "feddyn": (hf.algorithms.feddyn(0.1), False),
    "adapting": (dataclasses.replace(hf.algorithms.fedavg(), adapt=LOCAL), True),
    "flix": (hf.algorithms.flix(0.5), True),
    "local_only": (hf.algorithms.local_only(), True),
    "centralised": (hf.algorithms.centralised(), False),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_saved_is_what_clients_use(name, tmp_path):
    algorithm, is_personal = ALGORITHMS[name]
    run = trained(algorithm, hf.models.softmax_regression(3, l2=0.1))
    saved = hf.load(run.save(tmp_path / "model.safetensors"))
    assert Saving(run.simulation, run.state).personal is is_personal is saved.description.personal
    for i in range(1 if name == "centralised" else 4):
        assert same_bits(saved.for_client(i).params, run.personal(i))
    assert is_personal is not same_bits(run.personal(0), run.params)
    if name != "local_only":
        assert same_bits(saved.server.params, run.params)


def test_one_file_holds_no_pickle_and_equal_models_are_equal_files(tmp_path):
    run = trained(hf.algorithms.fedavg())
    first = run.save(tmp_path / "a.safetensors").read_bytes()
    assert trained(hf.algorithms.fedavg()).save(tmp_path / "b.safetensors").read_bytes() == first
    with safetensors.safe_open(tmp_path / "a.safetensors", "numpy") as opened:
        about = json.loads(opened.metadata()["holdfast"])["description"]
    assert about["constructor"] == {
        "name": "mlp",
        "arguments": {"hidden": [4], "classes": 3, "l2": 0.0, "init": "flax"},
    }


def rebuilt(model):
    constructor = model.constructor.to_dict()
    return REBUILDABLE[constructor["name"]](**constructor["arguments"])


def test_a_note_of_how_a_model_was_made_changes_nothing_else():
    plain = dataclasses.replace(MODEL, constructor=None)
    assert MODEL.constructor is not None
    assert (plain == MODEL, hash(MODEL) == hash(plain), repr(MODEL) == repr(plain)) == (True,) * 3
    assert rebuilt(MODEL) is MODEL
    assert hf.models.mlp((4,), 3) is MODEL
    weighted = hf.models.class_weighted(MODEL, [1, 2.0, 3])
    assert weighted.constructor.to_dict()["arguments"]["model"] == MODEL.constructor.to_dict()
    # Not made by that function any more.
    assert dataclasses.replace(MODEL, output=None).constructor is None
    assert hf.models.from_apply(lambda k: 0, lambda p, x: x, 3).constructor is None


def test_models_of_models_are_made_again_too(tmp_path):
    model = hf.models.augmented(
        hf.models.regularised(hf.models.cnn(3, channels=[2], dense=[4]), 0.1)
    )
    x = np.random.default_rng(0).random((8, 12, 12, 1)).astype(np.float32)
    data = hf.Examples(x, np.arange(8, dtype=np.int32) % 3)
    clients = hf.data.partition.in_order(data, clients=2)
    run = hf.simulate(hf.algorithms.fedavg(), model, clients, LOCAL, rounds=1)
    saved = hf.load(run.save(tmp_path / "model.safetensors"))
    assert saved.model.name == model.name
    np.testing.assert_array_equal(saved.outputs(x), model.predict(run.params, data))
    with pytest.raises(
        hf.HoldfastError, match="an array of uint8, and the model was trained on float32"
    ):
        saved.predict((x * 255).astype(np.uint8))


def test_a_model_of_ones_own_is_given(tmp_path):
    run = hf.simulate(hf.algorithms.fedavg(), QUADRATIC, two_quadratics(), LOCAL, rounds=1)
    path = run.save(tmp_path / "own.safetensors")
    with pytest.raises(
        hf.HoldfastError, match=r"quadratic was not made by .*; make that model yourself"
    ):
        hf.load(path)
    with pytest.raises(hf.HoldfastError, match="quadratic does not say what it predicts"):
        hf.load(path, model=QUADRATIC).predict(np.ones((1, 1)))
    mine = dataclasses.replace(QUADRATIC, output=lambda w, batch: batch.x @ w)
    assert hf.load(path, model=mine).predict(np.array([[2.0]])) == 2 * run.params
    with pytest.raises(hf.HoldfastError, match=r"its parameters are params, and MLP.* has"):
        hf.load(path, model=MODEL)
    with pytest.raises(hf.HoldfastError, match="model is a str"):
        hf.load(path, model="mlp")


def test_a_number_alone_is_a_model_and_64_bits_stay(x64, tmp_path):
    line = hf.models.from_apply(
        lambda key, x: jnp.zeros((), x.dtype),
        lambda w, x: w * x[:, 0],
        loss=lambda p, y: (p - y) ** 2,
    )
    data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 3.0]))
    run = hf.simulate(
        hf.algorithms.fedavg(), line, hf.Clients.from_datasets([data]), LOCAL, rounds=2
    )
    path = run.save(tmp_path / "line.safetensors")
    with jax.enable_x64(False):
        found = hf.load(path, model=line).predict(np.array([[1.0]]))
    assert found.dtype == np.float64
    assert found[0] == run.params.item()


ROWS = SITES[["age", "sex"]]
WRONG_ROWS = {
    "missing column": (ROWS.drop(columns="sex"), r"predict: no column `sex`; there are age\."),
    "misspelt": (ROWS.rename(columns={"age": "agee"}), r"no column `age`; did you mean `agee`\?"),
    "unknown column": (
        ROWS.assign(weight=1.0),
        r"unknown column `weight`; known are age, sex\. Leave",
    ),
    "a word": (ROWS.assign(age="old"), r"row 0 \(from 0\), column `age` is 'old'; give a number"),
    "width": (np.zeros((2, 3)), r"shape \(2, 3\), and the model takes 2 columns \(`age`, `sex`\)"),
    "twice": (pd.concat([ROWS, ROWS[["age"]]], axis=1), "two columns are called `age`"),
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_rows_that_do_not_fit_get_one_line(case, personal, table, tmp_path):
    saved = hf.load(personal.save(tmp_path / "model.safetensors", client="bern", data=table))
    rows, message = WRONG_ROWS[case]
    with pytest.raises(hf.HoldfastError, match=message) as error:
        saved.predict(rows)
    assert "\n" not in str(error.value)


def test_tables_of_many_kinds_are_one_table(personal, table, tmp_path):
    saved = hf.load(personal.save(tmp_path / "model.safetensors", client="bern", data=table))
    expected = saved.predict_proba(ROWS)
    others = [
        {"sex": ROWS["sex"].tolist(), "age": ROWS["age"].to_numpy()},
        ROWS[["sex", "age"]],
        SITES.drop(columns="patient"),  # label and client are known, and not used
        np.asarray(ROWS, object),
    ]
    for other in others:
        np.testing.assert_array_equal(saved.predict_proba(other), expected)
    assert saved.feature_names == ("age", "sex")
    assert saved.label_names == ("no", "yes")
    assert saved.predict_proba(ROWS[:0]).shape == (0, 2)


def test_arrays_that_do_not_fit_get_one_line(tmp_path):
    run = trained(hf.algorithms.fedavg())
    saved = hf.load(run.save(tmp_path / "model.safetensors"))
    good = np.zeros((2, 5), np.float32)
    for rows, message in (
        (good[:, :4], r"shape \(2, 4\), and the model takes \(rows, 5\)"),
        (good[0], r"give x\[None\] for a single row"),
        (
            np.where(np.eye(2, 5) > 0, np.nan, good),
            r"row 0 \(from 0\), the array is NaN, and nothing",
        ),
        (np.full((1, 5), "a"), "the model takes numbers"),
        (pd.DataFrame(good), r"saved without the names of its columns.*run\.save\(path, data="),
    ):
        with pytest.raises(hf.HoldfastError, match=message):
            saved.predict(rows)


def test_numbers_come_back_in_their_units(tmp_path):
    frame = pd.DataFrame({"size": np.arange(12.0), "rent": 500 + 100 * np.arange(12.0)})
    frame["city"] = ["a"] * 6 + ["b"] * 6
    data = hf.data.table(frame, "rent", client="city", target="regression", test_share=0.25)
    clients, _ = data.natural()
    local = hf.Local(learning_rate=0.3, steps=60)
    run = hf.simulate(hf.algorithms.fedavg(), hf.models.least_squares(), clients, local, rounds=5)
    saved = hf.load(run.save(tmp_path / "rent.safetensors", data=data))
    np.testing.assert_allclose(saved.predict({"size": [3.0]}), [800], atol=20)
    with pytest.raises(hf.HoldfastError, match="predicts numbers, which have no probabilities"):
        saved.predict_proba({"size": [3.0]})


@pytest.mark.parametrize("place", ["begin", "middle", "end", "cut", "empty", "other"])
def test_a_damaged_file_is_one_line(place, tmp_path):
    path = trained(hf.algorithms.fedavg()).save(tmp_path / "model.safetensors")
    raw = bytearray(path.read_bytes())
    if place in ("begin", "middle", "end"):
        raw[{"begin": 12, "middle": len(raw) // 2, "end": -3}[place]] ^= 4
    path.write_bytes({"cut": raw[:-5], "empty": b"", "other": b"PK\3\4 no model"}.get(place, raw))
    with pytest.raises(hf.HoldfastError, match=r"damaged") as error:
        hf.load(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_file_of_a_later_format_or_of_before_says_so(tmp_path):
    run = trained(hf.algorithms.fedavg())
    path = run.save(tmp_path / "model.safetensors")
    with safetensors.safe_open(path, "numpy") as opened:
        about = json.loads(opened.metadata()["holdfast"])
    arrays = safetensors.numpy.load_file(path)
    about["description"] |= {"format": 3, "versions": {"holdfast": "9.0"}}
    safetensors.numpy.save_file(arrays, path, {"holdfast": json.dumps(about)})
    with pytest.raises(hf.HoldfastError, match=r"written by holdfast 9\.0 in format 3, .* upgrade"):
        hf.load(path)
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(hf.HoldfastError, match="written before models could be loaded"):
        hf.load(path)
    with pytest.raises(hf.HoldfastError, match=r"gone.safetensors does not exist; give a folder"):
        hf.load(tmp_path / "gone.safetensors", method="fedavg")


def test_joined_populations_are_refused(tmp_path):
    parts = [hf.Population(tiny_clients(seed), MODEL, name=n) for seed, n in ((0, "a"), (1, "b"))]
    joined = hf.join(parts)
    run = hf.simulate(
        hf.algorithms.fedavg(), joined.model, joined.clients, LOCAL, rounds=1, cohort=joined.cohort
    )
    path = run.save(tmp_path / "joined.safetensors")
    with pytest.raises(hf.HoldfastError, match="of 2 populations, each with a model of its own"):
        hf.load(path)
    x = tiny_clients().examples.x
    given = hf.load(path, model=MODEL)
    np.testing.assert_array_equal(given.outputs(x), MODEL.predict(run.params, hf.Examples(x, None)))


def test_an_ensemble_is_saved_with_both_of_its_models(tmp_path):
    clients = tiny_clients()
    model = hf.models.softmax_regression(3, l2=0.1)
    optima = hf.flix.local_optima(model, clients, hf.solvers.LBFGS(tolerance=1e-3))
    both = hf.flix.ensemble(model, optima, [0.2, 0.4, 0.6, 0.8])
    run = trained(hf.algorithms.fedavg(), both.model, both.attach(clients))
    saved = hf.load(both.save(run, tmp_path / "ensemble.safetensors"))
    x = clients.examples.x
    server = model.predict(run.params, hf.Examples(x, None))
    for i, alpha in enumerate(both.alpha):
        own = model.predict(jax.tree.map(lambda a, i=i: a[i], optima.x), hf.Examples(x, None))
        expected = alpha * np.asarray(server) + (1 - alpha) * np.asarray(own)
        np.testing.assert_allclose(saved.for_client(i).predict_proba(x), expected, atol=1e-6)
        alone = hf.load(both.save(run, tmp_path / "one.safetensors", client=i))
        np.testing.assert_array_equal(alone.outputs(x), saved.for_client(i).outputs(x))
    np.testing.assert_allclose(saved.server.predict_proba(x), server, atol=1e-6)
    with pytest.raises(hf.HoldfastError, match="its examples have the fields own, local, alpha"):
        hf.load(run.save(tmp_path / "half.safetensors"))
    with pytest.raises(hf.HoldfastError, match="give one of this ensemble's model"):
        both.save(trained(hf.algorithms.fedavg()), tmp_path / "other.safetensors")


def test_sets_hold_the_label_as_often_as_promised(tmp_path):
    run = trained(hf.algorithms.fedavg())
    saved = hf.load(run.save(tmp_path / "model.safetensors"))
    x, y = tiny_clients(seed=3).examples
    # Each of the rows takes its turn as the new one; the share that is covered is exact.
    for coverage in (0.5, 0.8, 0.9):
        held = [saved.calibrate(np.delete(x, i, 0), np.delete(y, i)) for i in range(len(x))]
        covered = [m.sets(x[i : i + 1], coverage)[0, y[i]] for i, m in enumerate(held)]
        assert coverage <= np.mean(covered) <= coverage + 1 / len(x) + 1e-9
    sure = hf.load(saved.calibrate(x, y).save(tmp_path / "sure.safetensors"))
    np.testing.assert_array_equal(sure.sets(x), saved.calibrate(x, y).sets(x))
    assert saved.calibrate(x[:8], y[:8]).sets(x, 0.9).all()  # too few to promise anything
    for wrong, message in (
        (lambda: saved.sets(x), "the model is not calibrated"),
        (lambda: sure.sets(x, 1.0), r"coverage=1\.0; give a share"),
        (lambda: sure.intervals(x), "predicts labels; use sets"),
        (lambda: saved.calibrate(x, y[1:]), "32 labels for 33 rows"),
        (lambda: saved.calibrate(x, y + 7), r"row 0 \(from 0\) is '\d', and labels are 0, 1, 2"),
    ):
        with pytest.raises(hf.HoldfastError, match=message):
            wrong()


def test_the_best_round_is_saved_where_it_is_kept_and_the_file_says_so(tmp_path):
    x, y = tiny_clients(seed=3).examples
    stop = hf.EarlyStopping("validation_loss", keep="best")
    settings = {"evaluate": hf.evaluate.on(hf.Examples(x, y), name="validation"), "stop": stop}
    local = hf.Local(learning_rate=2.0, steps=5, batch_size=4)  # it overfits at once
    run = hf.simulate(hf.algorithms.fedavg(), MODEL, tiny_clients(), local, rounds=4, **settings)
    assert run.deployed.round < 4
    saved = hf.load(run.save(tmp_path / "best.safetensors"))
    assert same_bits(saved.params, run.params)
    assert not same_bits(saved.params, run.state.params)
    assert saved.description.round == run.deployed.round
    assert (
        saved.description.kept == f"round {run.deployed.round} of 4 was the best by validation_loss"
    )
