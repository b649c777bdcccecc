"""Metrics of whole test sets that a file asks for."""

import json
import re

import numpy as np
import pytest
import sklearn.metrics as sk
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read
from holdfast.runs import results
from holdfast.runs.folder import RunFolder

FILE = """\
rounds = 2
metric = "cost"
target = 2.0
data = "breast_cancer"

[partition]
name = "by_classes"
clients = 4
classes = 1

[model]
name = "logistic_regression"

[local]
learning_rate = 0.1
steps = 3

[evaluate]
personal = true
metrics = ["auc", "brier", "mine.py:cost", { name = "mine.py:hits", greater_is_better = true }]

[[algorithm]]
name = "fedavg"
"""
MINE = """\
import numpy as np

def cost(labels, predictions):
    return 5.0 * float(np.mean((labels == 1) & (predictions < 0.5)))

cost.greater_is_better = False

def hits(labels, predictions):
    return float(np.sum((predictions > 0.5) == (labels == 1)))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "e.toml").write_text(FILE)
    return tmp_path


def test_by_name_and_of_ones_own(here):
    shared = FILE.replace("classes = 1", "classes = 2")
    (here / "e.toml").write_text(shared)
    ended = CliRunner().invoke(app, ["run", "e.toml", "--out", "out", "--no-report"])
    assert ended.exit_code == 0, ended.output
    found = results.load(["out"])
    (method,) = found.methods
    assert {"auc", "brier", "cost", "hits", "personal_auc", "personal_cost_worst_tenth"} <= set(
        method.histories[0].columns
    )
    about = json.loads((here / "out" / "methods.json").read_text())
    assert about["greater_is_better"] == {"cost": False, "hits": True}
    assert method.rounds_to(2.0, "cost").values[0] == 1
    clients = method.clients[0]
    assert np.mean(clients["auc"]) == pytest.approx(method.histories[0]["personal_auc"][-1])
    predicted = RunFolder.open("out").seeds("fedavg")[0].predictions()
    mine = predicted.client == 0
    alone = sk.roc_auc_score(predicted.label[mine], predicted.output[mine])
    assert clients["auc"][0] == pytest.approx(alone, abs=1e-6)


def test_clients_of_one_class_have_none_and_that_is_said(here):
    some = FILE.replace('"by_classes"', '"dirichlet"').replace("classes = 1", "concentration = 0.1")
    (here / "e.toml").write_text(some.replace("clients = 4", "clients = 8\nseed = 3"))
    ended = CliRunner().invoke(app, ["run", "e.toml", "--dry-run"])
    assert ended.exit_code == 0, ended.output
    said = " ".join(ended.output.split())
    assert re.search(r"warning auc: \d of \d clients \(.*\) have test examples of one class", said)
    (here / "e.toml").write_text(FILE)
    ended = CliRunner().invoke(app, ["run", "e.toml", "--dry-run"])
    assert ended.exit_code == 2
    assert "no client has test examples of two" in " ".join(ended.output.split())


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        (
            '["f2_macro"]',
            "metric `f2_macro` is not computed of predictions; did you mean `f1_macro`",
        ),
        ('["auc", "auc"]', "`auc` is there twice"),
        ('["r2"]', "`r2` takes the numbers of a regression"),
        ('["mine.py:hits"]', "`hits`: nobody said whether greater is better"),
        ('["mine.py:nothing"]', "mine.py has no `nothing`"),
        ('[{ name = "auc", greater_is_better = true }]', "which way `auc` is better is known"),
        ('[{ name = "auc", k = 3 }]', "unknown key `k`"),
        ('"auc"', "expected a list"),
        ("[3]", "expected a name in quotes"),
    ],
)
def test_what_a_file_may_not_ask_for(here, metrics, says):
    (here / "e.toml").write_text(FILE.replace('metric = "cost"\ntarget = 2.0\n', ""))
    with pytest.raises(ExperimentFileError, match=says) as refused:
        study(read(here / "e.toml", ["partition.classes=2", f"evaluate.metrics={metrics}"]))
    assert "metrics" in str(refused.value) or "line" in str(refused.value)


def test_a_target_that_no_value_can_be_at(here):
    with pytest.raises(
        ExperimentFileError, match=r"target 95 for auc, which is never above 1; give 0.95"
    ):
        study(read(here / "e.toml", ["partition.classes=2", "metric=auc", "target=95"]))
