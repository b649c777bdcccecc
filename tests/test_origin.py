"""Mistakes in one's own code: the author's own lines, in a sentence, and none of ours."""

import dataclasses
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, two_quadratics


class Deciding(hf.Rule):
    def reply(self, delta, at):
        if jnp.sum(delta) > 0:
            return delta, ()
        return -delta, ()


class Converting(hf.Rule):
    def step(self, delta, heard, at):
        return np.asarray(delta), at.state


class Looking(hf.Rule):
    def reply(self, delta, at):
        return self.looked_up(delta), ()

    def looked_up(self, delta):
        return {"sex": delta}["age"]


@dataclasses.dataclass(frozen=True)
class Dividing:
    every: int = 1
    keeps_last_models: bool = False

    def check(self, model, params, clients):
        pass

    def __call__(self, view):
        return {"ratio": 1 / 0}


def run(rule=None, model=QUADRATIC, **settings):
    algorithm = hf.Algorithm(rule or hf.Rule())
    return hf.simulate(algorithm, model, two_quadratics(), hf.Local(0.1), rounds=1, **settings)


def refused(*given, **settings):
    with pytest.raises(hf.HoldfastError) as caught:
        run(*given, **settings)
    return str(caught.value), files(caught.value)


def files(error):
    """Of which files a traceback shows lines, without the test itself."""
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.filename.rpartition("/")[2] for frame in frames if frame.name != "refused"]


def test_a_decision_by_a_traced_value_names_function_line_and_remedy():
    said, shown = refused(Deciding())
    assert "Deciding.reply (" in said
    assert "test_origin.py, line 17): `if jnp.sum(delta) > 0:`" in said
    assert "decides by the value of an array" in said
    assert "jnp.where(condition, a, b)" in said
    assert "jax.lax.cond" in said
    assert "Traced" not in said
    assert set(shown) <= {"test_origin.py", "simulate.py", "origin.py"}


def test_numpy_on_a_traced_value_is_told_apart():
    said, _ = refused(Converting())
    assert "Converting.step (" in said
    assert "use jax.numpy instead of numpy" in said


def test_in_rounds_too():
    with pytest.raises(KeyError) as caught:
        hf.rounds(hf.Algorithm(Looking()), QUADRATIC, two_quadratics(), hf.Local(0.1))
    assert any("Looking.looked_up" in note for note in caught.value.__notes__)
    settings = {"local": hf.Local(0.1), "evaluate": Dividing()}
    states = hf.rounds(hf.algorithms.fedavg(), QUADRATIC, two_quadratics(), **settings)
    with pytest.raises(ZeroDivisionError) as caught:
        next(states)
    assert any("Dividing.__call__" in note for note in caught.value.__notes__)


def test_what_own_code_raises_keeps_its_type_and_has_its_own_lines_alone():
    with pytest.raises(KeyError, match="age") as caught:
        run(Looking())
    assert [f.name for f in traceback.extract_tb(caught.value.__traceback__)][-2:] == [
        "reply",
        "looked_up",
    ]
    shown = "".join(traceback.format_exception(caught.value))
    assert "holdfast/core" not in shown
    assert "holdfast/engine" not in shown
    assert "site-packages" not in shown
    assert "Raised by Looking.looked_up (" in shown
    assert "JAX has removed" not in shown


def test_an_evaluator_that_raises_is_named():
    with pytest.raises(ZeroDivisionError) as caught:
        run(evaluate=Dividing())
    assert set(files(caught.value)) == {"test_origin.py"}
    assert "Dividing.__call__ (" in caught.value.__notes__[0]


def test_a_loss_that_raises_is_named():
    def loss(w, batch):
        return batch.z

    model = hf.Model(init=QUADRATIC.init, loss=loss, name="mine")
    said, _ = refused(model=model)
    assert (
        "'Examples' object has no attribute 'z' (Raised by test_a_loss_that_raises_is_named.loss ("
        in said
    )

    def deciding(w, batch):
        return batch.y[:, 0] if w[0] > 0 else batch.x[:, 0]

    said, _ = refused(model=dataclasses.replace(model, loss=deciding))
    assert "deciding (" in said
    assert "jnp.where" in said


def test_everything_is_shown_where_it_is_asked_for():
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        with pytest.raises(KeyError) as caught:
            run(Looking())
    finally:
        jax.config.update("jax_traceback_filtering", before)
    assert "template.py" in files(caught.value)


def test_a_callback_may_end_a_run_by_an_error_of_its_own():
    class EnoughError(Exception):
        pass

    def on_round(state):
        raise EnoughError

    with pytest.raises(EnoughError):
        run(on_round=on_round)


DIGITS = hf.data.digits()


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"cohort": 5}, "cohort=5 is a int; 5 clients in a round are cohort=hf.cohorts.fixed(5)."),
        ({"cohort": np.int64(2)}, "cohort=hf.cohorts.fixed(2)."),
        ({"cohort": 0.1}, "cohort=hf.cohorts.bernoulli(0.1)"),
        ({"cohort": -1}, "give one of hf.cohorts, such as hf.cohorts.fixed(10)."),
        ({"evaluate": DIGITS.test}, "give evaluate=hf.evaluate.on(test)."),
        ({"evaluate": [DIGITS.test]}, "give evaluate=hf.evaluate.on(test)."),
        ({"evaluate": tuple(DIGITS.test)}, "give evaluate=hf.evaluate.on(test)."),
        ({"evaluate": DIGITS.test._asdict()}, "give evaluate=hf.evaluate.on(test)."),
        ({"evaluate": DIGITS}, "give evaluate=hf.evaluate.on(data.test)."),
        ({"evaluate": two_quadratics()}, "give evaluate=hf.evaluate.personal(tests)."),
        ({"evaluate": 3}, "give one or several of hf.evaluate"),
    ],
)
def test_likely_slips_are_told_what_was_meant(settings, remedy):
    said, shown = refused(**settings)
    assert said.endswith(remedy) or remedy in said
    assert "\n" not in said
    assert set(shown) == {"test_origin.py"}
