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


def noisy(values, every=1):
    """A history in which every round costs 5 bytes, one and a half models and half a second."""
    costs = {"bytes_down": 3, "bytes_up": 2, "models": 1.5, "seconds": 0.5}
    rounds = range(1, every * len(values) + 1)
    found = [{"round": t, **costs} for t in rounds]
    for record, value in zip(found[every - 1 :: every], values, strict=True):
        record["accuracy"] = value
    return hf.History(found)


def test_a_lucky_evaluation_does_not_reach_a_target_by_the_mean_of_a_window():
    lucky, steady = noisy([0.1, 0.9, 0.1, 0.2, 0.9, 0.9]), noisy([0.4, 0.5, 0.7, 0.8, 0.8, 0.8])
    assert (lucky.rounds_to(0.7), steady.rounds_to(0.7)) == (2, 3)
    # The other way round.
    assert lucky.rounds_to(0.7, window=2) == 6
    assert steady.rounds_to(0.7, window=2) == 4
    assert steady.bytes_to(0.7, window=2) == 20
    assert steady.seconds_to(0.7, window=2) == 2.0
    assert steady.models_to(0.7, window=2) == 6.0
    assert steady.models_to(0.95) is None
    assert hf.History(ERRORS).models_to(0.2, "error") is None  # written before models were counted


def test_a_window_counts_evaluations_and_has_no_mean_before_it_is_full():
    history = noisy([0.9, 0.8, 0.7, 0.6], every=5)
    assert history.rounds_to(0.75) == 5
    assert history.rounds_to(0.75, window=3) == 15
    assert history.rounds_to(0.75, window=4) == 20
    assert history.rounds_to(0.5, window=5) is None
    assert history.rolling("accuracy", 3)[0].tolist() == [15, 20]
    assert history.rolling("accuracy", 5)[0].tolist() == []
    assert history.final(window=2) == pytest.approx(0.65)
    assert history.final(window=100) == pytest.approx(0.75)


def test_equal_values_have_exactly_their_mean_and_a_nan_reaches_nothing():
    assert noisy([0.1] * 10).rounds_to(0.1, window=10) == 10
    gone = noisy([0.9, float("nan"), 0.9, 0.9])
    assert gone.rounds_to(0.5, window=2) == 4
    with pytest.raises(hf.HoldfastError, match="window=0; give how many evaluations"):
        gone.rounds_to(0.5, window=0)
    with pytest.raises(hf.HoldfastError, match=r"window=2\.5"):
        gone.rounds_to(0.5, window=2.5)


def test_the_rise_time_is_to_90_percent_of_the_final_value():
    history = noisy([0.2, 0.71, 0.6, 0.75, 0.78, 0.8])
    assert history.rise_time() == 4
    # Of the mean 0.79 of the last two, by the mean of two.
    assert history.rise_time(window=2) == 5
    assert history.rise_time(share=0.8) == 2
    with pytest.raises(hf.HoldfastError, match="`error` is better low"):
        hf.History(ERRORS).rise_time("error")


def test_models_transmitted_are_relative_to_a_round_of_fedavg():
    local = hf.Local(0.1)
    settings = (hf.models.softmax_regression(3), tiny_clients(), local, 2)
    for algorithm, each in ((hf.algorithms.fedavg(), 1.0), (hf.algorithms.scaffold(), 1.5)):
        run = hf.simulate(algorithm, *settings)
        assert run.history["models"].tolist() == [each, each]
        assert run.history["models"].sum() == run.ledger.models_transmitted


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
