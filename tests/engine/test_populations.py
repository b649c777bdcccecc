"""Several federations with losses and cohorts of their own, one model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, largest_difference, random_quadratics, tiny_clients

LOCAL = hf.Local(0.05, steps=5)
TILTED = dataclasses.replace(
    QUADRATIC, loss=lambda w, batch: QUADRATIC.loss(w, batch) + 2.0 * jnp.sum(w), name="tilted"
)


def two_populations(**cohorts):
    a, _ = random_quadratics(1, clients=6)
    b, _ = random_quadratics(2, clients=15)
    joined = hf.join(
        [
            hf.Population(a, QUADRATIC, weight=1.0, cohort=cohorts.get("a", hf.cohorts.everyone())),
            hf.Population(b, TILTED, weight=0.5, cohort=cohorts.get("b", hf.cohorts.everyone())),
        ]
    )
    (c_a, m_a), (c_b, m_b) = a.examples, b.examples
    curvature = c_a.mean(0) + 0.5 * c_b.mean(0)
    pull = (c_a * m_a).mean(0) + 0.5 * ((c_b * m_b).mean(0) - 2.0)
    return joined, pull / curvature


@pytest.mark.parametrize(
    "cohorts",
    [{}, {"a": hf.cohorts.fixed(2), "b": hf.cohorts.fixed(9)}],
    ids=["everyone", "different rates"],
)
@pytest.mark.parametrize(
    "algorithm",
    [hf.algorithms.scaffold(), hf.algorithms.feddyn(2.0), hf.algorithms.feddc(2.0)],
    ids=lambda a: a.name,
)
def test_corrections_reach_the_optimum_of_the_weighted_objective(algorithm, cohorts, x64):
    joined, optimum = two_populations(**cohorts)
    run = hf.simulate(algorithm, **joined._asdict(), local=LOCAL, rounds=800)
    np.testing.assert_allclose(run.params, optimum, atol=1e-7)


def test_one_full_step_is_gradient_descent_on_the_weighted_objective(x64):
    joined, _ = two_populations()
    run = hf.simulate(
        hf.algorithms.fedavg(weighting="uniform"),
        **joined._asdict(),
        local=hf.Local(0.1, steps=1),
        rounds=1,
    )
    a, b = random_quadratics(1, clients=6)[0], random_quadratics(2, clients=15)[0]
    gradients = [-(c.examples.x * c.examples.y).mean(0) for c in (a, b)]
    expected = -0.1 * (gradients[0] + 0.5 * (gradients[1] + 2.0)) / 1.5
    np.testing.assert_allclose(run.params, expected, atol=1e-12)


def test_with_a_central_loss_too(x64):
    joined, _ = two_populations()
    rule = hf.Chain((hf.rules.ControlVariate(), hf.rules.OneWayTransfer()))
    server = hf.Server(lambda w: 0.5 * jnp.sum((w - 7.0) ** 2), LOCAL)
    run = hf.simulate(
        hf.Algorithm(rule), **joined._asdict(), local=LOCAL, rounds=800, server=server
    )
    a, b = random_quadratics(1, clients=6)[0].examples, random_quadratics(2, clients=15)[0].examples
    curvature = a.x.mean(0) + 0.5 * b.x.mean(0) + 1
    pull = (a.x * a.y).mean(0) + 0.5 * ((b.x * b.y).mean(0) - 2.0) + 7.0
    np.testing.assert_allclose(run.params, pull / curvature, atol=1e-8)


def test_one_population_is_as_without_joining():
    clients, model = tiny_clients(), hf.models.mlp([4], 3)
    joined = hf.join([hf.Population(clients, model, hf.cohorts.fixed(3))])
    local = hf.Local(0.1, epochs=2, batch_size=4)
    for algorithm in (hf.algorithms.fedavg(), hf.algorithms.scaffold()):
        ours = hf.simulate(algorithm, **joined._asdict(), local=local, rounds=3, seed=2)
        plain = hf.simulate(algorithm, model, clients, local, 3, seed=2, cohort=hf.cohorts.fixed(3))
        assert largest_difference(ours.params, plain.params) < 1e-6


def test_each_population_draws_its_own_cohort():
    joined, _ = two_populations(a=hf.cohorts.fixed(2), b=hf.cohorts.bernoulli(0.4))
    run = hf.simulate(hf.algorithms.fedavg(), **joined._asdict(), local=LOCAL, rounds=20)
    first = [sum(i < 6 for i in e.clients) for e in run.ledger.entries]
    second = [sum(i >= 6 for i in e.clients) for e in run.ledger.entries]
    assert set(first) == {2}
    assert len(set(second)) > 2


def test_metrics_are_each_populations_own():
    clients, model = tiny_clients(), hf.models.mlp([4], 3)
    louder = dataclasses.replace(
        model,
        metrics=lambda p, b: {n: 2 * v for n, v in model.measure(p, b).items()},
    )
    joined = hf.join([hf.Population(clients, model), hf.Population(clients, louder)])
    together = joined.clients.examples
    run = hf.simulate(
        hf.algorithms.fedavg(),
        **joined._asdict(),
        local=hf.Local(0.1),
        rounds=1,
        evaluate=[hf.evaluate.on(together)],
    )
    plain = hf.evaluate.measure(model, run.params, clients.examples)
    assert run.history["loss"][0] == pytest.approx(1.5 * plain["loss"], rel=1e-5)


def test_what_cannot_be_joined_is_refused():
    clients = tiny_clients()
    wider = tiny_clients(features=6)
    model = hf.models.mlp([4], 3)
    apart = hf.join([hf.Population(clients, model), hf.Population(wider, model, name="wide")])
    with pytest.raises(
        hf.HoldfastError, match=r"that of wide .*; let all train the same parameters"
    ):
        hf.simulate(hf.algorithms.fedavg(), **apart, local=LOCAL, rounds=1)
    with pytest.raises(hf.HoldfastError, match="two populations are called `a`"):
        hf.join([hf.Population(clients, model, name="a")] * 2)
    with pytest.raises(hf.HoldfastError, match="and 1 has none; give all of them one"):
        hf.join([hf.Population(clients, model, local=LOCAL), hf.Population(clients, model)])
    twice = hf.join([hf.Population(clients, model), hf.Population(clients, model)])
    with pytest.raises(
        hf.HoldfastError, match="of several populations, each with a loss of its own"
    ):
        hf.simulate(hf.algorithms.centralised(), **twice, local=LOCAL, rounds=1)
    with pytest.raises(hf.HoldfastError, match="examples are of several populations with losses"):
        hf.Server(twice.clients.examples, LOCAL)
    with pytest.raises(hf.HoldfastError, match="share: clients are of several populations"):
        hf.data.share(twice.clients, clients.examples)
    with pytest.raises(hf.HoldfastError, match="3 entries for 2 populations"):
        hf.simulate(hf.algorithms.fedavg(), **twice, local=(LOCAL,) * 3, rounds=1)
    with pytest.raises(hf.HoldfastError, match="are several populations already"):
        hf.join([hf.Population(twice.clients, model)])
    with pytest.raises(hf.HoldfastError, match="no populations are given"):
        hf.join([])
    with pytest.raises(hf.HoldfastError, match="weight=0; give a number above 0"):
        hf.Population(clients, model, weight=0)
    joined = hf.join([hf.Population(clients, model, hf.cohorts.fixed(5))])
    with pytest.raises(hf.HoldfastError, match="5 clients are asked for but 4 of 4 have data"):
        hf.simulate(hf.algorithms.fedavg(), **joined._asdict(), local=LOCAL, rounds=1)


def halves(clients, model, weights=(0.5, 0.5), **settings):
    ids = np.arange(len(clients)) < len(clients) // 2
    parts = zip((ids, ~ids), weights, strict=True)
    return hf.join(
        [hf.Population(clients.subset(i), model, weight=w, **settings) for i, w in parts]
    )


SERVER_DATA = hf.Examples(np.array([[1.0, 2.0, 0.5, 1.0]]), np.array([[6.0, -1.0, 3.0, 0.0]]))
MIXED = [
    hf.algorithms.parallel_training(),
    hf.algorithms.one_way_transfer(central=0.5),
    hf.algorithms.two_way_transfer(),
    hf.algorithms.fedavg_plus(gamma=0.5),
    hf.algorithms.scaffold_plus(gamma=0.5),
]


@pytest.mark.parametrize("algorithm", MIXED, ids=lambda a: a.name)
def test_halves_of_a_population_beside_a_server_are_the_whole(algorithm, x64):
    clients, _ = random_quadratics(3, clients=6)
    joined = halves(clients, QUADRATIC)
    server = hf.Server(SERVER_DATA, LOCAL)
    ours = hf.simulate(algorithm, **joined, local=LOCAL, rounds=4, server=server)
    plain = hf.simulate(algorithm, QUADRATIC, clients, LOCAL, 4, server=server)
    np.testing.assert_allclose(ours.params, plain.params, atol=1e-12)


def test_the_servers_data_says_whose_loss_it_has(x64):
    clients, _ = random_quadratics(3, clients=4)
    both = hf.join([hf.Population(clients, QUADRATIC), hf.Population(clients, TILTED, name="b")])

    def run(server):
        algorithm = hf.algorithms.one_way_transfer()
        return hf.simulate(algorithm, **both, local=LOCAL, rounds=1, server=server).params

    plain, tilted = (run(hf.Server(both.of(p, SERVER_DATA), LOCAL)) for p in (0, "b"))
    # The second loss has a slope of 2 more, and clients take five steps of 0.05.
    np.testing.assert_allclose(plain - tilted, 0.05 * 5 * 2.0, atol=0.3)
    assert np.all(plain > tilted)
    given = run(hf.Server(SERVER_DATA, LOCAL, loss=TILTED.loss))
    np.testing.assert_allclose(given, tilted, atol=1e-12)
    with pytest.raises(hf.HoldfastError, match=r"models of their own.*joined.of\('0', examples\)"):
        run(hf.Server(SERVER_DATA, LOCAL))


@pytest.mark.parametrize("steps", [1, 5])
def test_weights_of_populations_and_of_the_centre_are_on_one_scale(steps, x64):
    """w_f sum_p w_p F_p + w_c f_c: two halves of weight 1 are one population of weight 2."""
    clients, _ = random_quadratics(3, clients=6)
    local, server = hf.Local(0.02, steps=steps), hf.Server(SERVER_DATA, hf.Local(0.02, steps=steps))
    joined = halves(clients, QUADRATIC, weights=(1.0, 1.0))
    for name in ("parallel_training", "one_way_transfer", "two_way_transfer"):
        make = getattr(hf.algorithms, name)
        ours = hf.simulate(make(), **joined, local=local, rounds=4, server=server)
        plain = hf.simulate(make(federated=2.0), QUADRATIC, clients, local, 4, server=server)
        np.testing.assert_allclose(ours.params, plain.params, atol=1e-12)


def test_with_a_centre_the_optimum_is_that_of_the_weighted_sum(x64):
    joined, _ = two_populations()
    a, b = random_quadratics(1, clients=6)[0].examples, random_quadratics(2, clients=15)[0].examples
    (c,), (m,) = SERVER_DATA
    curvature = a.x.mean(0) + 0.5 * b.x.mean(0) + 0.25 * c
    pull = (a.x * a.y).mean(0) + 0.5 * ((b.x * b.y).mean(0) - 2.0) + 0.25 * c * m
    server = hf.Server(joined.of(0, SERVER_DATA), hf.Local(0.02, steps=1))
    for name in ("parallel_training", "one_way_transfer", "two_way_transfer"):
        algorithm = getattr(hf.algorithms, name)(central=0.25)
        local = hf.Local(0.02, steps=1)
        run = hf.simulate(algorithm, **joined, local=local, rounds=900, server=server)
        np.testing.assert_allclose(run.params, pull / curvature, atol=1e-8, err_msg=name)


PHONES = hf.Local(
    hf.schedules.exponential(0.1, 0.5), epochs=2, batch_size=4, clip=0.5, momentum=0.9
)
SPEAKERS = hf.Local(0.03, steps=3, batch_size=6, clip=2.0, momentum=0.5, shuffle=False)
PLAIN = hf.Local(0.05, steps=2, batch_size=3, weight_decay=0.1)
ADAM = hf.Local(0.02, steps=2, optimizer=optax.adam)


@pytest.mark.parametrize(
    "locals_", [(PHONES, SPEAKERS), (PHONES, PLAIN), (ADAM, PLAIN)], ids=["alike", "unlike", "adam"]
)
def test_populations_train_in_their_own_way(locals_, x64):
    """Two single rounds, merged by hand."""
    a, b = tiny_clients(dtype=np.float64), tiny_clients(5, sizes=(11, 6, 9, 8), dtype=np.float64)
    model = hf.models.softmax_regression(3)
    # The second population's clients have the numbers 4..7, and so their orders of examples.
    nobody = hf.Clients(b.examples, b.order, np.concatenate([[0] * 4, b.offsets]))
    both = hf.join(
        [
            hf.Population(part, model, weight=w, local=local)
            for part, w, local in zip((a, b), (1.0, 3.0), locals_, strict=True)
        ]
    )
    start = jax.tree.map(lambda p: p + 0.3, model.init(jax.random.key(0), a.examples))
    settings = {"seed": 3, "params": start}
    joined = hf.rounds(hf.algorithms.fedavg(), **both, **settings)
    single = [
        hf.rounds(hf.algorithms.fedavg(), model, clients, local, **settings)
        for clients, local in zip((a, nobody), locals_, strict=True)
    ]
    x, ends = start, [next(stream) for stream in single]
    for _ in range(2):
        merged = jax.tree.map(
            lambda p, q, r: p + (q - p) / 4 + 3 * (r - p) / 4, x, *(end.params for end in ends)
        )
        x = next(joined).params
        assert largest_difference(x, merged) < 1e-12
        ends = [
            stream.send(dataclasses.replace(end, params=x))
            for stream, end in zip(single, ends, strict=True)
        ]


def test_corrections_divide_by_the_steps_of_each_population(x64):
    """SCAFFOLD and two-way transfer reach the optimum whatever the populations' steps are."""
    clients, optimum = random_quadratics(3, clients=6)
    locals_ = (hf.Local(0.02, steps=4), hf.Local(0.06, steps=1, clip=1e6))
    both = hf.join([hf.Population(clients, QUADRATIC, local=local) for local in locals_])
    run = hf.simulate(hf.algorithms.scaffold(), **both, rounds=500)
    np.testing.assert_allclose(run.params, optimum, atol=1e-9)


