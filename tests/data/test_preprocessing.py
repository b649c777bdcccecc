"""A preprocessing fitted by sums, counts and sketches of clients is scikit-learn's on all training rows."""

import json

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler

import holdfast as hf
from holdfast.data.preprocessing import Preprocessing, QuantileSketch, Settings, fit

NUMBERS, CATEGORIES = ["age", "chol", "flat"], ["kind"]
SETTINGS = [
    ("standard", "mean"),
    ("standard", "median"),
    ("robust", "most_frequent"),
    ("none", "median"),
]


def hospitals(rows=60, seed=0):
    """Three clients; one has no value of `chol` at all, and numbers lie far from zero."""
    rng = np.random.default_rng(seed)
    site = np.array(["basel", "bern", "chur"])[np.arange(rows) % 3]
    chol = rng.normal(1e6, 3, rows).round(1)
    chol[(site == "chur") | (rng.random(rows) < 0.1)] = np.nan
    age = rng.integers(30, 80, rows).astype(float)
    age[rng.random(rows) < 0.1] = np.nan
    kind = rng.choice(["1", "2", "10"], rows).astype(object)
    kind[5] = None
    return {
        "age": age,
        "chol": chol,
        "flat": np.full(rows, 0.1),
        "kind": kind,
        "ill": rng.integers(0, 2, rows),
        "site": site,
    }


def sklearn_of(scale, missing):
    scaler = {"standard": StandardScaler, "robust": RobustScaler}.get(scale)
    steps = [SimpleImputer(strategy=missing), *([scaler()] if scaler else [])]
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False, categories=[["1", "2", "10"]]),
    )
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(*steps), NUMBERS),
            ("words", words, CATEGORIES),
            ("missing", MissingIndicator(features="missing-only"), [*NUMBERS, *CATEGORIES]),
        ]
    )


@pytest.mark.parametrize(("scale", "missing"), SETTINGS)
def test_it_is_scikit_learns_on_pooled_training_rows(scale, missing):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(hospitals())
    data = hf.data.from_table(
        frame, "ill", "site", scale=scale, missing=missing, indicator=True, categorical=["kind"]
    )
    made = data.preprocessing
    # Which rows were tested on is known by their values: the table again, with the row as an input.
    row = hf.data.from_table(
        frame.assign(row=np.arange(60.0)), "ill", "site", features=["row"], scale="none"
    )
    trained = np.sort(row.train.x[:, 0]).astype(int)
    assert len(trained) == 48
    theirs = sklearn_of(scale, missing)
    theirs.fit(frame.iloc[trained])
    expected = theirs.transform(frame)
    ours = ["age", "chol", "flat", "kind_1", "kind_2", "kind_10"]
    ours += [f"missingindicator_{name}" for name in ("age", "chol", "kind")]
    order = [made.feature_names.index(name) for name in ours]
    assert len(order) == len(made.feature_names) == expected.shape[1]
    columns = {name: np.asarray(frame[name]) for name in made.columns}
    found = np.stack(
        [p for one in made.inputs for p in one.transform(columns[one.name], frozenset())]
    )
    assert np.abs(found[order].T - expected).max() < 1e-6
    in_32_bits = made.transform(frame[list(made.columns)])[:, order]
    assert np.allclose(in_32_bits, expected, rtol=1e-6, atol=2e-6)
    assert np.array_equal(data.train.x, made.transform(frame.iloc[row.train.x[:, 0].astype(int)]))


def test_test_rows_change_no_fitted_number():
    table = hospitals()
    settings = {
        "missing": "median",
        "indicator": True,
        "validation_share": 0.1,
        "class_weight": "balanced",
        "categorical": ["kind"],
    }
    before = hf.data.from_table(table, "ill", "site", **settings)
    row = hf.data.from_table(
        {**table, "row": np.arange(60.0)},
        "ill",
        "site",
        features=["row"],
        scale="none",
        validation_share=0.1,
    )
    held_out = np.concatenate([row.test.x[:, 0], row.validation.x[:, 0]]).astype(int)
    assert len(held_out) == 18
    changed = {name: np.array(values, object) for name, values in table.items()}
    for k in held_out:
        changed["age"][k], changed["chol"][k], changed["kind"][k] = 1e9, None, "new"
        changed["ill"][k] = 1 - changed["ill"][k]
    after = hf.data.from_table(changed, "ill", "site", **settings)
    assert after.preprocessing == before.preprocessing
    assert after.class_weights == before.class_weights
    assert np.array_equal(after.train.x, before.train.x)
    assert not np.array_equal(after.test.x, before.test.x)


