"""Tables as they are in the world: a file per site, missing values, labels, test designs, names."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.data.stand_in import COLUMNS
from tests.data.real import SHARED, needs

pandas = pytest.importorskip("pandas")
RAW = {
    "columns": COLUMNS,
    "label": "num",
    "positive": [1, 2, 3, 4],
    "na_values": {"*": "?", "chol": 0},
    "missing": "median",
    "indicator": True,
    "categorical": ["cp", "restecg", "slope", "thal"],
}


def visits(rows=40):
    """Two sites of two wards; a patient has four visits, one a day."""
    k = np.arange(rows)
    return {
        "x": (k * 7 % 40).astype(float),
        "kind": np.array(["1", "2", "x"], object)[k % 3],
        "site": np.array(["basel", "bern"])[k % 2],
        "ward": k // 2 % 2,
        "patient": k // 8,
        "day": [f"2024-01-{1 + d:02}" for d in k % 8],
        "y": k % 3 + 1,
    }


def of_row(**design):
    """Which rows of `visits` are in which part: the row is the only input."""
    table = {**visits(), "row": np.arange(40.0)}
    data = hf.data.table(table, "y", "site", features=["row"], scale="none", **design)
    parts = [data.train, data.validation, data.test]
    return [[] if p is None else sorted(p.x[:, 0].astype(int).tolist()) for p in parts]


def write_sites(folder, **change):
    """A file per site, as CSV; `change` are columns of the second."""
    folder.mkdir()
    for site in ("basel", "bern"):
        frame = pandas.DataFrame(visits())[lambda f, site=site: f.site == site].drop(columns="site")
        if site == "bern":
            frame = frame.assign(**change)
        frame.to_csv(folder / f"{site}.csv", index=False)
    return folder


def test_a_file_is_a_client(tmp_path):
    folder = write_sites(tmp_path / "sites")
    settings = {
        "label": "y",
        "ignore": ["patient", "day"],
        "categorical": ["kind"],
        "test_share": 0.25,
    }
    by_file = hf.data.table(str(folder / "*.csv"), **settings)
    clients, tests = by_file.natural()
    assert clients.names == tests.names == ("basel", "bern")
    assert (clients.sizes.tolist(), tests.sizes.tolist()) == ([15, 15], [5, 5])
    assert by_file.label_names == ("1", "2", "3")
    assert by_file.classes == 3
    assert np.array_equal(hf.data.table(folder, **settings).train.x, by_file.train.x)
    listed = [str(folder / f"{site}.csv") for site in ("basel", "bern")]
    assert np.array_equal(hf.data.table(listed, **settings).train.x, by_file.train.x)
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    for site in ("basel", "bern"):
        pandas.read_csv(folder / f"{site}.csv").to_parquet(parquet / f"{site}.parquet")
    assert np.array_equal(hf.data.table(parquet, **settings).train.x, by_file.train.x)


def test_columns_say_whose_a_row_is_alone_or_together():
    pair = hf.data.table(
        visits(), "y", ["site", "ward"], ignore=["patient", "day"], categorical=["kind"]
    )
    clients, _ = pair.natural()
    assert clients.names == ("basel/0", "basel/1", "bern/0", "bern/1")
    assert clients.number("bern/0") == 2
    numbered = hf.data.table(visits(), "y", "patient", features=["x"]).natural()[0]
    assert numbered.names == ("0", "1", "2", "3", "4")


def test_names_of_files_are_what_differs():
    from pathlib import Path

    from holdfast.data.tables.files import site_names

    def named(*files):
        return site_names([Path(f) for f in files])

    assert named("processed.va.data", "processed.cleveland.data") == ["va", "cleveland"]
    assert named("a/north-2024.csv.gz", "a/south-2024.csv.gz") == ["north", "south"]
    assert named("site_1.csv", "site_2.csv") == ["site_1", "site_2"]
    assert named("one.csv") == ["one"]
    assert named("a/x.csv", "b/x.csv") == ["a/x.csv", "b/x.csv"]


def test_designs_of_tests():
    train, validation, test = of_row(test_share=0.2, validation_share=0.1)
    assert (len(train), len(validation), len(test)) == (28, 4, 8)
    assert sorted([*train, *validation, *test]) == list(range(40))
    table = visits()
    train, validation, test = of_row(group="patient", test_share=0.2, validation_share=0.2)
    patients = [set(table["patient"][rows].tolist()) for rows in (train, validation, test)]
    assert [len(p) for p in patients] == [3, 1, 1]
    assert not patients[0] & patients[1] | patients[0] & patients[2] | patients[1] & patients[2]
    train, validation, test = of_row(time="day", test_share=0.25, validation_share=0.25)
    day = np.array(table["day"])
    for site in range(2):
        mine = [day[[r for r in rows if r % 2 == site]] for rows in (train, validation, test)]
        assert max(mine[0]) < min(mine[1]) <= max(mine[1]) < min(mine[2])
    train, validation, test = of_row(leave_out="bern", validation_share=0.1)
    assert test == list(range(1, 40, 2))
    assert len(validation) == 2
    train, validation, test = of_row(leave_out=["bern"], test_share=0.2)
    assert len(test) == 20 + 4
    assert of_row(unseen=0.5, seed=1)[2] in (list(range(0, 40, 2)), list(range(1, 40, 2)))


def test_test_rows_that_are_given(tmp_path):
    split = np.array(["train", "Validation", "test", "train"])[np.arange(40) % 4]
    data = hf.data.table({**visits(), "part": split}, "y", "site", features=["x"], split="part")
    assert [len(p.y) for p in (data.train, data.validation, data.test)] == [20, 10, 10]
    trained = write_sites(tmp_path / "sites")
    held_out = write_sites(tmp_path / "held out")
    data = hf.data.table(trained, "y", features=["x"], test_path=held_out)
    clients, tests = data.natural()
    assert clients.names == ("basel", "bern")
    assert clients.sizes.tolist() == tests.sizes.tolist() == [20, 20]
    one = hf.data.table(trained / "basel.csv", "y", features=["x"], test_path=held_out / "bern.csv")
    assert (one.owners, len(one.train.y), len(one.test.y)) == (None, 20, 20)


def test_a_client_without_training_rows_is_judged_by_name():
    data = hf.data.table(visits(), "y", "site", features=["x"], leave_out="bern")
    clients, tests = data.natural()
    assert (clients.sizes.tolist(), tests.sizes.tolist()) == ([20, 0], [0, 20])
    run = hf.simulate(
        hf.algorithms.fedavg(),
        hf.models.softmax_regression(3),
        clients,
        hf.Local(0.1, steps=1),
        rounds=1,
        evaluate=hf.evaluate.personal(tests),
    )
    assert 0 <= run.history[-1]["personal_accuracy"] <= 1
    mine = run.personal("bern")
    assert np.array_equal(mine["classifier"]["kernel"], run.params["classifier"]["kernel"])
    with pytest.raises(
        hf.HoldfastError, match=r"no client is called `berne`; did you mean `bern`\?"
    ):
        run.personal("berne")


def test_a_regression_is_scaled_and_restored():
    table = visits()
    table["y"] = np.arange(40) * 2.5 + 100
    data = hf.data.table(table, "y", "site", features=["x"])
    assert data.classes is None
    assert data.train.y.mean() == pytest.approx(0, abs=1e-6)
    assert data.train.y.std() == pytest.approx(1, abs=1e-6)
    everything = np.concatenate([data.train.y, data.test.y])
    assert np.sort(data.preprocessing.restore(everything)) == pytest.approx(table["y"], rel=1e-6)
    plain = hf.data.table(table, "y", "site", features=["x"], scale="none")
    assert plain.preprocessing.target is None
    table["y"] = np.arange(40) + 7
    assert hf.data.table(table, "y", features=["x"], target="regression").classes is None


def test_classes_have_names_and_weights():
    table = visits()
    two = hf.data.table(table, "y", features=["x"], positive=[2, 3], label_names=["well", "ill"])
    assert (two.label_names, two.classes) == (("well", "ill"), 2)
    assert hf.data.table(table, "y", features=["x"], positive=3).label_names == ("1/2", "3")
    data = hf.data.table(table, "y", "site", features=["x"], class_weight="balanced")
    from sklearn.utils.class_weight import compute_class_weight

    expected = compute_class_weight("balanced", classes=np.arange(3), y=data.train.y)
    assert data.class_weights == pytest.approx(expected)
    named = hf.data.table(table, "y", features=["x"], class_weight={"3": 2.0})
    assert named.class_weights == (1.0, 1.0, 2.0)


def test_weights_of_classes_are_in_the_loss_and_not_in_its_penalty():
    data = hf.data.table(
        visits(), "y", features=["x"], positive=[1], scale="standard", test_share=0.0
    )
    weights, l2 = [0.5, 3.0], 0.1
    model = hf.models.class_weighted(hf.models.logistic_regression(l2=l2), weights)
    clients = hf.Clients.from_datasets([data.train])
    local = hf.Local(0.5, steps=1)
    run = hf.simulate(hf.algorithms.fedavg(), model, clients, local, rounds=300)
    from sklearn.linear_model import LogisticRegression

    # The penalty of holdfast's acts on the intercept too: a column of ones stands for it.
    x = np.hstack([data.train.x, np.ones((40, 1))])
    theirs = LogisticRegression(
        C=1 / (l2 * 40), class_weight={0: 0.5, 1: 3.0}, fit_intercept=False, tol=1e-8, max_iter=1000
    ).fit(x, data.train.y)
    ours = [*np.ravel(run.params["weights"]), run.params["intercept"]]
    assert ours == pytest.approx(theirs.coef_[0], abs=1e-4)
    plain = hf.models.logistic_regression(l2=l2)
    for measured in ("loss", "accuracy"):
        both = [m.measure(run.params, data.train)[measured] for m in (model, plain)]
        assert np.array_equal(*both)
    optima = hf.flix.local_optima(plain, clients, hf.solvers.LBFGS(tolerance=0.1))
    with pytest.raises(hf.HoldfastError, match=r"ensemble: the loss of the model weights classes"):
        hf.flix.ensemble(model, optima, alpha=0.5)


def test_a_column_of_numbers_of_patients_and_far_scales_are_warned_of():
    table = {"patient_id": np.arange(40), "x": np.arange(40.0), "y": np.arange(40) % 2}
    with pytest.warns(
        hf.errors.HoldfastWarning, match=r"`patient_id` has another value in each row.*ignore"
    ):
        hf.data.table(table, "y")
    far = {"salt": np.arange(40) % 7 * 1e-3, "income": np.arange(40) * 1e3, "y": np.arange(40) % 2}
    with pytest.warns(
        hf.errors.HoldfastWarning, match=r"`income` varies by .*`salt` by .*scale = "
    ):
        hf.data.table(far, "y", scale="none")
    x = np.stack([far["salt"], far["income"]], axis=1)
    with pytest.warns(
        hf.errors.HoldfastWarning, match=r"column 1 varies by 1\.1.e\+04 and column 0 by"
    ):
        hf.data.from_arrays(x, far["y"])


def test_labels_of_arrays_that_begin_above_zero():
    x = np.arange(12.0)[:, None]
    with pytest.warns(hf.errors.HoldfastWarning, match=r"labels are 1 to 6; they became 6 classes"):
        data = hf.data.from_arrays(x, np.arange(12) % 6 + 1)
    assert (data.classes, data.label_names) == (6, ("1", "2", "3", "4", "5", "6"))
    quiet = hf.data.from_arrays(x, np.arange(12) % 6 + 1, target="classification")
    assert np.array_equal(quiet.train.y, data.train.y)
    numbers = hf.data.from_arrays(x, np.arange(12) % 6 + 1, target="regression")
    assert (numbers.classes, numbers.train.y.dtype) == (None, np.float32)
    assert numbers.train.y.min() == 1


def test_arrays_have_the_same_designs(tmp_path):
    who = np.array(["a", "b"])[np.arange(40) % 2]
    group = np.arange(40) // 8
    x, y = np.arange(40.0)[:, None], np.arange(40) % 2
    np.savez(tmp_path / "some.npz", x=x, y=y, client=who, group=group)
    data = hf.data.arrays(tmp_path / "some.npz", validation_share=0.2)
    groups = [set((p.x[:, 0] // 8).tolist()) for p in (data.train, data.validation, data.test)]
    assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
    assert sum(map(len, groups)) == 5
    left = hf.data.from_arrays(x, y, client=who, leave_out="b")
    assert set(left.test_owners) == {"b"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "?"}, r"column `x` holds numbers and '\?'; say na_values = \[\"\?\"\]"),
        ({"x": ""}, r"bern\.csv, line 2, column `x` is missing and 19 more; say missing = "),
        ({"x": np.inf}, r"bern\.csv, line 2, column `x` is infinite"),
        ({"z": 1}, r"bern\.csv has other columns than .*basel\.csv: `z` besides; give all files"),
        ({"y": None}, r"bern\.csv, line 2, column `y` is missing and 19 more; drop such rows"),
    ],
)
def test_files_that_do_not_fit_are_named_with_their_line(tmp_path, change, message):
    folder = write_sites(tmp_path / "sites", **change)
    with pytest.raises(hf.HoldfastError, match=message):
        hf.data.table(folder, "y", ignore=["patient", "day"], categorical=["kind"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "yy"}, r"no column `yy`; did you mean `y`"),
        ({"ignore": ["nothing"]}, r"no column `nothing`"),
        ({"leave_out": "zug"}, r"leave_out: no client is called `zug`"),
        ({"leave_out": ["basel", "bern"]}, r"leave_out names all 2 clients"),
        ({"leave_out": "bern", "client": None}, r"leave_out is given, but nothing says whose"),
        ({"leave_out": "bern", "unseen": 0.5}, r"leave_out and unseen both say what to test on"),
        ({"group": "patient", "time": "day"}, r"group and time both say"),
        (
            {"group": "patient", "leave_out": "bern"},
            r"group '0' and 4 more would be trained and tested",
        ),
        ({"split": "kind"}, r"column `kind` is '1'; give train, validation or test"),
        ({"time": "kind"}, r"column `kind` holds no times: .* is '.*'; give numbers or dates"),
        ({"validation_share": 0.9, "test_share": 0.2}, r"leave nothing to train on"),
        ({"positive": [9]}, r"positive: no row has '9' in `y`"),
        ({"positive": [1, 2, 3]}, r"are all values that `y` has"),
        ({"class_weight": {"9": 1}}, r"no class is called `9`"),
        ({"target": "regression", "label": "site", "client": None}, r"'basel'; a regression needs"),
        ({"features": ["x", "y"]}, r"`y` is the label and among the features"),
        ({"features": ["kind"]}, r"column `kind` holds numbers and 'x'; say na_values"),
        ({"label_names": ["1", "2"]}, r"`y` is '3', which is none of the labels 1, 2"),
    ],
)
def test_what_cannot_work_is_refused(change, message):
    settings = {"label": "y", "client": "site", "features": ["x"]} | change
    with pytest.raises(hf.HoldfastError, match=message):
        hf.data.table(visits(), **settings)


def test_a_file_without_names_of_columns(tmp_path):
    path = tmp_path / "raw.data"
    path.write_text("1,2,0\n3,?,1\n\n5,6,0\n7,8,1\n9,9,0\n")
    with pytest.raises(
        hf.HoldfastError, match=r"no column `y`; .* first line looks like data: give names"
    ):
        hf.data.table(path, "y")
    with pytest.raises(hf.HoldfastError, match=r"has 3 columns, and `columns` names 2"):
        hf.data.table(path, "y", columns=["a", "y"])
    with pytest.raises(
        hf.HoldfastError, match=r"raw\.data, line 2, column `b` is missing; say missing"
    ):
        hf.data.table(path, "y", columns=["a", "b", "y"], na_values="?")
    dropped = hf.data.table(path, "y", columns=["a", "b", "y"], na_values=["?"], missing="drop")
    assert len(dropped.train.y) + len(dropped.test.y) == 4


def test_a_site_of_which_no_row_is_left_is_told(tmp_path):
    folder = write_sites(tmp_path / "sites", x=None)
    with pytest.warns(hf.HoldfastWarning, match=r"leaves out 20 of 40 rows, all of bern; ignore"):
        data = hf.data.table(folder, "y", ignore=["patient", "day", "kind"], missing="drop")
    assert set(data.owners) == {"basel"}


def test_the_stand_in_is_its_files(tmp_path):
    from holdfast.data.stand_in import write_sites as write

    write(tmp_path / "sites")
    read = hf.data.table(
        tmp_path / "sites", **{name: value for name, value in RAW.items() if name != "columns"}
    )
    data = hf.data.hospitals()
    assert np.array_equal(read.train.x, data.train.x)
    assert np.array_equal(read.test.y, data.test.y)
    assert read.natural()[0].names == ("cleveland", "hungarian", "switzerland", "va")


@needs("heart-disease")
def test_the_real_hospitals_from_their_raw_files():
    data = hf.data.table(str(SHARED / "heart-disease" / "processed.*.data"), **RAW)
    clients, tests = data.natural()
    assert clients.names == ("cleveland", "hungarian", "switzerland", "va")
    assert (clients.sizes + tests.sizes).tolist() == [303, 294, 123, 200]
    assert data.label_names == ("0", "1/2/3/4")
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(max_iter=1000).fit(data.train.x, data.train.y)
    assert fitted.score(data.test.x, data.test.y) > 0.8


def test_windows_of_an_official_folder_do_not_straddle(tmp_path):
    raw, rng = tmp_path / "RawData", np.random.default_rng(0)
    raw.mkdir()
    # Two people, a recording each: four bouts of five windows, one of them a transition.
    bouts = [(1, 1, 2400), (4, 2401, 4800), (7, 4801, 4930), (5, 5001, 7400)]
    lines = []
    for number in (1, 2):
        for sensor in ("acc", "gyro"):
            path = raw / f"{sensor}_exp{number:02}_user{number:02}.txt"
            np.savetxt(path, rng.normal(size=(7500, 3)) * number, fmt="%.4f")
        lines += [f"{number} {number} {what} {begin} {end}" for what, begin, end in bouts]
    (raw / "labels.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(hf.HoldfastError, match=r"HAPT is missing; give the folder of the official"):
        hf.data.hapt(tmp_path / "HAPT")
    data = hf.data.hapt(tmp_path, window=600, step=300)
    clients, tests = data.natural()
    assert clients.names == ("1", "2")
    # A bout is seven windows; one of three is tested on.
    assert (clients.sizes.tolist(), tests.sizes.tolist()) == ([14, 14], [7, 7])
    for person in range(2):
        assert not set(clients[person].y.tolist()) & set(tests[person].y.tolist())
    assert data.classes == 12
    assert hf.data.hapt(tmp_path, window=100, step=50, transitions=False).classes == 6
    with pytest.raises(hf.HoldfastError, match=r"no activity in .* lasts 9000 samples"):
        hf.data.hapt(tmp_path, window=9000)


@needs("hapt")
def test_the_real_people_have_the_published_windows():
    data = hf.data.hapt(SHARED / "hapt" / "hapt.npz")
    clients, tests = data.natural()
    assert len(clients) == 30
    assert (clients.sizes + tests.sizes).sum() > 10_500
    assert data.train.x.shape[1] == 62
