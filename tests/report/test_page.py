"""The report page in a real browser: drawn, sortable, switchable, readable on a phone, and alone."""

import json

import pytest

from holdfast.report import page
from tests.report import made_up
from tests.report.browsing import click, opened, value, wait_for

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return page.write(made_up.usual(folder / "usual"), folder / "report.html").as_uri()


@pytest.fixture
def shown(browser, address):
    return opened(browser, address)


def lines(browser, chart):
    """How many curves a chart has drawn."""
    return value(browser, f"document.querySelectorAll('#{chart} .scatterlayer .js-line').length")


def methods_in_order(browser, table="standings-table"):
    rows = f"[...document.querySelectorAll('#{table} tbody tr')]"
    return value(browser, f"{rows}.map(r => Number(r.dataset.method))")


def test_it_loads_without_complaint_or_network(browser, address):
    browser.get_log("performance")
    browser.get_log("browser")
    opened(browser, address)
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    events = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    asked = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked), asked


def test_the_charts_are_drawn(shown):
    assert value(shown, "document.querySelectorAll('.js-plotly-plot').length") == 3
    assert lines(shown, "curves-chart") == 3 + 3 + 1  # curves, bands and the target
    assert lines(shown, "clients-chart") == 3
    assert value(shown, "document.querySelectorAll('#split-0 .heatmaplayer image').length") == 1
    assert value(shown, "document.querySelectorAll('#split-0 .barlayer .point').length") == 12


def test_clicking_a_heading_sorts_by_number_both_ways(shown):
    heading = "#standings-table thead th:nth-child(2) button"
    click(shown, heading)
    assert methods_in_order(shown) == [1, 0, 2]  # 5 before 12, which as words would come first
    click(shown, heading)
    assert methods_in_order(shown) == [0, 1, 2]  # not reached stays at the end
    sorted_by = value(shown, "document.querySelector('#standings-table th:nth-child(2)').ariaSort")
    assert sorted_by == "descending"
    click(shown, "#standings-table thead th:nth-child(4) button")
    assert methods_in_order(shown) == [2, 0, 1]
    click(shown, "#standings-table thead th:nth-child(1) button")
    assert methods_in_order(shown) == [1, 0, 2]


def test_hiding_a_method_hides_it_everywhere(shown):
    click(shown, ".chip:nth-child(2)")
    wait_for(
        shown, "document.querySelectorAll('#clients-chart .scatterlayer .js-line').length === 2"
    )
    assert lines(shown, "curves-chart") == 2 + 2 + 1
    off = "[...document.querySelectorAll('tr.off')].map(r => r.dataset.method)"
    assert value(shown, off) == ["1", "1"]
    click(shown, "#show-all")
    wait_for(
        shown, "document.querySelectorAll('#clients-chart .scatterlayer .js-line').length === 3"
    )
    assert value(shown, off) == []


def test_the_keyboard_suffices(shown):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    chip = shown.find_element(By.CSS_SELECTOR, ".chip")
    chip.send_keys(Keys.SPACE)
    assert chip.get_attribute("aria-pressed") == "false"
    shown.find_element(By.CSS_SELECTOR, "input[name=axis]").send_keys(Keys.ARROW_RIGHT)
    assert value(shown, "document.querySelector('input[name=axis]:checked').value") == "megabytes"
    shown.find_element(By.CSS_SELECTOR, "#standings-table thead th:nth-child(2) button").send_keys(
        Keys.ENTER
    )
    assert methods_in_order(shown) == [1, 0, 2]


def test_axis_and_metric_can_be_switched(shown):
    curve = "document.getElementById('curves-chart').data.find(t => t.meta === 'line')"
    assert value(shown, f"{curve}.x.at(-1)") == 20
    click(shown, "input[value=megabytes]")
    wait_for(shown, f"{curve}.x.at(-1) === 30")
    click(shown, "input[value=seconds]")
    wait_for(shown, f"{curve}.x.at(-1) === 10")
    shown.execute_script(
        "const s = document.getElementById('metric'); s.value = 'loss'; s.dispatchEvent(new Event('change'))"
    )
    wait_for(shown, f"{curve}.y.at(-1) > 1")
    assert lines(shown, "curves-chart") == 3 + 3  # the target is one of accuracy
    click(shown, "#log")
    wait_for(shown, "document.getElementById('curves-chart').layout.yaxis.type === 'log'")


def test_the_theme_can_be_switched_and_charts_follow(shown):
    look = (
        "[document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor,"
        " document.getElementById('curves-chart').layout.font.color]"
    )
    light = value(shown, look)
    click(shown, "#theme")
    wait_for(shown, "document.documentElement.dataset.theme === 'dark'")
    dark = value(shown, look)
    assert light[0] == "light"
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_a_dark_screen_gets_a_dark_page(browser, address):
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        opened(browser, address)
        assert value(browser, "document.documentElement.dataset.theme") == "dark"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_need_not_scroll_sideways(browser, address):
    opened(browser, address, width=375)
    assert value(browser, "document.documentElement.scrollWidth") <= 375
    assert value(browser, "innerWidth") == 375
    assert value(browser, "document.querySelector('.scroll').scrollWidth") > 375


def test_labels_are_shown_as_they_are(shown):
    label = made_up.STRANGE
    assert value(shown, "document.querySelectorAll('.chip')[1].textContent") == label
    cell = "document.querySelector('#standings-table tr[data-method=\"1\"] th span').textContent"
    assert value(shown, cell) == label
    shown.execute_script("Plotly.Fx.hover('curves-chart', {xval: 5})")
    wait_for(shown, "document.querySelector('#curves-chart .hoverlayer').textContent !== ''")
    assert "<b>quick</b>" in value(
        shown, "document.querySelector('#curves-chart .hoverlayer').textContent"
    )


def test_the_configuration_is_text_not_markup(shown):
    assert value(shown, "document.querySelector('#configuration code').textContent") == (
        made_up.EXPERIMENT
    )
    assert value(shown, "document.querySelector('.toml-key').textContent") == "rounds"


def test_a_sweep_is_drawn_by_key_and_figure(browser, tmp_path):
    path = page.write(made_up.swept(tmp_path / "swept"), tmp_path / "report.html")
    browser.get_log("browser")
    opened(browser, path.as_uri())
    chart = "document.getElementById('sweep-chart')"
    assert value(browser, f"{chart}.data.map(t => t.name)") == [
        "FedAvg",
        "FedDyn, alpha 1",
        "FedDyn, alpha 2",
    ]
    assert value(browser, f"{chart}.layout.xaxis.type") == "log"
    choose = "const s = document.getElementById('{}'); s.value = '{}'; s.dispatchEvent(new Event('change'))"
    browser.execute_script(choose.format("sweep-key", "alpha"))
    wait_for(browser, f"{chart}.layout.xaxis.type === 'linear'")
    browser.execute_script(
        choose.format("sweep-figure", "rounds to accuracy 0.505 (first evaluation there)")
    )
    wait_for(browser, f"{chart}.data.length === 1")  # the others never get there
    assert "Left out" in value(browser, "document.getElementById('sweep-note').textContent")
    click(browser, ".chip:nth-child(3)")  # a hidden point is hidden here too
    wait_for(browser, f"{chart}.data[0].y[0] === null")
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


def test_without_a_sweep_nothing_of_it_is_shown(shown):
    assert value(shown, "document.getElementById('sweep').hidden")
