"""What a notebook shows: one look at data, clients, runs and sweeps, whatever names they have."""

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, two_quadratics

TAGS = set(
    [
        "div",
        "b",
        "span",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "svg",
        "rect",
        "g",
        "title",
        "polyline",
    ]
)
EVIL = "<script>alert(1)</script>"


class Words(HTMLParser):
    """The text of a page; what is opened must be closed, and no element may do anything."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS
        assert not [name for name, _ in attributes if name.startswith("on")]
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in ("rect", "polyline")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def shown(value):
    return Words(value._repr_html_()).text


@pytest.fixture(scope="module")
def hospitals():
    x = np.arange(24.0).reshape(12, 2)
    client = np.array([EVIL, "basel", "bern"])[[0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2]]
    return hf.data.from_arrays(x, np.arange(12) % 2, client=client, test_share=0.0)


def test_a_data_set_shows_sizes_classes_and_owners(hospitals):
    text = shown(hospitals)
    assert "12 examples to train on" in text
    assert f"3 owners: {EVIL}, basel, bern" in text
    assert "class to train on to test on 0 6 0 1 6 0" in text
    assert "x (64,) float32; y int32" in shown(hf.data.digits())


def test_names_of_classes_and_features_are_shown(hospitals):
    named = hf.data.Dataset(
        hospitals.train,
        hospitals.test,
        classes=2,
        feature_names=("age", "<b>"),
        label_names=("well", "ill"),
    )
    text = shown(named)
    assert "features: age, <b>" in text
    assert "well 6 0 ill 6 0" in text


def test_clients_are_shown_by_name_with_their_sizes_and_classes(hospitals):
    clients, _ = hospitals.natural()
    text = shown(clients)
    assert text.startswith("Clients 3 clients with 12 examples, 2 to 5 each, 2 classes")
    assert f"{EVIL} 2 0: 1 1: 1 basel 5" in text


def test_many_clients_are_a_picture():
    train, _ = hf.data.digits()
    clients = hf.data.partition.dirichlet(train, clients=100, concentration=0.1)
    page = clients._repr_html_()
    assert len(page) < 100_000
    assert page.count("<rect") > 100
    assert "100 clients" in Words(page).text


def test_clients_without_classes_are_shown_by_size():
    assert "2 clients with 2 examples, 1 each" in shown(two_quadratics())
    x = np.ones((30, 1))
    text = shown(hf.data.partition.in_order(hf.Examples(x, x[:, 0]), clients=30))
    assert "Sizes of clients" in text


def test_a_run_shows_first_best_and_last():
    data = hf.Examples(np.array([[1.0], [1.0]]), np.array([[0.0], [2.0]]))
    run = hf.simulate(
        hf.algorithms.fedavg(),
        QUADRATIC,
        two_quadratics(),
        hf.Local(0.1, steps=2),
        rounds=4,
        evaluate=hf.evaluate.on(data),
    )
    text = shown(run)
    losses = run.history["loss"]
    assert "fedavg round 4, 2 clients, quadratic with 1 parameters, seed 0" in text
    best = int(np.argmin(losses))
    assert f"{losses[0]:.4g} {losses[best]:.4g} {best + 1} {losses[-1]:.4g}" in text
    assert shown(run.history).startswith("History 4 rounds round loss")
    empty = hf.simulate(
        hf.algorithms.fedavg(), QUADRATIC, two_quadratics(), hf.Local(0.1), rounds=0
    )
    assert "round 0, 2 clients" in shown(empty)


def test_a_sweep_shows_its_table():
    found = hf.sweep(
        hf.algorithms.fedprox(mu=0.1),
        QUADRATIC,
        two_quadratics(),
        hf.Local(0.1),
        rounds=1,
        over={"rule.mu": [0.01, 0.1]},
    )
    assert re.match(r"Sweep of fedprox 2 points, 1 seed each mu MB 0.01 .* 0.1 ", shown(found))
    assert found.table().to_frame()["rule.mu"].tolist() == [0.01, 0.1]


def test_history_is_a_frame():
    history = hf.History([{"round": 1, "loss": 0.5}, {"round": 2}, {"round": 3, "auc": 0.25}])
    frame = history.to_frame()
    assert frame.columns.tolist() == ["round", "loss", "auc"]
    assert frame["round"].tolist() == [1, 2, 3]
    assert frame["loss"].isna().tolist() == [False, True, True]
    assert hf.History().to_frame().empty


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(hf.HoldfastError, match=r"pandas is not installed.*holdfast\[data\]"):
        hf.History([{"round": 1}]).to_frame()
