"""A history knows which way its columns are better."""

import dataclasses

import pytest

import holdfast as hf
from tests.problems import tiny_clients

ERRORS = tuple(
    {"round": t, "error": e, "oddity": e, "bytes_down": 3, "bytes_up": 2, "seconds": 0.5}
    for t, e in enumerate([0.5, 0.1, 0.3], start=1)
)


def test_an_error_is_reached_from_above():
    history = hf.History(ERRORS)
    assert history.rounds_to(0.2, "error") == 2
    assert history.bytes_to(0.2, "error") == 10
    assert history.seconds_to(0.2, "error") == 1.0
    assert history.rounds_to(0.05, "error") is None


def test_an_odd_name_is_declared_or_said_where_it_is_asked():
    history = hf.History(ERRORS)
    with pytest.raises(hf.HoldfastError, match="metric `oddity`: nobody said"):
        history.rounds_to(0.2, "oddity")
    assert history.rounds_to(0.2, "oddity", greater_is_better=False) == 2
    assert history.bytes_to(0.2, "oddity", greater_is_better=True) == 5
    assert history.seconds_to(0.2, "error", greater_is_better=True) == 0.5
    declared = hf.History(ERRORS, directions={"oddity": False})
    assert declared.rounds_to(0.2, "oddity") == 2
    assert declared.record({"round": 4, "oddity": 0.0}).rounds_to(0.0, "oddity") == 4
    assert declared.directions == (("oddity", False),)
    assert repr(declared) == repr(history)
    assert declared != history


def test_directions_are_gone_on_with(tmp_path):
    model = hf.models.softmax_regression(3)
    settings = (hf.algorithms.fedavg(), model, tiny_clients(), hf.Local(0.1), 0)
    state = hf.simulate(*settings).state
    store, identity = hf.Checkpoint(tmp_path), {"seed": "0"}
    store.save(state, identity)
    fresh = dataclasses.replace(state, history=hf.History(directions={"oddity": False}))
    assert store.load(fresh, identity).history.directions == (("oddity", False),)


def test_records_by_their_former_name():
    history = hf.History(ERRORS)
    assert history.rows is history.records
    with pytest.raises(AttributeError):
        history.rows = ()
