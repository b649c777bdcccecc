"""Methods that must coincide, most of them to the last bit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import holdfast as hf
from tests.problems import largest_difference, same_bits, tiny_clients

MODEL = hf.models.mlp([6], classes=3)
LOCAL = hf.Local(learning_rate=0.1, epochs=2, batch_size=4)
SETTINGS = {"rounds": 4, "cohort": hf.cohorts.fixed(3), "seed": 3}


def run(algorithm, local=LOCAL, **settings):
    return hf.simulate(algorithm, MODEL, tiny_clients(), local, **(SETTINGS | settings))


def test_fedpvr_with_an_empty_mask_is_fedavg():
    none = run(hf.algorithms.fedpvr(mask=[False] * 4))
    assert same_bits(none.params, run(hf.algorithms.fedavg(weighting="uniform")).params)
    assert jax.tree.leaves(none.client_states[0]) == []


@pytest.mark.parametrize("upload", ["lean", "published"])
def test_fedpvr_with_a_full_mask_is_scaffold(upload):
    full, scaffold = (
        run(hf.algorithms.fedpvr(mask=lambda path: True, upload=upload)),
        run(hf.algorithms.scaffold(upload=upload)),
    )
    assert same_bits(full.params, scaffold.params)
    assert same_bits(
        [full.client_states[i] for i in range(4)], [scaffold.client_states[i] for i in range(4)]
    )


def test_fedprox_without_pull_is_fedavg():
    assert same_bits(run(hf.algorithms.fedprox(mu=0.0)).params, run(hf.algorithms.fedavg()).params)


def test_scaffold_lean_and_published_upload_agree():
    """Clients here take 4, 6, 4 and 6 steps: the server needs each one's path."""
    lean, published = (run(hf.algorithms.scaffold(upload=u)) for u in ("lean", "published"))
    assert largest_difference(lean.params, published.params) < 1e-6
    assert largest_difference(lean.state.server, published.state.server) < 1e-6


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_fedavg_with_one_full_step_is_gradient_descent(weighting):
    clients = tiny_clients()
    ours = run(
        hf.algorithms.fedavg(weighting=weighting),
        hf.Local(learning_rate=0.3, steps=1),
        cohort=hf.cohorts.everyone(),
    )
    x = hf.simulate(hf.algorithms.fedavg(), MODEL, clients, LOCAL, rounds=0, seed=3).params
    sizes = clients.sizes / clients.sizes.sum() if weighting == "examples" else np.full(4, 0.25)

    def objective(x):
        losses = [jnp.mean(MODEL.losses(x, c, jax.random.key(0))) for c in clients]
        return sum(float(w) * loss for w, loss in zip(sizes, losses, strict=True))

    gradient = jax.jit(jax.grad(objective))
    for _ in range(SETTINGS["rounds"]):
        x = jax.tree.map(lambda p, g: p - 0.3 * g, x, gradient(x))
    assert largest_difference(ours.params, x) < 1e-6


def test_fedavgm_without_momentum_is_fedavg():
    plain = run(hf.algorithms.fedavgm(learning_rate=1.0, momentum=0.0))
    assert same_bits(plain.params, run(hf.algorithms.fedavg()).params)


def test_server_learning_rate_scales_the_step():
    start = run(hf.algorithms.fedavg(), rounds=0).params
    one, two = (run(hf.algorithms.fedavg(server_learning_rate=r), rounds=1) for r in (1.0, 2.0))
    step = jax.tree.map(lambda a, b: a - b, two.params, start)
    expected = jax.tree.map(lambda a, b: 2 * (a - b), one.params, start)
    assert largest_difference(step, expected) < 1e-6


def test_a_server_optimizer_is_optax_on_the_negative_mean_delta():
    start = run(hf.algorithms.fedavg(), rounds=0).params
    plain = run(hf.algorithms.fedavg(), rounds=1).params
    adam = run(hf.algorithms.fedadam(learning_rate=0.05), rounds=1).params
    optimizer = optax.adam(0.05, b1=0.9, b2=0.99, eps=1e-3)
    gradient = jax.tree.map(lambda a, b: b - a, plain, start)
    with jax.numpy_dtype_promotion("standard"):  # optax itself is not strict about types
        updates, _ = optimizer.update(gradient, optimizer.init(start), start)
    assert largest_difference(adam, optax.apply_updates(start, updates)) < 1e-6
    ready = hf.Algorithm(hf.rules.ServerOptimizer(optimizer), weighting="examples")
    assert largest_difference(run(ready, rounds=1).params, adam) < 1e-6


def test_centralised_is_fedavg_with_one_client():
    pooled = hf.simulate(
        hf.algorithms.fedavg(), MODEL, tiny_clients().pooled(), LOCAL, rounds=4, seed=3
    )
    central = run(hf.algorithms.centralised())
    assert same_bits(central.params, pooled.params)
    assert central.ledger.total == 0


def test_local_only_trains_every_client_alone():
    alone = run(hf.algorithms.local_only(), cohort=hf.cohorts.everyone())
    untouched = run(hf.algorithms.fedavg(), rounds=0)
    assert same_bits(alone.params, untouched.params)
    assert alone.ledger.total == 0
    # client 0 alone in a federation: the same steps, since keys and order depend on its number only
    mine = hf.Clients.from_rows(tiny_clients().examples, [tiny_clients().rows(0)])
    single = hf.simulate(hf.algorithms.fedavg(), MODEL, mine, LOCAL, rounds=4, seed=3)
    assert largest_difference(alone.personal(0), single.params) < 1e-6


def test_per_client_and_scheduled_numbers_reach_the_rule():
    same = hf.PerClient(np.full(4, 0.2))
    one, many = run(hf.algorithms.fedprox(mu=0.2)), run(hf.algorithms.fedprox(mu=same))
    assert largest_difference(one.params, many.params) < 1e-7
    late = run(hf.algorithms.fedprox(mu=lambda t: 0.0 if t < 3 else 0.2))
    assert not same_bits(late.params, run(hf.algorithms.fedavg()).params)
    early = run(hf.algorithms.fedprox(mu=lambda t: 0.0 if t < 3 else 0.2), rounds=3)
    assert same_bits(early.params, run(hf.algorithms.fedavg(), rounds=3).params)


def test_the_order_of_a_chain_of_tilts_does_not_matter():
    a, b = hf.rules.ControlVariate(), hf.rules.Proximal(0.3)
    forth, back = (run(hf.Algorithm(hf.Chain(rules))) for rules in ((a, b), (b, a)))
    assert largest_difference(forth.params, back.params) < 1e-7
