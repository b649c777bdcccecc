"""A jump of the model is said once, and only where nothing bounds replies."""

import dataclasses
import logging

import numpy as np
import pytest

import holdfast as hf
from holdfast.engine.jumps import Jumps, moved
from tests.problems import QUADRATIC, random_quadratics


def looked(ways, caplog):
    jumps, at = Jumps(), 0.0
    with caplog.at_level(logging.WARNING, "holdfast"):
        for t, way in enumerate(ways, 1):
            jumps.look(t, {"w": np.array([at, 1.0])}, {"w": np.array([at + way, 1.0])})
            at += way
    return [record.getMessage().split(":")[0] for record in caplog.records]


def test_moves_are_joint_norms():
    before = {"a": np.zeros(2, np.float32), "b": np.zeros((1, 1), np.float32)}
    after = {"a": np.array([3e30, 0], np.float32), "b": np.array([[4e30]], np.float32)}
    assert moved(before, after) == pytest.approx(5e30)


def test_of_large_arrays_a_part_stands_for_all():
    before = {"a": np.zeros(10**6 + 7, np.float32)}
    after = {"a": np.full(10**6 + 7, 0.5, np.float32)}
    assert moved(before, after) == pytest.approx(500, rel=1e-3)


def test_a_jump_is_said_once(caplog):
    assert looked([1, 1.1, 0.9, 1, 1, 500, 1, 1, 10**6], caplog) == ["round 6"]


@pytest.mark.parametrize(
    "ways", [[1, 1, 1, 500], [2.0**t for t in range(20)], [0.5**t for t in range(20)]]
)
def test_the_first_rounds_and_steady_growth_are_no_jump(ways, caplog):
    assert looked(ways, caplog) == []


def test_a_run_that_somebody_ends_says_so(caplog):
    clients, _ = random_quadratics(3)
    local = hf.Local(learning_rate=0.05, steps=1)
    states = hf.rounds(hf.algorithms.fedavg(), QUADRATIC, clients, local)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(6):
            state = next(states)
        assert not caplog.records
        # As if one reply had been far off in the round before.
        states.send(dataclasses.replace(state, params=state.params + 1e6))
    assert ["round 7" in record.getMessage() for record in caplog.records] == [True]
