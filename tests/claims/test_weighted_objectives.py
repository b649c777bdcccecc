"""Clients of unequal size: whose minimiser each method finds, by weighting."""

import numpy as np
import pytest

import holdfast as hf
from papers.feddyn.authors import AuthorsDynamic
from tests.problems import QUADRATIC, largest_difference, tiny_clients

SIZES = np.array([1, 2, 6, 1, 5])
ALPHA = 2.0
METHODS = {
    "scaffold": lambda w: hf.algorithms.scaffold(weighting=w),
    "scaffold published": lambda w: hf.algorithms.scaffold(upload="published", weighting=w),
    "scaffold option I": lambda w: hf.algorithms.scaffold(option="I", weighting=w),
    "fedpvr": lambda w: hf.algorithms.fedpvr(mask=[True], weighting=w),
    "feddyn": lambda w: hf.algorithms.feddyn(ALPHA, weighting=w),
    "feddc": lambda w: hf.algorithms.feddc(ALPHA, weighting=w),
    "fedsplit": lambda w: hf.algorithms.fedsplit(0.5, average="all", weighting=w),
    "fedsplit active": lambda w: hf.algorithms.fedsplit(0.5, weighting=w),
}
COHORTS = {"everyone": None, "two of five": hf.cohorts.fixed(2)}
# Its server forgets the states of absent clients.
ONLY_EVERYONE = {"fedsplit active"}


def problem(seed=0, sizes=SIZES):
    """Examples of a client are quadratics; its loss is their mean, and what remains is one each."""
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    curvature, centre = rng.uniform(0.5, 3, (total, 3)), rng.normal(0, 3, (total, 3))
    rows = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    clients = hf.Clients.from_rows(hf.Examples(curvature, centre), rows)
    means = [np.stack([a[r].mean(0) for r in rows]) for a in (curvature, curvature * centre)]
    return clients, *means


def minimiser(curvature, pull, weights):
    return weights @ pull / (weights @ curvature)


@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("name", METHODS)
def test_each_weighting_has_its_minimiser(name, cohort, x64):
    if name in ONLY_EVERYONE and COHORTS[cohort] is not None:
        pytest.skip("forgets clients that are absent, whatever the weighting")
    clients, curvature, pull = problem()
    local = hf.Local(0.1, steps=60 if "split" in name else 5)
    ends = {
        weighting: hf.simulate(
            METHODS[name](weighting), QUADRATIC, clients, local, 300, cohort=COHORTS[cohort]
        ).params
        for weighting in ("uniform", "examples")
    }
    np.testing.assert_allclose(
        ends["uniform"], minimiser(curvature, pull, np.ones(5)), atol=1e-7, err_msg=name
    )
    np.testing.assert_allclose(
        ends["examples"], minimiser(curvature, pull, SIZES), atol=1e-7, err_msg=name
    )
    assert largest_difference(*ends.values()) > 0.1


def test_by_examples_processed(x64):
    """A fixed number of small batches: nobody processes more than two."""
    clients, curvature, pull = problem()
    local = hf.Local(0.02, steps=1, batch_size=2)
    algorithm = hf.algorithms.feddyn(ALPHA, weighting="processed")
    run = hf.simulate(algorithm, QUADRATIC, clients, local, rounds=0)
    np.testing.assert_array_equal(run.view.weights, [1, 2, 2, 1, 2])
    full = hf.Local(0.1, epochs=5)
    run = hf.simulate(algorithm, QUADRATIC, clients, full, rounds=500)
    np.testing.assert_allclose(run.params, minimiser(curvature, pull, SIZES), atol=1e-7)


def test_the_authors_division_of_alpha_ends_there_too(x64):
    clients, curvature, pull = problem()
    algorithm = hf.Algorithm(AuthorsDynamic(ALPHA))
    run = hf.simulate(algorithm, QUADRATIC, clients, hf.Local(0.05, steps=10), rounds=1000)
    np.testing.assert_allclose(run.params, minimiser(curvature, pull, SIZES), atol=1e-6)


