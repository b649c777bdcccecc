"""The same network in every library: the same loss, the same gradient, and a federation of each."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax import tree

import holdfast as hf
from holdfast.models import from_apply, from_equinox, from_haiku, from_linen, from_nnx, mlp
from tests.problems import largest_difference, tiny_clients

CLIENTS = tiny_clients()  # 5 features, 3 classes
REFERENCE = mlp([4], classes=3)


def apply_by_hand(params, x):
    hidden = jax.nn.relu(x @ params["w0"] + params["b0"][None])
    return hidden @ params["w1"] + params["b1"][None]


def init_by_hand(key):
    return {"w0": jnp.ones((5, 4)), "b0": jnp.ones(4), "w1": jnp.ones((4, 3)), "b1": jnp.ones(3)}


class NNX(nnx.Module):
    def __init__(self, rngs, drop=0.0):
        self.layers = nnx.List([nnx.Linear(5, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)])
        self.dropout = nnx.Dropout(drop, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.dropout(nnx.relu(self.layers[0](x))))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dropout(0.5, deterministic=not train)(nn.relu(nn.Dense(4)(x)))
        return nn.Dense(3)(x)


class LinenWithState(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return nn.BatchNorm(use_running_average=not train)(x)


def build_nnx_with_state(rngs):
    return nnx.Sequential(nnx.Linear(5, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs))


def by_hand():
    return from_apply(init_by_hand, apply_by_hand, classes=3), ("b0", "w0", "b1", "w1"), False


def by_nnx():
    names = ("layers/0/bias", "layers/0/kernel", "layers/1/bias", "layers/1/kernel")
    return from_nnx(NNX, classes=3), names, False


def by_equinox():
    eqx = pytest.importorskip("equinox")

    def build(key):
        return eqx.nn.MLP(5, 3, width_size=4, depth=1, key=key)

    names = ("layers/0/bias", "layers/0/weight", "layers/1/bias", "layers/1/weight")
    return from_equinox(build, classes=3), names, True


def by_haiku():
    hk = pytest.importorskip("haiku")

    def network(x):
        return hk.nets.MLP([4, 3])(x)

    names = ("mlp/~/linear_0/b", "mlp/~/linear_0/w", "mlp/~/linear_1/b", "mlp/~/linear_1/w")
    return from_haiku(network, classes=3), names, False


@pytest.mark.parametrize("adapt", [by_hand, by_nnx, by_equinox, by_haiku])
def test_the_same_network_has_the_same_loss_and_gradient_and_trains(adapt):
    model, names, transposed = adapt()
    batch = tree.map(jnp.asarray, CLIENTS.examples)
    ours = REFERENCE.init(jax.random.key(0), batch)
    like = model.init(jax.random.key(0), batch)
    places = dict(
        zip(names, hf.trees.paths({"0": ours["hidden_0"], "1": ours["classifier"]}), strict=True)
    )
    layers = {"0": ours["hidden_0"], "1": ours["classifier"]}

    def converted(layers):
        flat = dict(zip(hf.trees.paths(layers), tree.leaves(layers), strict=True))
        leaves = [flat[places[name]] for name in hf.trees.paths(like)]
        return tree.structure(like).unflatten([a.T if transposed else a for a in leaves])

    @jax.jit
    def both(theirs, ours, batch):
        found = []
        for m, params in ((model, theirs), (REFERENCE, ours)):
            value, slope = jax.value_and_grad(
                lambda p, m=m: m.losses(p, batch, jax.random.key(0)).mean()
            )(params)
            found.append((value, slope, m.measure(params, batch)))
        return found

    theirs, (value, slope, measured) = both(converted(layers), ours, batch)
    expected = (value, converted({"0": slope["hidden_0"], "1": slope["classifier"]}), measured)
    assert largest_difference(theirs, expected) < 1e-6
    run = hf.simulate(
        hf.algorithms.scaffold(), model, CLIENTS, hf.Local(0.1, steps=2, batch_size=4), rounds=2
    )
    assert largest_difference(run.params, like) > 1e-3
    assert hf.trees.paths(run.params) == hf.trees.paths(like)


def dropping_equinox():
    eqx = pytest.importorskip("equinox")

    def build(key):
        first, last = jax.random.split(key)
        layers = [eqx.nn.Linear(5, 4, key=first), eqx.nn.Dropout(0.5)]
        return eqx.nn.Sequential([*layers, eqx.nn.Linear(4, 3, key=last)])

    return from_equinox(build, classes=3)


def dropping_haiku():
    hk = pytest.importorskip("haiku")

    def network(x, is_training):
        x = hk.Linear(4)(x)
        return hk.Linear(3)(hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x)

    return from_haiku(network, classes=3)


def dropping_by_hand():
    def apply(params, x, key):
        keep = 1.0 if key is None else 2.0 * jax.random.bernoulli(key, 0.5, x.shape).astype(x.dtype)
        return apply_by_hand(params, x * keep)

    return from_apply(init_by_hand, apply, classes=3)


@pytest.mark.parametrize(
    "make",
    [
        dropping_by_hand,
        lambda: from_linen(Linen(), classes=3),
        lambda: from_nnx(lambda rngs: NNX(rngs, drop=0.5), classes=3),
        dropping_equinox,
        dropping_haiku,
    ],
)
def test_dropout_follows_the_key_in_training_and_is_off_in_evaluation(make):
    model, batch = make(), tree.map(jnp.asarray, CLIENTS.examples)
    params = tree.map(lambda p: p + 0.1, model.init(jax.random.key(0), batch))
    loss, measure = jax.jit(model.losses), jax.jit(model.measure)
    first, again, other = (loss(params, batch, jax.random.key(k)).tolist() for k in (0, 0, 1))
    evaluated = measure(params, batch)["loss"].tolist()
    assert first == again
    assert first not in (other, evaluated)


def test_a_loss_of_ones_own():
    model = from_linen(
        nn.Dense(1), loss=lambda found, y: (found[:, 0] - y.astype(found.dtype)) ** 2
    )
    batch = tree.map(jnp.asarray, CLIENTS.examples)
    params = tree.map(jnp.zeros_like, model.init(jax.random.key(0), batch))
    assert model.measure(params, batch)["loss"].tolist() == (batch.y**2).tolist()
    assert list(model.measure(params, batch)) == ["loss"]


def stateful_equinox():
    eqx = pytest.importorskip("equinox")
    return from_equinox(lambda key: eqx.nn.BatchNorm(5, "batch", mode="batch"), classes=5)


def stateful_haiku():
    hk = pytest.importorskip("haiku")
    return from_haiku(lambda x: hk.BatchNorm(True, True, 0.9)(x, True), classes=5)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: from_linen(LinenWithState(), classes=5), "batch_stats/BatchNorm_0/mean"),
        (lambda: from_nnx(build_nnx_with_state, classes=3), "layers/1/mean"),
        (stateful_equinox, "batch_state_index"),
        (stateful_haiku, "batch_norm/~/mean_ema/average"),
    ],
)
def test_batch_normalisation_is_refused_by_name(make, names):
    with pytest.raises(hf.HoldfastError, match=f"{names}.*use GroupNorm or LayerNorm"):
        make().init(jax.random.key(0), CLIENTS.examples)


def test_wrong_outputs_and_settings_are_refused():
    batch = tree.map(jnp.asarray, CLIENTS.examples)
    model = from_apply(init_by_hand, apply_by_hand, classes=7)
    with pytest.raises(hf.HoldfastError, match=r"shape \(33, 3\) but classes=7"):
        model.measure(init_by_hand(None), batch)
    with pytest.raises(hf.HoldfastError, match="classes=None; give the number of classes"):
        from_linen(nn.Dense(3))
    with pytest.raises(hf.HoldfastError, match="loss='hinge'"):
        from_nnx(NNX, classes=3, loss="hinge")
    with pytest.raises(hf.HoldfastError, match=r"found 0\.\.2 but the model has classes=2"):
        from_apply(init_by_hand, apply_by_hand, classes=2).check(CLIENTS.examples)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "equinox", None)
    with pytest.raises(hf.HoldfastError, match="pip install equinox"):
        from_equinox(lambda key: None, classes=3)


def test_equal_settings_give_the_same_model():
    assert from_nnx(NNX, classes=3) is from_nnx(build=NNX, classes=3)
    assert from_linen(nn.Dense(3), classes=3) is hf.models.classifier(nn.Dense(3), 3)
