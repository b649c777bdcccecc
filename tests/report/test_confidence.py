"""The Confidence section: its numbers are those of the run folders, and it can be read without the paper."""

import json

import numpy as np
import pytest

from holdfast.report import confidence, page
from holdfast.report.content import content
from tests.report import made_up
from tests.report.browsing import opened, value


@pytest.fixture(scope="module")
def sure(tmp_path_factory):
    return made_up.at_sites(tmp_path_factory.mktemp("runs") / "sure", confident=("",))


@pytest.fixture(scope="module")
def values(sure):
    return content(sure)


def texts(cells):
    return [cell["text"] for cell in cells]


def test_numbers_are_means_over_seeds(values):
    (about,) = values["confidence"]
    assert about["asked"] == pytest.approx(0.9)
    assert texts(about["rows"][0]) == ["90.0 %", "90.5 %", "1.5", "40.0 %", "5.0 %", "56.0 %"]
    assert about["curves"][1] == {
        "asked": [0.95, 0.9, 0.5],
        "coverage": [0.95, 0.905, 0.5],
        "size": [3.0, 2.5, 1.0],
    }
    # An interval without end has no width to draw.
    assert about["curves"][3]["size"] == [None, 4.5, 1.0]
    wanted = 1.96 * np.sqrt(0.09 * (1 / 60 + 1 / 80))
    assert about["chance"] == pytest.approx(wanted)
    assert about["rounded"] == 0.03


def test_who_gets_less_than_asked_by_more_than_chance(values):
    clients = values["confidence"][0]["clients"][2]
    assert [c["name"] for c in clients] == list(made_up.SITES)
    # 9 rows of basel: 0.56 is less than 0.9 - 1.96 sqrt(0.09 (1/60 + 1/9)).
    assert [c["short"] for c in clients] == [False, True, False]
    assert texts(clients[1]["cells"]) == ["56.0 %", "1.7", "100.0 %", "2"]
    classes = values["confidence"][0]["classes"][0]
    assert [(c["name"], c["tested"], *texts(c["cells"])) for c in classes] == [
        ("well", 40, "100.0 %", "1"),
        ("<ill>", 40, "80.0 %", "2"),
    ]


def test_without_calibration_there_is_no_section(tmp_path):
    made = content(made_up.usual(tmp_path / "usual"))
    assert made["confidence"] is None
    json.dumps(made["confidence"])


def test_nothing_to_calibrate_with_is_no_number(tmp_path):
    about = made_up.sure(0, 0) | {"calibrated_on": 0, "size": None}
    assert confidence.chance(0.9, 0, 80) == np.inf
    folder = made_up.begin(tmp_path / "none", ["only"], clients=3)
    made_up.add(
        folder, 0, 0, made_up.rows(0.04, 0), made_up.client_results(0, 3), confidence=[about]
    )
    (found,) = content(made_up.results.load([tmp_path / "none"]))["confidence"]
    assert found["chance"] is None
    assert texts(found["rows"][0])[2] == "-"
    page.render(made_up.results.load([tmp_path / "none"]))


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_section_in_a_browser(browser, sure, tmp_path, width):
    shown = opened(browser, page.write(sure, tmp_path / "page.html").as_uri(), width)
    assert not value(shown, "document.getElementById('confidence').hidden")
    said = value(shown, "document.getElementById('confidence').innerText").replace("\u00a0", " ")
    for words in (
        "names a set of labels",
        "90 % of them hold the right label",
        "each sent a count of how well its rows fit, and no row",
        "is what chance allows",
        "coverage may be up to 3 % higher than asked",
        "One client gets less than asked",
        "<b>basel</b>",
        "<ill>",
    ):
        assert words in said
    assert value(shown, "document.documentElement.scrollWidth <= innerWidth")
    # One line for each method, and none for what is hidden.
    count = "document.getElementById('confidence-chart').data.length"
    assert value(shown, count) == 4
    browser.execute_script("document.querySelector('.chip').click()")
    assert value(shown, count) == 3
    # The other figure has what was asked along its axis.
    browser.execute_script(
        "const s = document.getElementById('confidence-figure'); s.value = 'coverage'; s.onchange()"
    )
    axis = "document.getElementById('confidence-chart').layout.xaxis.title.text"
    assert value(shown, axis) == "coverage asked"
    assert (
        value(
            shown,
            "getComputedStyle(document.getElementById('confidence-population').parentElement).display",
        )
        == "none"
    )
    errors = [line for line in shown.get_log("browser") if line["level"] == "SEVERE"]
    assert not errors


@pytest.mark.browser
def test_populations_are_chosen_from(browser, tmp_path):
    both = made_up.at_sites(tmp_path / "runs", confident=("phones", "hubs"))
    shown = opened(browser, page.write(both, tmp_path / "page.html").as_uri())
    options = (
        "[...document.getElementById('confidence-population').options].map((o) => o.textContent)"
    )
    assert value(shown, options) == ["phones", "hubs"]
