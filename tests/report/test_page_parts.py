"""Verdict, pairs, sites, ends of the scale and axes of the page in a real browser."""

import pytest

from holdfast.report import page
from holdfast.report.appearance import Appearance
from tests.report import made_up
from tests.report.browsing import click, opened, value, wait_for

pytestmark = pytest.mark.browser
CURVES = "document.getElementById('curves-chart')"
RANGE = f"{CURVES}.layout.yaxis.range"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    ends, sites = made_up.with_ends(folder / "ends"), made_up.at_sites(folder / "sites")
    given = Appearance(names={"fedavg": "Ours"}, range=(0.5, 1.0))
    return {
        "ends": page.write(ends, folder / "ends.html").as_uri(),
        "given": page.write(ends, folder / "given.html", given).as_uri(),
        "sites": page.write(sites, folder / "sites.html").as_uri(),
    }


def text(browser, selector):
    return value(browser, f"document.querySelector({selector!r}).textContent")


def columns(browser, table, place):
    rows = f"[...document.querySelectorAll('#{table} tbody tr')]"
    return value(browser, f"{rows}.map(r => r.cells[{place}].textContent)")


def unclipped(browser, width):
    """What sticks out of the page, but for what scrolls within its box."""
    return value(
        browser,
        "[...document.querySelectorAll('main *, header *')]"
        ".filter(e => !e.closest('.scroll, pre, .chart, .chips, .skip')"
        f" && e.getBoundingClientRect().right > {width} + 0.5).map(e => e.id || e.className || e.tagName)",
    )


def test_axes_zoom_and_show_how_far_from_one(browser, pages):
    opened(browser, pages["ends"])
    lines = f"{CURVES}.data.filter(t => t.meta === 'line')"
    assert value(browser, f"{lines}.map(t => t.name)") == ["FedAvg", "FedDyn, alpha 0.1"]
    assert value(browser, f"{lines}[0].x.slice(0, 2)") == [0, 1]  # from the untrained model on
    low, high = value(browser, RANGE)
    assert 0.4 < low < 0.5 < 0.91 < high < 1  # local_only ends at 0.5, all began at 0.1
    click(browser, "#whole")
    wait_for(browser, f"{RANGE}[0] < 0.1")
    click(browser, "#whole")
    click(browser, "#log")
    wait_for(browser, f"{CURVES}.layout.yaxis.type === 'log'")
    assert value(browser, f"{CURVES}.layout.yaxis.title.text") == "1 − accuracy"  # noqa: RUF001
    assert value(browser, f"{lines}[0].y[0]") == pytest.approx(0.9)
    assert "Lower is better" in text(browser, "#curves-note")


def test_ends_of_the_scale_are_lines_and_never_bold(browser, pages):
    opened(browser, pages["ends"])
    ends = f"{CURVES}.data.filter(t => t.meta === 'reference')"
    assert value(browser, f"{ends}.map(t => t.name)") == ["Local only", "Centralised"]
    assert value(browser, f"{ends}[0].y") == pytest.approx([0.5, 0.5])
    assert value(browser, f"{CURVES}.layout.annotations.map(a => a.text)")[0] == "Local only 0.5"
    last = "document.getElementById('standings-table').tBodies[1]"
    assert value(browser, f"{last}.rows.length") == 2
    assert value(browser, f"{last}.querySelectorAll('.best').length") == 0
    assert columns(browser, "standings-table", 0)[:2] == ["FedAvg", "FedDyn, alpha 0.1"]


def test_names_and_range_are_as_asked_for(browser, pages):
    opened(browser, pages["given"])
    assert text(browser, ".chip:nth-child(2)") == "Ours"
    assert value(browser, RANGE) == [0.5, 1.0]
    about = "[...document.querySelectorAll('#settings dt')].map(d => d.textContent)"
    assert value(browser, about)[:2] == ["Data", "Clients"]


def test_the_verdict_is_first_and_sites_have_their_names(browser, pages):
    opened(browser, pages["sites"])
    first = "document.querySelector('h1').nextElementSibling.nextElementSibling"
    assert value(browser, f"{first}.id") == "verdict"
    assert "federated (FedDyn)" in text(browser, "#verdict")
    assert columns(browser, "sites-table", 0) == ["cleveland", "<b>basel</b>few rows", "long beach"]
    assert columns(browser, "sites-table", 2) == ["40", "9", "31"]
    click(browser, "#sites-table thead th:nth-child(3) button")
    assert columns(browser, "sites-table", 2) == ["9", "31", "40"]
    cells = "[...document.querySelectorAll('#sites-table td.heat')]"
    shades = value(browser, f"{cells}.map(c => getComputedStyle(c).backgroundColor)")
    assert len(set(shades)) > 3
    assert "0.453 to 0.937" in value(
        browser, "document.querySelector('#sites-table tbody tr td:nth-child(6)').title"
    )


def test_pairs_are_told_apart_or_not(browser, pages):
    opened(browser, pages["sites"])
    assert columns(browser, "pairs-table", 4) == ["", "cannot be told apart", "worse", "better"]
    chart = "document.getElementById('pairs-chart').data"
    assert value(browser, f"{chart}.map(t => t.name)") == ["Local only", "FedDyn", "Centralised"]
    browser.execute_script(
        "const s = document.getElementById('against'); s.value = 0; s.dispatchEvent(new Event('change'))"
    )
    wait_for(browser, f"{chart}.map(t => t.name)[0] === 'FedAvg'")
    assert columns(browser, "pairs-table", 4) == ["better", "better", "", "better"]
    click(browser, ".chip:nth-child(3)")  # hidden here too
    wait_for(browser, f"{chart}.length === 2")


def test_classes_and_the_ledger_are_of_the_method_chosen(browser, pages):
    opened(browser, pages["sites"])
    assert (
        value(browser, "document.querySelectorAll('#classes-chart .heatmaplayer image').length")
        == 1
    )
    assert columns(browser, "classes-table", 0) == ["well", "<ill>"]
    before = columns(browser, "classes-table", 2)
    choose = "const s = document.getElementById('{}'); s.value = {}; s.dispatchEvent(new Event('change'))"
    browser.execute_script(choose.format("classes-method", 3))
    assert columns(browser, "classes-table", 2) != before
    assert columns(browser, "ledger-table", 0) == ["cleveland", "<b>basel</b>", "long beach"]
    click(browser, "#ledger-table thead th:nth-child(4) button")
    assert columns(browser, "ledger-table", 3) == ["0.0000", "5.0", "5.0"]


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_clipped(browser, pages, width):
    for one in ("ends", "sites"):
        opened(browser, pages[one], width)
        assert value(browser, "document.documentElement.scrollWidth") <= width
        assert unclipped(browser, width) == []
    boxes = "[...document.querySelectorAll('.scroll')].filter(b => b.scrollWidth > b.clientWidth).length"
    assert (value(browser, boxes) > 0) == (width == 390)


def test_every_table_has_headings_and_every_picture_words(browser, pages):
    opened(browser, pages["sites"])
    bare = "filter(d => !d.closest('tr').querySelector('th[scope=row]'))"
    assert value(browser, f"[...document.querySelectorAll('td')].{bare}.length") == 0
    named = (
        "[...document.querySelectorAll('[role=img]')].every(c => c.getAttribute('aria-label') ||"
        " c.getAttribute('aria-labelledby').split(' ').every(id => document.getElementById(id).textContent))"
    )
    shown = "section:not([hidden]) [role=img]"
    assert value(browser, named.replace("[role=img]", shown))
