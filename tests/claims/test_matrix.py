"""A part of the matrix of combinations: what was once wrong, and a few drawn at random.

All of it is `make matrix`.
"""

import random

import pytest

from tests.claims import matrix

# Without a word, each of these was another method once.
ONCE_WRONG = {
    ("one_way_transfer", "clip", "select"): "equal",
    ("one_way_transfer", "plain", "join"): "equal",
    ("scaffold, option I", "plain", "select"): "equal",
    ("fedpvr", "plain", "select"): "equal",
    ("feddc", "plain", "select"): "refused",
    ("fedprox", "Adam", "select"): "equal",
    ("fedavg", "decay", "select"): "equal",
    ("feddyn", "weighting", "join"): "equal",
}
_ALL = [(name, *pair) for name in matrix.METHODS for pair in matrix.pairs()]
DRAWN = random.Random(14).sample(_ALL, 6)


@pytest.mark.parametrize("which", ONCE_WRONG, ids=", ".join)
def test_what_was_once_another_method(which):
    found = matrix.cell(*which)
    assert found is not None
    assert found.outcome == ONCE_WRONG[which], found.text


@pytest.mark.parametrize("which", DRAWN, ids=", ".join)
def test_equal_or_refused(which):
    found = matrix.cell(*which)
    assert found is None or found.outcome in ("equal", "refused"), found.text


def test_the_page_is_of_these_methods():
    text = matrix.PAGE.read_text("utf-8")
    assert [name for name in matrix.METHODS if f"## {name}\n" not in text] == []
    assert "**different**" not in text
