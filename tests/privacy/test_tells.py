"""What a method tells of a client is part of its page."""

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.config import described

TELLING = {
    "scaffold": "mean gradient",
    "fedpvr": "masked leaves",
    "feddc": "c_i",
    "fedsplit": "z_i",
    "flix": "stays with its client",
    "flix_one_shot": "own optimum",
    "diana": "shift",
}


@pytest.mark.parametrize("name", TELLING)
def test_show_says_what_is_told(name):
    assert TELLING[name] in described.find("algorithm", name).tells
    shown = CliRunner().invoke(app, ["show", name], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "tells" in shown.output


def test_fedavg_tells_its_update_and_nothing_beside():
    assert described.find("algorithm", "fedavg").tells == ""
    assert "tells " not in CliRunner().invoke(app, ["show", "fedavg"]).output
