"""The verdict, what can be told apart and the sites: what the page says is what the test rows say."""

import pytest

from holdfast.report.content import content
from holdfast.runs.differences import difference, judged_by
from holdfast.runs.verdict import verdict
from tests.report import made_up


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return made_up.at_sites(tmp_path_factory.mktemp("runs") / "sites")


@pytest.fixture(scope="module")
def values(sites):
    return content(sites)


def test_the_page_begins_with_the_verdict(sites, values):
    assert values["verdict"] == list(verdict(sites).sentences)
    assert "raining together is worth it" in values["verdict"][0]
    assert "9 at <b>basel</b>" in " ".join(values["verdict"])


def test_every_pair_is_the_paired_difference(sites, values):
    pairs = values["pairs"]
    found = difference(sites.methods[1], sites.methods[0], judged_by(sites))
    shown = pairs["differences"][1][0]
    assert shown["estimate"] == found.gain.estimate == -pairs["differences"][0][1]["estimate"]
    assert (shown["low"], shown["high"]) == (found.gain.low, found.gain.high)
    assert shown["says"] == "better"
    assert pairs["differences"][0][1]["says"] == "worse"
    assert pairs["differences"][2][1]["says"] == "cannot be told apart"
    assert pairs["baseline"] == 1
    assert pairs["over"] == "80 test rows of 3 clients and 2 seeds, one split of the data"


def test_the_best_is_said_to_be_no_better_where_that_is_open(values):
    best = next(h for h in values["highlights"] if h["title"] == "Highest final accuracy")
    assert best["note"] == "cannot be told apart from FedAvg"


def test_sites_have_names_sizes_and_figures(values):
    table = values["sites"]
    assert table["named"]
    assert [s["name"] for s in table["sites"]] == list(made_up.SITES)
    assert [(s["trained"], s["tested"]) for s in table["sites"]] == [(6, 40), (15, 9), (10, 31)]
    cell = table["sites"][1]["cells"][2]
    assert cell["value"] == pytest.approx(7 / 9)
    assert cell["interval"] == "0.453 to 0.937"  # Wilson's, of 7 of 9


def test_classes_have_names_and_figures(values):
    assert values["splits"][0]["classes"] == ["well", "<ill>", "two", "three"]
    found = values["classes"][1]
    assert found["names"] == ["well", "<ill>"]
    assert sum(map(sum, found["counts"])) == 80
    right = 36 + 6 + 28
    assert found["counts"][0][0] + found["counts"][1][1] == right
    rows, recall, *_ = found["rows"][0]
    assert (rows["text"], recall["value"]) == ("40", pytest.approx(found["counts"][0][0] / 40))


def test_the_ledger_is_told_by_client(values):
    found = values["ledger"][1]
    assert [row["name"] for row in found] == list(made_up.SITES)
    assert [cell["text"] for cell in found[0]["cells"]] == ["20", "20.0", "0.0000"]
    assert [cell["text"] for cell in found[2]["cells"]] == ["10", "10.0", "5.0"]


def test_what_turned_is_flagged(tmp_path):
    folder = made_up.begin(tmp_path / "turns", ["fedavg"])
    history = made_up.rows(0.04, 0)
    for row in history:
        row["loss"] = abs(row["round"] - 8) / 10
    made_up.add(folder, 0, 0, history, made_up.client_results(0))
    (flag,) = content(made_up.results.load([tmp_path / "turns"]))["flags"]
    assert flag.startswith("FedAvg: loss was lowest around round 8")


def test_splits_and_seeds_are_told_apart(tmp_path):
    folder = made_up.begin(tmp_path / "splits", ["fedavg", "feddyn"])
    for number in range(2):
        for split in range(2):
            for seed in range(2):
                slope = 0.02 + 0.01 * split
                made_up.add(folder, number, seed, made_up.rows(slope, seed), split=split)
    made = content(made_up.results.load([tmp_path / "splits"]))
    assert made["scatter"][0]["splits"]["value"] == pytest.approx(0.2 / 2**0.5)
    assert made["scatter"][0]["seeds"]["value"] == pytest.approx(0.03 / 2**0.5)
    assert made["sites"] is None
    assert "20 rounds with 2 seeds of each of 2 splits" in made["summary"]


def test_older_runs_have_no_evidence(tmp_path):
    made = content(made_up.usual(tmp_path / "old", seeds=1))
    assert (made["verdict"], made["pairs"], made["sites"]) == ([], None, None)
