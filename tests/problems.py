"""Small problems with known answers, and models to pose them to."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import holdfast as hf


def _quadratic_loss(w, batch):
    return 0.5 * jnp.sum(batch.x * (w[None] - batch.y) ** 2, axis=1)


QUADRATIC = hf.Model(
    init=lambda key, examples: jnp.zeros(examples.x.shape[1], examples.x.dtype),
    loss=_quadratic_loss,
    name="quadratic",
)


def two_quadratics():
    """f1 = w^2/2, f2 = 5 (w - 1)^2/2: the optimum of the sum is 5/6."""
    curvature, centre = np.array([[1.0], [5.0]]), np.array([[0.0], [1.0]])
    return hf.Clients.from_rows(hf.Examples(curvature, centre), [[0], [1]])


def random_quadratics(seed, clients=10, dimensions=4):
    """Heterogeneous separable quadratics, one per client, and the optimum of their mean."""
    rng = np.random.default_rng(seed)
    curvature = rng.uniform(0.5, 4.0, (clients, dimensions))
    centre = rng.normal(0, 3, (clients, dimensions))
    optimum = (curvature * centre).sum(0) / curvature.sum(0)
    data = hf.Examples(curvature, centre)
    return hf.Clients.from_rows(data, [[i] for i in range(clients)]), optimum


def _softmax_net_loss(params, batch):
    """Layers (W, b), (W, b), ... as the authors' code stores them, with ReLU between."""
    h = batch.x
    for k in range(0, len(params), 2):
        h = h @ params[k].T + params[k + 1][None]
        h = jax.nn.relu(h) if k + 2 < len(params) else h
    return -jnp.take_along_axis(jax.nn.log_softmax(h), batch.y[:, None], 1)[:, 0]


@functools.lru_cache
def flat_net(shapes, name="net"):
    return hf.Model(
        init=lambda key, examples: tuple(jnp.zeros(s, examples.x.dtype) for s in shapes),
        loss=_softmax_net_loss,
        name=name,
    )


def tiny_clients(seed=0, clients=4, classes=3, features=5, sizes=(7, 12, 5, 9), dtype=np.float32):
    """A classification population of unequal clients."""
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    x = rng.normal(size=(total, features)).astype(dtype)
    y = rng.integers(0, classes, total).astype(np.int32)
    return hf.data.partition.by(hf.Examples(x, y), np.repeat(np.arange(clients), sizes))


def same_bits(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(p), np.asarray(q)) for p, q in pairs)


def largest_difference(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    apart = (np.max(np.abs(np.asarray(p) - np.asarray(q)), initial=0) for p, q in pairs)
    return float(max(apart, default=0.0))
