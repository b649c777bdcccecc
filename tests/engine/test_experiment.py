"""One description of a run, which every way to run it takes."""

import dataclasses
import inspect

import numpy as np
import pytest

import holdfast as hf
from holdfast.engine import setup
from holdfast.engine.experiment import Settings
from tests.problems import same_bits, tiny_clients

ONE = hf.Experiment(
    hf.algorithms.fedprox(0.1),
    hf.models.mlp([4], 3),
    tiny_clients(),
    hf.Local(0.1, batch_size=4),
    cohort=hf.cohorts.fixed(2),
    seed=3,
)


def test_an_experiment_and_its_arguments_are_the_same_run():
    plain = {f.name: getattr(ONE, f.name) for f in dataclasses.fields(ONE)}
    runs = [hf.simulate(ONE, rounds=2), hf.simulate(**plain, rounds=2)]
    states = hf.rounds(ONE)
    next(states)
    assert same_bits(runs[0].params, runs[1].params)
    assert same_bits(runs[0].params, next(states).params)
    assert runs[0].experiment is ONE
    assert same_bits(runs[0].params, hf.simulate(ONE, 2).params)


def test_a_sweep_takes_one():
    found = hf.sweep(ONE, rounds=2, over={"rule.mu": [0.1, 0.5]}, seeds=[3])
    assert same_bits(found.runs[0][0].params, hf.simulate(ONE, rounds=2).params)


def test_settings_are_the_fields_with_a_default():
    fields = dataclasses.fields(hf.Experiment)
    optional = {f.name: f.type for f in fields if f.default is not dataclasses.MISSING}
    assert Settings.__annotations__ == optional
    assert list(inspect.signature(hf.simulate).parameters)[:4] == [f.name for f in fields[:4]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hf.simulate(ONE, rounds=1, seed=2), "an Experiment and `seed` are given"),
        (lambda: hf.simulate(ONE, hf.models.mlp([4], 3), rounds=1), "and `model` are given"),
        (lambda: hf.simulate(ONE.algorithm, rounds=1), "`model` is missing"),
        (lambda: hf.simulate(ONE), "`rounds` is missing"),
        (lambda: hf.sweep(ONE, rounds=1, ovr={"rule.mu": [1]}), "did you mean `over`"),
        (lambda: hf.sweep(ONE, rounds=1, over={"rule.mu": [1]}, seeds=2), "has seed 3, and seeds"),
        (lambda: hf.simulate(ONE, rounds=1, chekpoint="x"), "did you mean `checkpoint`"),
        (lambda: hf.rounds(ONE, stat=None), "did you mean `start`"),
        (lambda: hf.sweep(ONE, rounds=1, over={"rule.mu": [1]}, seed=1), "give seeds="),
        (lambda: hf.Experiment(ONE.algorithm, colour=1), "unknown argument `colour`"),
    ],
)
def test_mistakes_get_one_line(call, message):
    with pytest.raises(hf.HoldfastError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_it_is_checked_once(monkeypatch):
    times = []
    check = setup._checked
    monkeypatch.setattr(setup, "_checked", lambda given: times.append(1) or check(given))
    given = dataclasses.replace(ONE)
    setup.checked(given)
    hf.simulate(given, rounds=1)
    assert len(times) == 1


def test_the_users_algorithm_is_left_alone():
    test = tiny_clients(1).examples
    run = hf.simulate(dataclasses.replace(ONE, evaluate=hf.evaluate.client_average(test)), rounds=1)
    assert run.simulation.setup.algorithm.rule == ONE.algorithm.rule
    assert not np.isnan(run.history["average_loss"][0])


def test_calling_the_protocol_makes_the_default_engine():
    assert hf.Engine(width=2) == hf.CompiledEngine(width=2)
    assert isinstance(hf.Engine(), hf.CompiledEngine)


def test_data_that_was_changed_in_place_is_the_data_of_the_next_run():
    clients = tiny_clients(dtype=np.float64)
    plain = (ONE.algorithm, ONE.model, clients, ONE.local)
    before = hf.simulate(*plain, 1).params
    clients.examples.y[:] = 0
    assert not same_bits(hf.simulate(*plain, 1).params, before)
    given = hf.Experiment(*plain)
    before = hf.simulate(given, 1).params
    clients.examples.y[:] = 1
    assert not same_bits(hf.simulate(given, 1).params, before)


def test_a_run_ends_where_it_is_told_to_and_is_saved_there(tmp_path):
    settings = {"rounds": 9, "checkpoint": hf.Checkpoint(tmp_path, every=5)}
    run = hf.simulate(ONE, until=lambda state: state.round == 2, **settings)
    assert run.state.round == 2
    seen = []
    again = hf.simulate(ONE, until=lambda s: s.round == 3, on_round=seen.append, **settings)
    assert [state.round for state in seen] == [3]
    assert again.state.round == 3


def test_a_first_round_must_be_a_method():
    with pytest.raises(hf.HoldfastError, match="first_round='flix' is a str; give an Algorithm"):
        hf.simulate(dataclasses.replace(ONE, first_round="flix"), rounds=1)
