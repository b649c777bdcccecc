"""The character model against the equations of its docstring, in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import tree

import holdfast as hf
from holdfast.models import GRU, gru

VOCABULARY, EMBEDDING, WIDTH = 5, 3, 4


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def gru_in_numpy(params, x):
    p = tree.map(np.asarray, params)
    w_r, w_z, w_n = np.split(p["input"]["kernel"], 3, axis=1)
    b_r, b_z, b_n = np.split(p["input"]["bias"], 3)
    u_r, u_z, u_n = np.split(p["recurrent"], 3, axis=1)
    logits = np.zeros((*x.shape, VOCABULARY))
    for i, text in enumerate(x):
        h = np.zeros(WIDTH)
        for t, character in enumerate(text):
            e = p["characters"]["embedding"][character]
            r = sigmoid(e @ w_r + b_r + h @ u_r)
            z = sigmoid(e @ w_z + b_z + h @ u_z)
            n = np.tanh(e @ w_n + b_n + r * (h @ u_n + p["candidate_bias"]))
            h = (1 - z) * n + z * h
            logits[i, t] = h @ p["classifier"]["kernel"] + p["classifier"]["bias"]
    return logits


def problem(seed=0):
    """Parameters none of which is zero, and texts."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, VOCABULARY, (3, 7))
    examples = hf.Examples(jnp.asarray(text[:, :-1]), jnp.asarray(text[:, 1:]))
    model = gru(VOCABULARY, EMBEDDING, WIDTH)
    like = jax.eval_shape(lambda: model.init(jax.random.key(0), examples))
    assert {a.dtype for a in tree.leaves(like)} == {jnp.dtype("float32")}
    return tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), like), examples


def test_forward_pass_is_the_equations(x64):
    params, examples = problem()
    found = jax.jit(GRU(VOCABULARY, EMBEDDING, WIDTH).apply)({"params": params}, examples.x)
    np.testing.assert_allclose(found, gru_in_numpy(params, np.asarray(examples.x)), rtol=1e-10)


@pytest.mark.parametrize("padding", [None, 2])
def test_loss_and_accuracy_are_means_over_the_positions_that_count(x64, padding):
    params, examples = problem()
    x, y = (np.array(a) for a in examples)
    y[0] = 2  # with padding, an example of which nothing counts
    logits = gru_in_numpy(params, x)
    likelihood = np.take_along_axis(logits, y[..., None], 2)[..., 0]
    values = {
        "loss": np.log(np.exp(logits).sum(axis=2)) - likelihood,
        "accuracy": (logits.argmax(axis=2) == y).astype(float),
    }
    counted = np.ones(y.shape) if padding is None else (y != padding).astype(float)
    model = gru(VOCABULARY, EMBEDDING, WIDTH, padding)
    batch = hf.Examples(examples.x, jnp.asarray(y))
    found = jax.jit(model.measure)(params, batch)
    for name, value in values.items():
        expected = (value * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
        np.testing.assert_allclose(found[name], expected, rtol=1e-10, err_msg=name)
    np.testing.assert_allclose(jax.jit(model.loss)(params, batch), found["loss"], rtol=1e-12)


def test_it_learns_a_text_by_heart():
    text = np.array([[ord(c) - ord("a") for c in "abcabdabcabdabcabd"]], np.int32)
    examples = hf.Examples(jnp.asarray(text[:, :-1]), jnp.asarray(text[:, 1:]))
    model = gru(4, embedding=4, width=16)
    params = model.init(jax.random.key(0), examples)
    slope = jax.grad(lambda params: model.loss(params, examples)[0])

    @jax.jit
    def train(params, steps):
        return jax.lax.fori_loop(0, steps, lambda _, p: hf.trees.axpy(-0.5, slope(p), p), params)

    measure = jax.jit(model.measure)
    before, after = measure(params, examples), measure(train(params, 200), examples)
    assert after["loss"][0] < 0.2 * before["loss"][0]
    assert after["accuracy"][0] > 0.9  # c or d depends on the character three before it


def test_equal_settings_give_the_same_model():
    assert gru(5) is gru(vocabulary=5, embedding=96, width=128, padding=None)
    assert gru(5) is not gru(5, padding=0)


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ([[0.0, 1.0]], [[1, 2]], "x: its type is float64"),
        ([[0, 1]], [[1, 5]], "y: found characters 1..5 but they must lie in 0..4"),
        ([[-1, 1]], [[1, 2]], "x: found characters -1..1"),
    ],
)
def test_unknown_characters_are_refused(x, y, says):
    with pytest.raises(hf.HoldfastError, match=says):
        gru(VOCABULARY).check(hf.Examples(np.array(x), np.array(y)))


@pytest.mark.parametrize("wrong", [{"vocabulary": 1}, {"width": 0}, {"padding": 5}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(hf.HoldfastError, match=f"{next(iter(wrong))}="):
        gru(**{"vocabulary": VOCABULARY, **wrong})