SLOW = hf.Local(0.1, epochs=2, batch_size=4)
CLIPPED = hf.Local(0.1, epochs=2, batch_size=4, clip=0.5, weight_decay=0.1, momentum=0.9)
SEARCH = hf.solvers.LineSearch(max_steps=20, tolerance=1e3)
SHARED_ROWS = hf.wires.RandK(share=0.5)
# Method, how it is weighted within a population, and local training.
CROSSED = {
    "clip, decay and momentum": (hf.algorithms.fedavg(), CLIPPED),
    "examples processed": (hf.algorithms.fedavg(weighting="processed"), SLOW),
    "adam": (hf.algorithms.fedavg(), hf.Local(0.05, steps=3, optimizer=optax.adam)),
    "scaffold by examples": (hf.algorithms.scaffold(weighting="examples"), SLOW),
    "feddyn, uniform": (hf.algorithms.feddyn(0.5), SLOW),
    "masks": (hf.algorithms.fedpvr(lambda path: "bias" in path), SLOW),
    "compressed": (hf.Algorithm(hf.rules.Dynamic(0.5), hf.wires.Compressed(SHARED_ROWS)), SLOW),
    "error feedback": (
        hf.Algorithm(wire=hf.wires.ErrorFeedback(SHARED_ROWS), weighting="examples"),
        SLOW,
    ),
    "diana": (hf.algorithms.diana(SHARED_ROWS), hf.Local(0.1, steps=1)),
    "flix": (hf.algorithms.flix(0.5, solver=SEARCH), SLOW),
    "server data": (hf.algorithms.fedavg_plus(gamma=0.5), SLOW),
}


