"""Stacked LSTMs against the equations of their docstring, in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import tree

import holdfast as hf
from holdfast.models import LSTM, lstm

SETTINGS = {"vocabulary": 5, "embedding": 3, "width": 4, "layers": 2}


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm_in_numpy(params, x):
    p = tree.map(np.asarray, params)
    inputs = p["characters"]["embedding"][x]
    for layer in (p["lstm_0"], p["lstm_1"]):
        h = c = np.zeros((len(x), SETTINGS["width"]))
        states = []
        for e in inputs.swapaxes(0, 1):
            gates = e @ layer["input"]["kernel"] + layer["input"]["bias"] + h @ layer["recurrent"]
            i, f, g, o = np.split(gates, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states.append(h)
        inputs = np.stack(states, axis=1)
    return h @ p["classifier"]["kernel"] + p["classifier"]["bias"]


def test_logits_loss_and_accuracy_are_the_equations(x64):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (6, 7)), rng.integers(0, 5, 6)
    model = lstm(**SETTINGS)
    like = jax.eval_shape(lambda: model.init(jax.random.key(0), hf.Examples(x, y)))
    assert {a.dtype for a in tree.leaves(like)} == {jnp.dtype("float32")}
    params = tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), like)
    logits = lstm_in_numpy(params, x)
    found = jax.jit(LSTM(**SETTINGS).apply)({"params": params}, x)
    np.testing.assert_allclose(found, logits, rtol=1e-10)
    measured = jax.jit(model.measure)(params, hf.Examples(jnp.asarray(x), jnp.asarray(y)))
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(6), y]
    np.testing.assert_allclose(measured["loss"], expected, rtol=1e-10)
    np.testing.assert_array_equal(measured["accuracy"], logits.argmax(axis=1) == y)


def test_the_papers_network_has_its_number_of_parameters():
    examples = hf.Examples(np.zeros((1, 80), np.int32), np.zeros(1, np.int32))
    begun = jax.eval_shape(lambda: lstm(80).init(jax.random.key(0), examples))
    # PyTorch's has 400 more in each layer: its second bias.
    layers = 4 * 100 * (8 + 100 + 1) + 4 * 100 * (100 + 100 + 1)
    assert sum(a.size for a in tree.leaves(begun)) == 80 * 8 + layers + 101 * 80


def test_it_trains_in_a_federation():
    text = np.array([0, 1, 2, 3, 4] * 8, np.int32)
    x = np.lib.stride_tricks.sliding_window_view(text, 6)
    examples = hf.Examples(x[:, :5], x[:, 5])
    run = hf.simulate(
        hf.algorithms.fedavg(),
        lstm(5, embedding=4, width=8, layers=2),
        hf.data.partition.by(examples, np.arange(len(x)) % 2),
        hf.Local(learning_rate=1.0, steps=40, batch_size=10),
        rounds=3,
        evaluate=hf.evaluate.on(examples),
    )
    assert run.history["loss"][-1] < 0.5 * run.history["loss"][0]


def test_equal_settings_give_the_same_model():
    assert lstm(5) is lstm(vocabulary=5, embedding=8, width=100, layers=2)
    assert lstm(5) is not lstm(5, layers=1)


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ([[0.0, 1.0]], [1], "x: its type is float64"),
        ([[0, 1]], [5], "y: found characters 5..5 but they must lie in 0..4"),
        ([[0, 1]], [[1, 2]], r"y \(1, 2\); give x of shape"),
    ],
)
def test_unknown_characters_and_other_shapes_are_refused(x, y, says):
    with pytest.raises(hf.HoldfastError, match=says):
        lstm(5).check(hf.Examples(np.array(x), np.array(y)))


@pytest.mark.parametrize("wrong", [{"vocabulary": 1}, {"width": 0}, {"layers": 0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(hf.HoldfastError, match=f"{next(iter(wrong))}="):
        lstm(**{"vocabulary": 5, **wrong})
