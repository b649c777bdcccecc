"""The dual encoder and its regulariser, against a float64 transcription of the paper."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import tree

import holdfast as hf
from holdfast.models import DualEncoder, dual_encoder, spreadout
from tests.problems import largest_difference

GOLDEN = Path(__file__).parents[1] / "claims" / "golden" / "derived_dualencoder.npz"


def golden(dtype):
    """The stored arrays, the parameters they belong to and the batch."""
    with np.load(GOLDEN) as stored:
        z = dict(stored)
    table, kernel, bias = (jnp.asarray(z[k], dtype) for k in ("E", "W", "b"))
    params = {"context": {"kernel": kernel, "bias": bias}, "table": table}
    return z, params, hf.Examples(jnp.asarray(z["context"]), jnp.asarray(z["label"]))


def mean_loss(model):
    return lambda params, batch: jnp.mean(model.loss(params, batch))


@jax.jit
def results(params, batch):
    """What the file stores, through the public API."""
    shape = params["table"].shape
    model = dual_encoder(*shape, margin=0.9)
    context, label = DualEncoder(*shape).apply({"params": params}, batch.x, batch.y)
    found = {"similarities": context @ label.T}
    found["hinge"] = jnp.mean(model.measure(params, batch)["loss"])
    gradient = jax.grad(mean_loss(model))(params, batch)
    found["dhinge_dE"] = gradient["table"]
    found["dhinge_dW"] = gradient["context"]["kernel"]
    found["dhinge_db"] = gradient["context"]["bias"]
    for name, skip_padding in (("spreadout", False), ("spreadout_without_pad_row", True)):
        spread = spreadout(strength=1.0, skip_padding=skip_padding)
        found[name], gradient = jax.value_and_grad(spread)(params)
        found[f"d{name}_dE"] = gradient["table"]
    return found


def assert_reproduced(dtype, rtol, atol):
    z, params, batch = golden(dtype)
    found = results(params, batch)
    assert z["margin"] == 0.9
    assert set(z) - set(found) == {"E", "W", "b", "context", "label", "margin"}
    for name, value in found.items():
        assert value.dtype == dtype
        np.testing.assert_allclose(value, z[name], rtol, atol, err_msg=name)


def test_every_stored_number_in_float64(x64):
    assert_reproduced(jnp.float64, rtol=1e-8, atol=1e-10)


def test_every_stored_number_in_float32():
    assert_reproduced(jnp.float32, rtol=1e-4, atol=1e-5)


def test_selected_rows_with_local_ids_give_the_same_loss_and_gradient(x64):
    z, params, batch = golden(jnp.float64)
    model = dual_encoder(*z["E"].shape)
    rows = np.unique(np.concatenate([[0], z["context"].ravel(), z["label"]]))
    assert len(rows) < len(z["E"])
    selected = {**params, "table": params["table"][rows]}
    local = tree.map(lambda ids: jnp.searchsorted(rows, ids), batch)
    value_and_gradient = jax.jit(jax.value_and_grad(mean_loss(model)))
    value, gradient = value_and_gradient(selected, local)
    full_value, full_gradient = value_and_gradient(params, batch)
    assert largest_difference(value, full_value) < 1e-15
    expected = {**full_gradient, "table": full_gradient["table"][rows]}
    assert largest_difference(gradient, expected) < 1e-15


@pytest.mark.parametrize("rows", [15, 16])
def test_spreadout_is_its_definition_for_few_and_for_many_rows(x64, rows):
    table = np.random.default_rng(rows).normal(size=(rows, 8))
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosines = unit @ unit.T - np.eye(rows)
    found = jax.jit(spreadout(0.3))({"table": jnp.asarray(table)})
    np.testing.assert_allclose(found, 0.3 * np.linalg.norm(cosines), rtol=1e-12)


@pytest.mark.parametrize("table", [np.zeros((12, 4)), np.eye(4)])
def test_gradients_are_finite_where_nothing_has_a_direction(table):
    params = {
        "context": {"kernel": jnp.zeros((4, 4)), "bias": jnp.zeros(4)},
        "table": jnp.asarray(table, jnp.float32),
    }
    nothing_seen = hf.Examples(jnp.zeros((2, 3), jnp.int32), jnp.zeros(2, jnp.int32))
    hinge = mean_loss(dual_encoder(len(table) + 1, width=4))
    slope = jax.jit(jax.grad(lambda p: hinge(p, nothing_seen) + spreadout(1.0)(p)))(params)
    assert hf.trees.finite(slope)


def recall(table, labels):
    """Of examples whose contexts all point along the first axis."""
    table = jnp.asarray(table, jnp.float32)
    params = {
        "context": {"kernel": jnp.zeros((2, 2)), "bias": jnp.array([1.0, 0.0])},
        "table": table,
    }
    batch = hf.Examples(jnp.ones((len(labels), 2), jnp.int32), jnp.array(labels))
    measure = jax.jit(dual_encoder(len(table), width=2).measure)
    return measure(params, batch)["recall_at_10"].tolist()


def test_recall_counts_the_ten_nearest_items():
    angles = np.linspace(0, 3, 21)  # row 0, padding, is the nearest of all
    table = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert recall(table, labels=[1, 10, 11, 20]) == [1, 1, 0, 0]


def test_recall_of_items_that_are_all_equal_is_zero():
    assert recall(np.ones((21, 2)), labels=[1, 20]) == [0, 0]


def test_the_model_begins_in_32_bits_where_64_are_enabled(x64):
    model, examples = dual_encoder(7, width=3), hf.Examples(np.ones((1, 2), int), np.ones(1, int))
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), examples))
    shapes = "context/bias float32(3,), context/kernel float32(3, 3), table float32(7, 3)"
    assert hf.trees.describe_shapes(params) == shapes


def test_equal_settings_give_the_same_model_and_equal_spreadouts():
    assert dual_encoder(7) is dual_encoder(items=7, width=16, margin=0.9)
    assert dual_encoder(7) is not dual_encoder(7, margin=0.8)
    assert hash(spreadout(0.1)) == hash(spreadout(strength=0.1, skip_padding=False))
    assert spreadout(0.1) == spreadout(0.1) != spreadout(0.1, skip_padding=True)


def test_a_new_strength_compiles_nothing():
    compiled = jax.jit(lambda spread, table: spread({"table": table}))
    table = jnp.ones((3, 2))
    values = [float(compiled(spreadout(strength), table)) for strength in (1.0, 2.0)]
    assert values[1] == pytest.approx(2 * values[0])
    assert compiled._cache_size() == 1


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ([[1.0, 2.0]], [1], "x: its type is float64"),
        ([[1, 5]], [1], "x: found ids 1..5"),
        ([[1, 2]], [0], "y: found ids 0..0 but they must lie in 1..4"),
    ],
)
def test_ids_outside_the_table_are_refused(x, y, says):
    with pytest.raises(hf.HoldfastError, match=says):
        dual_encoder(5).check(hf.Examples(np.array(x), np.array(y)))


def test_a_table_without_items_is_refused():
    with pytest.raises(hf.HoldfastError, match="items=1"):
        dual_encoder(1)


def test_it_trains_in_a_federation():
    rng = np.random.default_rng(0)
    x = rng.integers(1, 12, (24, 3)).astype(np.int32)
    examples = hf.Examples(x, x[:, 0])
    run = hf.simulate(
        hf.algorithms.fedavg(),
        dual_encoder(12, width=4),
        hf.data.partition.by(examples, np.arange(24) % 3),
        hf.Local(learning_rate=0.1, steps=5, batch_size=8),
        rounds=5,
        evaluate=hf.evaluate.on(examples),
    )
    assert run.history["loss"][-1] < run.history["loss"][0]
    assert 0 <= run.history["recall_at_10"][-1] <= 1


def test_the_baseline_has_both_losses_on_clients(x64):
    plain, both = dual_encoder(6, 3), dual_encoder(6, 3, spreadout=0.2)
    examples = hf.Examples(np.array([[1, 2, 0], [3, 0, 0]]), np.array([3, 4]))
    params = jax.tree.map(lambda p: p.astype("f8"), plain.init(jax.random.key(0), examples))
    apart = np.asarray(jax.jit(hf.models.spreadout(0.2))(params))
    assert apart > 0
    hinge = np.asarray(jax.jit(plain.loss)(params, examples))
    np.testing.assert_allclose(jax.jit(both.loss)(params, examples), hinge + apart, rtol=1e-12)
    found = jax.jit(both.measure)(params, examples)
    np.testing.assert_allclose(found["loss"], hinge + apart, rtol=1e-12)
    np.testing.assert_allclose(found["hinge_loss"], hinge, rtol=1e-12)
    # All rows are pushed, so a client cannot do with a few.
    assert (plain.tables != (), both.tables) == (True, ())
    with pytest.raises(hf.HoldfastError, match="spreadout=-1"):
        dual_encoder(6, spreadout=-1)
