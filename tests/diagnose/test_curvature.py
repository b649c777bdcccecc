"""Constants against dense eigenvalues, bounds against Hessians at random points."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import holdfast as hf
from holdfast.core.keys import Purpose
from holdfast.diagnose.curvature import _design_ends, _hessian_times
from holdfast.models import least_squares, logistic_regression, softmax_regression


def population(sizes=(40, 9, 9, 3, 0, 25), features=6, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sum(sizes), features)) * rng.uniform(0.2, 2, features)
    examples = hf.Examples(x, rng.integers(0, classes, sum(sizes)).astype(np.int32))
    return hf.Clients.from_rows(examples, np.split(np.arange(len(x)), np.cumsum(sizes)[:-1]))


@functools.partial(jax.jit, static_argnums=0)
def hessian(model, params, batch):
    flat, unravel = ravel_pytree(params)
    key = jax.random.key(0)
    return jax.hessian(lambda w: jnp.mean(model.losses(unravel(w), batch, key)))(flat)


def hessians(model, clients, client, scales=(0.0, 0.1, 1.0, 10.0)):
    """The Hessian of a client's mean loss at random points of all sizes."""
    batch, rng = jax.tree.map(jnp.asarray, clients[client]), np.random.default_rng(client)
    zero, unravel = ravel_pytree(model.init(jax.random.key(0), batch))
    points = (unravel(jnp.asarray(s * rng.normal(size=zero.size))) for s in scales)
    return [hessian(model, params, batch) for params in points]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("make", "max_curvature", "min_curvature"),
    [(logistic_regression, 0.25, 0), (least_squares, 1, 1)],
)
def test_exact_constants_are_those_of_dense_matrices(make, max_curvature, min_curvature, intercept):
    clients = population()
    found = hf.diagnose.curvature(make(0.05, intercept), clients)
    for i, part in enumerate(clients):
        a = np.hstack([part.x, np.ones((len(part.x), 1))]) if intercept else part.x
        ends = np.linalg.eigvalsh(a.T @ a / max(len(a), 1))
        expected = (
            (max_curvature * ends[-1] + 0.05, min_curvature * ends[0] + 0.05) if len(a) else (0, 0)
        )
        np.testing.assert_allclose((found.smoothness[i], found.convexity[i]), expected, rtol=1e-10)
    assert found.exact
    assert found.mean_smoothness == pytest.approx(found.smoothness.sum() / 6)
    assert found.mean_convexity == pytest.approx(found.convexity.sum() / 6)


@pytest.mark.parametrize("n", [260, 300])
def test_many_columns(n):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(n, 270)) / np.arange(1, 271)
    ends = np.linalg.svd(a, compute_uv=False) ** 2
    smallest = ends[-1] if n >= 270 else 0.0
    np.testing.assert_allclose(_design_ends(a, False), (ends[0], 0), rtol=1e-10)
    np.testing.assert_allclose(_design_ends(a, True), (ends[0], smallest), rtol=1e-10, atol=1e-12)
    assert _design_ends(0 * a, False) == (0, 0)


@pytest.mark.parametrize(
    ("model", "classes"), [(logistic_regression(0.05), 2), (softmax_regression(3), 3)]
)
def test_no_hessian_exceeds_the_bounds(model, classes, x64):
    clients = population(classes=classes)
    found = hf.diagnose.curvature(model, clients)
    for i in (1, 2):
        for found_there in hessians(model, clients, i):
            ends = np.linalg.eigvalsh(found_there)
            assert ends[-1] <= found.smoothness[i] + 1e-12
            assert ends[0] >= found.convexity[i] - 1e-12


def test_logistic_loss_attains_its_bound_at_zero(x64):
    clients = population()
    at_zero = hessians(logistic_regression(0.05), clients, 1, (0.0,))[0]
    found = hf.diagnose.curvature(logistic_regression(0.05), clients)
    assert np.linalg.eigvalsh(at_zero)[-1] == pytest.approx(found.smoothness[1], rel=1e-10)


def test_softmax_loss_nears_its_bound_where_two_classes_share_everything(x64):
    clients, model = population(classes=3), softmax_regression(3)
    batch = jax.tree.map(jnp.asarray, clients[1])
    zero, unravel = ravel_pytree(jax.tree.map(jnp.zeros_like, model.init(jax.random.key(0), batch)))
    params = unravel(zero.at[2].set(-50.0))  # the third class's bias
    found = hf.diagnose.curvature(model, clients)
    largest = np.linalg.eigvalsh(hessian(model, params, batch))[-1]
    assert largest == pytest.approx(found.smoothness[1], rel=1e-10)


