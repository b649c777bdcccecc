"""The section on drift: what it is made of, and in a real browser."""

import pytest

from holdfast.report import page
from holdfast.report.content import content
from tests.report import made_up
from tests.report.browsing import opened, value, wait_for
from tests.report.test_page_parts import text, unclipped

CHART = "document.getElementById('drift-chart').data"
MAP = "document.getElementById('drift-map').data"


@pytest.fixture(scope="module")
def drifting(tmp_path_factory):
    return made_up.drifting(tmp_path_factory.mktemp("drift") / "run")


def test_lines_are_means_over_seeds_from_the_first_layer_to_the_last(drifting):
    found = content(drifting)["drift"]
    assert [f["column"] for f in found["families"]] == ["drift_diversity", "cka"]
    first, second = found["methods"]
    assert second is None
    lines = first["lines"]["drift_diversity"]
    assert [line["layer"] for line in lines] == ["", *made_up.LAYERS]
    assert lines[3]["rounds"][:2] == [1, 2]
    # 0.3 a round, and 0 and 1 by the seed.
    assert lines[3]["values"][:2] == pytest.approx([0.8, 1.1])
    assert [line["layer"] for line in first["lines"]["cka"]] == list(made_up.LAYERS)


def test_matrices_are_of_some_rounds_of_one_seed(drifting):
    found = content(drifting)["drift"]["methods"][0]
    assert found["layers"] == list(made_up.LAYERS)
    rounds = [m["round"] for m in found["matrices"]]
    assert len(rounds) == 6
    assert (rounds[0], rounds[-1]) == (2, 20)
    assert found["matrices"][0]["clients"] == ["0", "5"]
    # What is no number is nothing, and the page stays JSON.
    assert found["matrices"][0]["layers"][2] == [
        [1.0, 0.6, 0.9],
        [0.6, 1.0, None],
        [0.9, None, 1.0],
    ]


def test_layers_are_not_among_the_metrics_of_progress(drifting):
    names = content(drifting)["metrics"]
    assert "drift_diversity" in names
    assert not any("/" in name for name in names)


def test_without_an_order_a_classifier_is_the_last(tmp_path):
    found = made_up.drifting(tmp_path / "run", seeds=1, matrices=False, methods=("fedavg",))
    (method,) = content(found)["drift"]["methods"]
    lines = method["lines"]["drift_diversity"]
    assert [line["layer"] for line in lines] == ["", *made_up.LAYERS]
    assert method["matrices"] == []


def test_nothing_is_said_where_nothing_was_measured(tmp_path):
    assert content(made_up.usual(tmp_path / "run"))["drift"] is None


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_figures_layers_and_rounds_can_be_chosen(browser, drifting, tmp_path, width):
    opened(browser, page.write(drifting, tmp_path / "page.html").as_uri(), width)
    assert not value(browser, "document.getElementById('drift').hidden")
    assert value(browser, f"{CHART}.map(t => t.name)") == ["whole model", *made_up.LAYERS]
    colours = value(browser, f"{CHART}.map(t => t.line.color)")
    assert len(set(colours)) == 4
    assert "FedPVR" in text(browser, "#drift-words")
    assert value(browser, f"{MAP}[0].z.length") == 3
    assert value(browser, f"{MAP}[0].zmin") == pytest.approx(0.6)
    choose = "const s = document.getElementById('{}'); s.value = '{}'; s.dispatchEvent(new Event('change'))"
    browser.execute_script(choose.format("drift-figure", "cka"))
    wait_for(browser, f"{CHART}.length === 3")
    assert "before they are averaged" in text(browser, "#drift-words")
    browser.execute_script(choose.format("drift-layer", made_up.LAYERS[0]))
    wait_for(browser, f"{MAP}[0].z[0][1] === 1")
    browser.execute_script(choose.format("drift-round", 2))
    assert value(browser, "document.getElementById('drift-round').value") == "2"
    assert value(browser, "document.documentElement.scrollWidth") <= width
    assert unclipped(browser, width) == []
    assert [e for e in browser.get_log("browser") if e["level"] == "SEVERE"] == []


@pytest.mark.browser
def test_the_section_is_hidden_where_nothing_was_measured(browser, tmp_path):
    opened(browser, page.write(made_up.usual(tmp_path / "run"), tmp_path / "page.html").as_uri())
    assert value(browser, "document.getElementById('drift').hidden")