def test_a_fit_of_clients_does_not_depend_on_who_has_which_row():
    table = hospitals()
    columns = {name: table[name] for name in NUMBERS}
    settings = Settings(scale="robust", missing="median")
    alone = fit([columns], settings)
    for cuts in ([20, 40], [1, 2, 3], [0, 59]):
        parts = np.split(np.arange(60), cuts)
        sites = [{n: v[rows] for n, v in columns.items()} for rows in parts]
        for one, other in zip(alone.inputs, fit(sites, settings).inputs, strict=True):
            assert np.allclose(
                (one.fill, one.centre, one.scale), (other.fill, other.centre, other.scale)
            )


def test_quantiles_of_large_clients_are_within_the_bound():
    rng = np.random.default_rng(1)
    clients = [rng.normal(k, 1 + k, size) for k, size in enumerate((2500, 40, 7001))]
    sketch = QuantileSketch.merged([QuantileSketch.of(values) for values in clients])
    assert len(sketch.points) <= 2040
    every = np.sort(np.concatenate(clients))
    bound = sum(-(-len(values) // 1000) for values in clients) / 2
    for share in (0.01, 0.25, 0.5, 0.75, 0.99):
        found = sketch.quantile(share)
        rank = np.searchsorted(every, found)
        assert abs(rank - share * (len(every) - 1)) <= bound + 1
    few = [values[:1000] for values in clients]
    exact = QuantileSketch.merged([QuantileSketch.of(values) for values in few])
    assert exact.quantile(0.3) == pytest.approx(np.quantile(np.concatenate(few), 0.3), abs=1e-12)


def test_it_is_plain_json_to_the_last_digit():
    made = hf.data.from_table(
        hospitals(),
        "ill",
        "site",
        missing="mean",
        categorical=["kind"],
        na_values={"*": ["?"], "chol": [0]},
    ).preprocessing
    again = Preprocessing.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again == made
    new = {"age": ["?", "40"], "chol": [0, 1e6], "flat": [0.1, 0.2], "kind": ["2", "unheard of"]}
    assert np.array_equal(again.transform(new), made.transform(new))
    assert made.transform(new)[1, made.feature_names.index("kind_1") :].tolist() == [0, 0, 0]
    assert made.transform(new)[0, 0] == pytest.approx(
        made.transform({**new, "age": [None, 40]})[0, 0]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": None}, r"no column `age`; give age, chol, flat, kind"),
        ({"agee": [1]}, r"unknown column `agee`; did you mean `age`\?"),
        ({"age": ["old"]}, r"row 0 \(from 0\), column `age` is 'old'; give a number"),
        ({"age": [np.inf]}, r"column `age` is infinite"),
        ({"flat": [1, 2]}, r"columns differ in length: `age` has 1"),
    ],
)
def test_new_rows_that_do_not_fit_are_refused(change, message):
    made = hf.data.from_table(hospitals(), "ill", "site", missing="mean").preprocessing
    rows = {"age": [40], "chol": [1e6], "flat": [0.1], "kind": ["1"], "site": ["basel"]} | change
    with pytest.raises(hf.HoldfastError, match=message):
        made.transform({name: values for name, values in rows.items() if values is not None})


def test_a_missing_value_is_refused_where_training_had_none():
    made = hf.data.from_table({"a": np.arange(9.0), "y": [0, 1, 0] * 3}, "y").preprocessing
    with pytest.raises(
        hf.HoldfastError, match=r"row 1 \(from 0\), column `a` is missing; fill it in"
    ):
        made.transform({"a": [1, None]})
