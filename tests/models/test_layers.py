"""The order of layers is that in which examples meet them, whatever they are called."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import holdfast as hf
from holdfast.models.layers import layers

EXAMPLES = hf.Examples(np.zeros((4, 5), np.float32), np.zeros(4, np.int32))
# The last by its name is the first that is used.
SHAPES = {
    "a": {"kernel": (2, 3), "bias": (3,)},
    "m": {"kernel": (4, 2), "bias": (2,)},
    "z": {"kernel": (5, 4), "bias": (4,)},
}
ORDER = ["z", "m", "a"]


def init(key, examples):
    return jax.tree.map(lambda s: jnp.zeros(s), SHAPES, is_leaf=lambda s: isinstance(s, tuple))


def forward(params, x):
    for name in ORDER:
        x = x @ params[name]["kernel"] + params[name]["bias"][None]
    return x.sum(axis=1)


def cast_first(params, batch):
    params = jax.tree.map(lambda p: (2 * p).astype(jnp.float16).astype(jnp.float32), params)
    return forward(params, batch.x)


def penalised_first(params, batch):
    penalty = sum(jnp.vdot(p, p) for p in jax.tree.leaves(params))
    return forward(params, batch.x) + penalty


def called(params, batch):
    return jax.jit(jax.checkpoint(forward))(params, batch.x)


def own_gradient(params, batch):
    @jax.custom_vjp
    def layer(x, kernel):
        return x @ kernel

    layer.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, g: (g @ kept[1].T, kept[0].T @ g))
    x = batch.x
    for name in ORDER:
        x = layer(x, params[name]["kernel"]) + params[name]["bias"][None]
    return x.sum(axis=1)


def branched(params, batch):
    both = [lambda p, x: forward(p, x), lambda p, x: 2 * forward(p, x)]
    return lax.switch(jnp.int32(batch.y[0] > 0), both, params, batch.x)


def looped(params, batch):
    """What is carried meets the last two only when it has come around."""

    def body(carried, x):
        deep = carried @ params["m"]["kernel"] @ params["a"]["kernel"]
        return carried + x[None] * jnp.sum(params["z"]["kernel"], axis=0)[None], deep

    start = jnp.zeros((batch.x.shape[0], 4))
    _, found = lax.scan(body, start, batch.x[:, :4])
    unused = sum(jnp.sum(params[n]["bias"]) for n in ORDER)
    return jnp.sum(found, axis=(0, 2)) + 0 * unused


@pytest.mark.parametrize(
    "loss",
    [cast_first, penalised_first, called, own_gradient, branched, looped],
    ids=lambda loss: loss.__name__,
)
def test_the_order_is_that_of_the_program(loss):
    model = hf.Model(init, loss)
    params = jax.eval_shape(init, None, EXAMPLES)
    found = layers(model, params, EXAMPLES)
    assert [layer.name for layer in found] == ORDER
    assert [layer.size for layer in found] == [24, 10, 9]
    assert found[0].leaves == (4, 5)


@functools.cache
def names(model, shape, dtype=np.float32):
    examples = hf.Examples(np.zeros((2, *shape), dtype), np.zeros(2, np.int32))
    params = jax.eval_shape(model.init, jax.random.key(0), examples)
    return [layer.name for layer in layers(model, params, examples)]


def test_of_the_librarys_own_models():
    assert names(hf.models.mlp([4, 4], classes=3), (5,)) == ["hidden_0", "hidden_1", "classifier"]
    found = names(hf.models.vgg11(classes=3), (32, 32, 3))
    assert found == [f"convolution_{i}" for i in range(8)] + ["dense_0", "dense_1", "classifier"]
    found = names(hf.models.resnet8(classes=3), (16, 16, 3))
    assert (found[0], found[-1], len(found)) == ("convolution_0", "classifier", 19)
    assert found.index("stage_1_block_0/norm_1") < found.index("stage_2_block_0/convolution_0")
    found = names(hf.models.lstm(vocabulary=9, embedding=2, width=3), (6,), np.int32)
    assert (found[0], found[-1]) == ("characters", "classifier")
    assert max(map(found.index, ("lstm_0", "lstm_0/input"))) < found.index("lstm_1/input")


def test_what_is_never_met_comes_first():
    def loss(params, batch):
        return batch.x @ params["z"]["kernel"][:, 0] + jnp.sum(params["m"]["kernel"])

    params = jax.eval_shape(init, None, EXAMPLES)
    # A sum of parameters meets the examples where it is added to what they made.
    found = [layer.name for layer in layers(hf.Model(init, loss), params, EXAMPLES)]
    assert found == ["a", "z", "m"]


def test_a_branch_may_leave_out_layers():
    def loss(params, batch):
        def deep(p, x):
            return x @ p["m"]["kernel"] @ p["a"]["kernel"]

        def flat(p, x):
            return x[:, :3]

        x = batch.x @ params["z"]["kernel"]
        return jnp.sum(lax.cond(batch.y[0] > 0, deep, flat, params, x), axis=1)

    params = jax.eval_shape(init, None, EXAMPLES)
    found = layers(hf.Model(init, loss), params, EXAMPLES)
    assert [layer.name for layer in found] == ORDER


@pytest.mark.parametrize(
    "other",
    [
        lambda p, x: (x[:, :2] @ p["a"]["kernel"])[:, :1] + (x[:, :4] @ p["m"]["kernel"])[:, :1],
        lambda p, x: x @ p["z"]["kernel"][:, :1],
    ],
    ids=["turned around", "others"],
)
def test_branches_with_orders_of_their_own_are_refused(other):
    def loss(params, batch):
        def one(p, x):
            return (x[:, :4] @ p["m"]["kernel"] @ p["a"]["kernel"])[:, :1]

        return lax.cond(batch.y[0] > 0, one, other, params, batch.x)[:, 0]

    params = jax.eval_shape(init, None, EXAMPLES)
    with pytest.raises(hf.HoldfastError, match="there is no one order; give a mask"):
        layers(hf.Model(init, loss), params, EXAMPLES)


class TestAnOrderThatIsGiven:
    def order(self, given):
        params = jax.eval_shape(init, None, EXAMPLES)
        return [layer.name for layer in layers(hf.Model(init, cast_first), params, EXAMPLES, given)]

    def test_is_taken(self):
        assert self.order(["a", "z", "m"]) == ["a", "z", "m"]

    def test_with_an_unknown_layer_is_refused(self):
        with pytest.raises(hf.HoldfastError, match="none called 'b'; known are a, m, z"):
            self.order(["a", "b", "z"])

    @pytest.mark.parametrize("given", [["a", "z"], ["a", "z", "m", "m"], "z"])
    def test_without_all_of_them_once_is_refused(self, given):
        with pytest.raises(hf.HoldfastError, match=r"the model has 3: a, m, z\. Give each once"):
            self.order(given)
