"""Clients and classes one by one."""

import json

import numpy as np
import pytest
from sklearn.metrics import f1_score, recall_score
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.runs import results
from holdfast.runs.classes import by_class, confusion
from holdfast.runs.differences import judged_by
from holdfast.runs.sites import names_of_clients, names_of_labels, sites, traffic

FILE = """\
rounds = 3
[data]
name = "table"
path = "people.csv"
label = "ill"
client = "site"
[partition]
name = "natural"
[model]
name = "softmax_regression"
[local]
learning_rate = 0.2
[cohort]
name = "fixed"
size = 2
[[algorithm]]
name = "fedavg"
[[algorithm]]
name = "local_only"
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    place = tmp_path_factory.mktemp("sites")
    rng = np.random.default_rng(0)
    lines = ["age,weight,site,ill"]
    for site, count in (("basel", 40), ("bern", 60), ("chur", 20)):
        for _ in range(count):
            x = rng.normal(size=2)
            lines.append(f"{x[0]:.3f},{x[1]:.3f},{site},{'yes' if x.sum() > 0 else 'no'}")
    (place / "people.csv").write_text("\n".join(lines) + "\n")
    (place / "e.toml").write_text(FILE.replace("people.csv", str(place / "people.csv")))
    said = CliRunner().invoke(app, ["run", str(place / "e.toml"), "--out", str(place / "run")])
    assert said.exit_code == 0, said.output
    return results.load([place / "run"]), said.output


def test_names_go_all_the_way(found):
    loaded, said = found
    assert names_of_clients(loaded) == {0: "basel", 1: "bern", 2: "chur"}
    assert names_of_labels(loaded) == ("no", "yes")
    assert loaded.methods[0].clients[0]["name"] == ["basel", "bern", "chur"]
    assert "over 3 sites" in said
    assert "at chur" in said


def test_the_ledger_per_client_sums_to_the_whole(found):
    loaded, _ = found
    fedavg, alone = loaded.methods
    each = traffic(fedavg, names_of_clients(loaded))
    assert {t.name for t in each} <= {"basel", "bern", "chur"}
    assert sum(t.rounds for t in each) == 6
    total = fedavg.in_all("bytes_down", "bytes_up").mean
    assert sum(t.bytes_down + t.bytes_up for t in each) == total
    assert all(t.bytes_down == t.bytes_up == t.rounds * 24 for t in each)
    assert sum(t.bytes_down + t.bytes_up for t in traffic(alone)) == 0


def test_a_table_of_sites_has_every_methods_figure_and_the_sizes(found):
    loaded, _ = found
    rows = sites(loaded, judged_by(loaded))
    assert [row.name for row in rows] == ["basel", "bern", "chur"]
    assert sum(row.trained_on + row.tested_on for row in rows) == 120
    path = loaded.methods[0].files[0].path / "clients.json"
    known = json.loads(path.read_text())["accuracy"]
    assert [row.figures["fedavg"].estimate for row in rows] == pytest.approx(known)
    assert all(f.low <= f.estimate <= f.high for row in rows for f in row.figures.values())


def test_classes_are_scikit_learns(found):
    loaded, _ = found
    method = loaded.methods[0]
    (known,) = method.predictions.values()
    table = confusion(method, names_of_labels(loaded))
    assert table.names == ("no", "yes")
    assert table.counts.sum() == len(known)
    assert np.trace(table.counts) / table.counts.sum() == pytest.approx(known.mean("accuracy"))
    each = by_class(method, names_of_labels(loaded))
    assert [c.name for c in each] == ["no", "yes"]
    assert each[1].f1 == pytest.approx(f1_score(known.label, known.predicted))
    assert each[0].recall == pytest.approx(recall_score(1 - known.label, 1 - known.predicted))
    assert [c.rows for c in each] == table.counts.sum(axis=1).tolist()
    of_one = confusion(method, client=2)
    assert of_one.counts.sum() == (known.client == 2).sum()
