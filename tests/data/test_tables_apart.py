"""A table at several sites is fitted from their answers as all rows in one place are, to the bit."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.data.tables.apart import Fitted, TableApart, TableSettings, Together


def rows(regression=False):
    rng = np.random.default_rng(0)
    n = 60
    site = np.array(["a", "b", "c"], object)[rng.integers(0, 3, n)]
    age = rng.normal(50, 10, n).astype(object)
    age[::7] = None
    label = rng.normal(3, 2, n) if regression else np.array([0, 1, 2, 3])[rng.integers(0, 4, n)]
    # One label that a site alone has.
    if not regression:
        label[site == "b"] = np.where(label[site == "b"] == 3, 2, label[site == "b"])
    return {
        "age": age,
        "ward": np.array(["x", "y", "z"], object)[rng.integers(0, 3, n)],
        "dose": rng.exponential(5, n),
        "label": label,
        "part": np.array(["train", "train", "test"], object)[rng.integers(0, 3, n)],
        "site": site,
    }


CASES = {
    "classes": ({"missing": "mean", "class_weight": "balanced"}, False),
    "robust": ({"missing": "median", "scale": "robust", "indicator": True}, False),
    "positive": ({"missing": "most_frequent", "positive": [2, 3]}, False),
    "dropped": ({"missing": "drop", "features": ["dose", "age"]}, False),
    "regression": ({"missing": "mean"}, True),
    "unscaled": ({"missing": "mean", "scale": "none", "features": ["dose"]}, True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning")
def test_sites_fit_what_one_place_fits(name):
    settings, regression = CASES[name]
    whole = rows(regression)
    simulated = hf.data.table(whole, "label", "site", split="part", **settings)
    given = TableSettings(label="label", split="part", ignore=["site"], **settings)
    tables = {}
    for site in "abc":
        mine = whole["site"] == site
        tables[site] = TableApart({k: v[mine] for k, v in whole.items()}, given)
    together = Together(given, tuple(t.there() for t in tables.values()), tuple("abc"))
    answers = [t.answers(together.questions, together.regression) for t in tables.values()]
    fitted = Fitted.from_dict(together.fitted(answers).to_dict())
    assert fitted.preprocessing.inputs == simulated.preprocessing.inputs
    assert fitted.preprocessing.target == simulated.preprocessing.target
    assert fitted.label_names == simulated.label_names
    assert fitted.class_weights == simulated.class_weights
    for site, table in tables.items():
        own = fitted.of_rows(table)
        for part, owners in (("train", simulated.owners), ("test", simulated.test_owners)):
            there, here = getattr(simulated, part), getattr(own, part)
            assert np.array_equal(there.x[owners == site], here.x)
            assert np.array_equal(there.y[owners == site], here.y)


def test_sites_with_other_columns_are_named():
    given = TableSettings(label="y")
    tables = [TableApart({"y": [0, 1], name: [1.0, 2.0]}, given) for name in ("age", "weight")]
    with pytest.raises(hf.HoldfastError, match="site south has other inputs than site north: age"):
        Together(given, tuple(t.there() for t in tables), ("north", "south"))