@pytest.mark.parametrize("name", CROSSED)
def test_parts_of_a_population_by_what_they_count_are_the_whole(name, x64):
    """Weights are the parts' shares of the whole mean, so that the objective is the same."""
    algorithm, local = CROSSED[name]
    clients, model = tiny_clients(dtype=np.float64), hf.models.softmax_regression(3)
    each = clients.sizes.astype(float)
    if algorithm.weighting == "uniform":
        each = np.ones(4)
    if algorithm.weighting == "processed":
        each = each * 2
    shares = each[:1].sum() / each.sum(), each[1:].sum() / each.sum()
    parts = [clients.subset([0]), clients.subset([1, 2, 3])]
    joined = hf.join(
        [hf.Population(part, model, weight=w) for part, w in zip(parts, shares, strict=True)]
    )
    settings = {"seed": 1, "server": None}
    if hf.Need.SERVER_DATA in algorithm.rule.traits.needs:
        settings["server"] = hf.Server(clients[2], hf.Local(0.1, steps=2))
    ours = hf.simulate(algorithm, **joined, local=local, rounds=3, **settings)
    plain = hf.simulate(algorithm, model, clients, local, 3, **settings)
    assert largest_difference(ours.params, plain.params) < 1e-12
    for i in (0, 3):
        assert largest_difference(ours.client_states[i], plain.client_states[i]) < 1e-12
        assert largest_difference(ours.personal(i), plain.personal(i)) < 1e-12
    assert ours.ledger.total == plain.ledger.total


def test_a_wire_that_keeps_one_mean_needs_everyone():
    joined, _ = two_populations(a=hf.cohorts.fixed(2))
    with pytest.raises(hf.HoldfastError, match="would drift where populations take part at rates"):
        hf.simulate(hf.algorithms.diana(SHARED_ROWS), **joined, local=LOCAL, rounds=1)
    clipped = hf.Algorithm(hf.rules.AdaptiveClip(0.1))
    with pytest.raises(hf.HoldfastError, match="would count populations by how many take part"):
        hf.simulate(clipped, **joined, local=LOCAL, rounds=1)