def test_weighted_means_are_those_of_a_population_with_copies(x64):
    """A client of twice the examples is two clients, whatever the method remembers."""
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 3, (2, 3)), rng.normal(0, 3, (2, 3))
    rows = hf.Examples(a[[0, 1, 1]], b[[0, 1, 1]])
    local = hf.Local(0.1, steps=5)
    for algorithm in (METHODS[name] for name in ("scaffold", "feddyn", "feddc", "fedsplit")):
        one = hf.Clients.from_rows(rows, [[0], [1, 2]])
        copies = hf.Clients.from_rows(rows, [[0], [1], [2]])
        weighted = hf.simulate(algorithm("examples"), QUADRATIC, one, local, rounds=4)
        plain = hf.simulate(algorithm("uniform"), QUADRATIC, copies, local, rounds=4)
        assert largest_difference(weighted.params, plain.params) < 1e-12


@pytest.mark.parametrize("cohorts", [(None, None), (1, 2)], ids=["everyone", "some"])
def test_joined_populations_of_unequal_clients(cohorts, x64):
    sizes = ((1, 3), (2, 1, 4))
    parts = [problem(seed, own) for seed, own in enumerate(sizes)]
    weights = (1.0, 0.5)
    joined = hf.join(
        [
            hf.Population(
                p[0],
                QUADRATIC,
                weight=w,
                cohort=hf.cohorts.fixed(c) if c else hf.cohorts.everyone(),
            )
            for p, w, c in zip(parts, weights, cohorts, strict=True)
        ]
    )
    each = np.concatenate([w * np.array(s) / sum(s) for w, s in zip(weights, sizes, strict=True)])
    curvature, pull = (np.concatenate([p[k] for p in parts]) for k in (1, 2))
    for name in ("scaffold", "feddyn", "feddc"):
        algorithm = METHODS[name]("examples")
        run = hf.simulate(algorithm, **joined, local=hf.Local(0.1, steps=5), rounds=800)
        np.testing.assert_allclose(run.params, minimiser(curvature, pull, each), atol=1e-7)


def test_the_servers_memory_is_the_weighted_mean_of_the_clients(x64):
    clients, _, _ = problem()
    for name in ("scaffold", "feddyn", "fedsplit"):
        run = hf.simulate(
            METHODS[name]("examples"),
            QUADRATIC,
            clients,
            hf.Local(0.1, steps=5),
            rounds=7,
            cohort=hf.cohorts.fixed(2),
        )
        each = np.stack([run.client_states[i].rule for i in range(5)])
        np.testing.assert_allclose(run.state.server.rule, SIZES @ each / SIZES.sum(), atol=1e-12)


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_server_learning_adds_its_loss_to_the_weighted_one(weighting, x64):
    clients, curvature, pull = problem()
    server = hf.Server(lambda w: 0.5 * ((w - 1.0) ** 2).sum(), hf.Local(0.1, steps=5))
    run = hf.simulate(
        hf.algorithms.scaffold_plus(0.5, weighting=weighting),
        QUADRATIC,
        clients,
        hf.Local(0.1, steps=5),
        rounds=500,
        server=server,
    )
    weights = SIZES / SIZES.sum() if weighting == "examples" else np.full(5, 0.2)
    wanted = (weights @ pull + 0.5) / (weights @ curvature + 0.5)
    np.testing.assert_allclose(run.params, wanted, atol=1e-7)


def test_counts_of_heads_stay_counts():
    """The share of clients within the clip, and the server's share, do not depend on the weighting."""
    clients, model = tiny_clients(), hf.models.mlp([4], 3)
    clip = hf.rules.AdaptiveClip(initial=0.05)
    bounds = [
        hf.simulate(
            hf.Algorithm(clip, weighting=weighting), model, clients, hf.Local(0.05, steps=1), 1
        ).state.server.rule
        for weighting in ("uniform", "examples")
    ]
    assert float(bounds[0]) == float(bounds[1])


def test_one_shot_with_few_of_unequal_clients_is_refused(x64):
    clients, _, _ = problem()
    solver = hf.solvers.GradientDescent(step=0.3, tolerance=1e-9)
    rule = hf.algorithms.flix_one_shot(0.5, 1.0, solver).rule
    algorithm = hf.Algorithm(rule, weighting="examples")
    local = hf.Local(0.1, steps=1)
    with pytest.raises(hf.HoldfastError, match="uniform weighting, or all clients in every round"):
        hf.simulate(algorithm, QUADRATIC, clients, local, 1, cohort=hf.cohorts.fixed(2))
    # Everybody's optima, by examples.
    run = hf.simulate(algorithm, QUADRATIC, clients, local, 1)
    _, curvature, pull = problem()
    np.testing.assert_allclose(run.params, SIZES @ (pull / curvature) / SIZES.sum(), atol=1e-6)
