"""The debug engine: the same round, and exceptions that say where."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import largest_difference, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
LOCAL = hf.Local(0.1, epochs=2, batch_size=4)


def run(model=MODEL, algorithm=None, **settings):
    algorithm = algorithm or hf.algorithms.feddyn(alpha=0.1)
    local = settings.pop("local", LOCAL)
    return hf.simulate(algorithm, model, tiny_clients(), local, 2, seed=1, **settings)


def test_the_same_numbers_as_compiled():
    once = {"local": hf.Local(0.1, batch_size=4), "evaluate": hf.evaluate.on(tiny_clients()[0])}
    debug, compiled = run(engine=hf.DebugEngine(), **once), run(**once)
    assert largest_difference(debug.params, compiled.params) < 1e-6
    np.testing.assert_allclose(debug.history["loss"], compiled.history["loss"], rtol=1e-5)
    assert debug.ledger == compiled.ledger


def test_an_exception_in_the_loss_carries_round_client_step_and_batch():
    clients = tiny_clients()
    bad_row = int(clients.rows(2)[3])
    marked = np.asarray(clients.examples.x)[bad_row]

    def loss(params, batch, key):
        if any(np.array_equal(row, marked) for row in np.asarray(batch.x)):
            raise ZeroDivisionError("this example is not welcome")
        return MODEL.loss(params, batch, key)

    with pytest.raises(
        hf.DebugError, match=r"round 0, client 2, step \d, batch .*not welcome"
    ) as at:
        run(model=dataclasses.replace(MODEL, loss=loss), engine=hf.DebugEngine())
    assert (at.value.round, at.value.client) == (0, 2)
    assert bad_row in at.value.batch
    assert at.value.step in (0, 1)
    assert isinstance(at.value.__cause__, ZeroDivisionError)


def test_it_stops_at_the_first_number_that_is_not_finite():
    marked = float(tiny_clients()[1].x[0, 0])

    def loss(params, batch, key):
        sick = (batch.x[:, 0] == marked).any()
        return MODEL.loss(params, batch, key) * jnp.where(sick, jnp.nan, 1.0)

    model = dataclasses.replace(MODEL, loss=loss)
    assert run(model=model).history["left_out"].tolist() == [1, 1]
    with pytest.raises(hf.DebugError, match=r"client 1, step .*the gradient is not finite") as at:
        run(model=model, engine=hf.DebugEngine())
    assert tiny_clients().rows(1)[0] in at.value.batch


def test_an_exception_in_a_rule_is_located_too():
    class Late(hf.Rule):
        def tilt(self, at):
            if float(at.weight) > 1:  # possible only with values, not while compiling
                raise RuntimeError("a heavy client")
            return hf.Tilt()

    with pytest.raises(hf.DebugError, match=r"round 0, client 1: RuntimeError: a heavy client"):
        run(algorithm=hf.Algorithm(Late()), engine=hf.DebugEngine())