def test_least_squares_attains_both_bounds_everywhere(x64):
    clients, model = population(), least_squares(0.05)
    found = hf.diagnose.curvature(model, clients)
    for i in (1, 2):
        for found_there in hessians(model, clients, i):
            ends = np.linalg.eigvalsh(found_there)
            assert ends[-1] == pytest.approx(found.smoothness[i], rel=1e-10)
            assert ends[0] == pytest.approx(found.convexity[i], rel=1e-10)


@pytest.mark.parametrize("features", [6, 60])
def test_estimate_from_all_examples_is_exact_for_least_squares(features):
    clients = population((90, 20, 0, 70), features)
    clients = dataclasses.replace(
        clients, examples=clients.examples._replace(x=clients.examples.x.astype(np.float32))
    )
    model = least_squares(0.05)
    exact = hf.diagnose.curvature(model, clients)
    _hessian_times.clear_cache()
    found = hf.diagnose.curvature(dataclasses.replace(model, linear=None), clients)
    assert _hessian_times._cache_size() == 1  # one program for clients of all sizes
    assert not found.exact
    np.testing.assert_allclose(found.smoothness, exact.smoothness, rtol=1e-4)
    np.testing.assert_allclose(found.convexity, exact.convexity, rtol=1e-4, atol=1e-4)
    assert found.smoothness[2] == found.convexity[2] == 0


def small_network(key, examples):
    return {"first": jax.random.normal(key, (examples.x.shape[1], 6)), "last": jnp.ones(6)}


def small_loss(params, batch):
    return jnp.square(
        jnp.tanh(batch.x @ params["first"]) @ params["last"] - batch.y.astype(batch.x.dtype)
    )


def test_estimate_of_a_network_agrees_with_its_hessian(x64):
    clients, model = population((9, 9)), hf.Model(small_network, small_loss)
    params = model.init(jax.random.fold_in(jax.random.key(3), Purpose.INIT), clients.examples)
    found = hf.diagnose.curvature(model, clients, points=0, seed=3)
    for i, part in enumerate(clients):
        ends = np.linalg.eigvalsh(hessian(model, params, jax.tree.map(jnp.asarray, part)))
        assert found.smoothness[i] == pytest.approx(ends[-1], rel=1e-4)
        assert found.convexity[i] == pytest.approx(ends[0], rel=1e-4)
    assert found.convexity.min() < 0
    wider = hf.diagnose.curvature(model, clients, params, points=1, radius=3.0)
    assert (wider.smoothness > found.smoothness - 1e-4).all()
    assert (wider.convexity < found.convexity + 1e-4).all()
    assert wider.mean_smoothness > found.mean_smoothness + 1e-2


def test_samples_follow_the_seed_and_not_the_other_clients():
    clients, model = population((90, 80)), dataclasses.replace(least_squares(), linear=None)
    first, again, other = (
        hf.diagnose.curvature(model, clients, examples=20, points=0, seed=s) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.smoothness, again.smoothness)
    assert (first.smoothness != other.smoothness).all()
    alone = hf.Clients.from_rows(clients.examples, [clients.rows(0), []])
    found = hf.diagnose.curvature(model, alone, examples=20, points=0, seed=1)
    assert found.smoothness.tolist() == [first.smoothness[0], 0]


def test_progress_is_shown_when_asked_for(capsys):
    hf.diagnose.curvature(least_squares(), population(), progress=True)
    assert "curvature" in capsys.readouterr().err


def test_what_cannot_be_measured_is_refused():
    clients, plain = population(), dataclasses.replace(least_squares(), linear=None)
    for wrong in ({"examples": 0}, {"points": -1}, {"radius": 0}):
        with pytest.raises(hf.HoldfastError, match="give at least 1 example, 0 points"):
            hf.diagnose.curvature(plain, clients, **wrong)
    with pytest.raises(hf.HoldfastError, match="give 0 or 1"):
        hf.diagnose.curvature(logistic_regression(), population(classes=5))
    with pytest.raises(hf.HoldfastError, match="give parameters of this model"):
        hf.diagnose.curvature(plain, clients, {"weights": np.zeros(6, np.float32)})
    burst = hf.Model(plain.init, lambda w, batch: jnp.log(0 * batch.x[:, 0] * w["weights"][0]))
    with pytest.raises(hf.HoldfastError, match="Hessian of client 0 is not finite"):
        hf.diagnose.curvature(burst, clients)
    nobody = hf.Clients.from_rows(clients.examples, [[], []])
    for model in (plain, least_squares(1.0)):
        assert not np.any(hf.diagnose.curvature(model, nobody)[:2])
