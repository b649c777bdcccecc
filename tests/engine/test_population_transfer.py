"""Gradient transfer between populations, with a centre and without."""

import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, largest_difference

WEIGHTS = (1.0, 2.0, 0.5)
# Of three populations and the centre; clients of one population have the same loss.
CURVATURE = np.array([[1.0, 3.0], [4.0, 0.5], [2.0, 2.0], [1.0, 3.0]])
CENTRE = np.array([[0.0, 1.0], [5.0, -2.0], [-3.0, 4.0], [2.0, 2.0]])
CENTRAL = 0.75


def population(p, clients=3, **settings):
    rows = hf.Examples(np.tile(CURVATURE[p], (clients, 1)), np.tile(CENTRE[p], (clients, 1)))
    each = hf.Clients.from_rows(rows, [[i] for i in range(clients)])
    return hf.Population(each, QUADRATIC, weight=WEIGHTS[p], **settings)


def optimum(parties, central):
    w = np.array([*WEIGHTS[: len(parties)], CENTRAL if central else 0.0])[:, None]
    rows = [*parties, 3]
    return (w * CURVATURE[rows] * CENTRE[rows]).sum(0) / (w * CURVATURE[rows]).sum(0)


def server(steps=5):
    loss = lambda w: 0.5 * jnp.sum(CURVATURE[3] * (w - CENTRE[3]) ** 2)  # noqa: E731
    return hf.Server(loss, hf.Local(0.02, steps=steps))


@pytest.mark.parametrize("central", [None, CENTRAL], ids=["no centre", "centre"])
def test_the_fixed_point_is_the_minimiser_of_the_weighted_sum(central, x64):
    """Populations differ in losses, weights, sizes, rates and local training; averages are biased."""
    parts = [
        population(0, 4, cohort=hf.cohorts.fixed(2), local=hf.Local(0.02, steps=5)),
        population(1, 2, local=hf.Local(0.05, steps=3)),
        population(2, 3, cohort=hf.cohorts.bernoulli(0.5), local=hf.Local(0.03, steps=4)),
    ]
    joined = hf.join(parts)
    own = None if central is None else server()
    transfer = hf.algorithms.population_transfer(3, central)
    run = hf.simulate(transfer, **joined, rounds=600, server=own)
    wanted = optimum([0, 1, 2], central)
    np.testing.assert_allclose(run.params, wanted, atol=1e-8)
    plain = hf.algorithms.fedavg()
    if central is not None:
        plain = hf.algorithms.parallel_training(central=central)
    averaged = hf.simulate(plain, **joined, rounds=600, server=own)
    assert np.abs(averaged.params - wanted).max() > 0.01


def test_one_way_lends_a_gradient(x64):
    """Only the first population moves the model; with the other's gradient it reaches both optima's."""
    local = (hf.Local(0.02, steps=5), hf.Local(0.02, steps=1))
    joined = hf.join([population(p, local=own) for p, own in enumerate(local)])
    algorithm = hf.algorithms.population_transfer(2, merge=(1.0, 0.0))
    run = hf.simulate(algorithm, **joined, rounds=800)
    np.testing.assert_allclose(run.params, optimum([0, 1], None), atol=1e-8)


@pytest.mark.parametrize("central", [None, CENTRAL], ids=["no centre", "centre"])
def test_with_one_step_all_make_the_same_progress(central, x64):
    """Appendix A.3: up to gradients that are a round old, and their absence in the first round."""
    joined = hf.join([population(p) for p in range(3)])
    local, own = hf.Local(0.01, steps=1), None if central is None else server(1)
    own = None if own is None else hf.Server(own.source, local)
    other = hf.algorithms.fedavg()
    if central is not None:
        other = hf.algorithms.parallel_training(central=central)
    algorithms = (other, hf.algorithms.population_transfer(3, central))
    plain, transfer = (
        np.array(
            [
                next(states).params
                for states in [hf.rounds(a, **joined, local=local, server=own)]
                for _ in range(60)
            ]
        )
        for a in algorithms
    )
    wanted = optimum([0, 1, 2], central)
    far = np.linalg.norm(wanted)
    apart = np.linalg.norm(plain - transfer, axis=1) / far
    assert apart.max() < 0.08
    assert np.linalg.norm(plain[-1] - wanted) < 0.5 * far


def test_one_population_with_a_centre_is_two_way_transfer(x64):
    joined, local = hf.join([population(0)]), hf.Local(0.05, steps=3)
    mine = hf.algorithms.population_transfer(1, CENTRAL)
    theirs = hf.algorithms.two_way_transfer(central=CENTRAL, weighting="uniform")
    a, b = (
        hf.simulate(x, **joined, local=local, rounds=5, server=server()) for x in (mine, theirs)
    )
    assert largest_difference(a.params, b.params) < 1e-12


@pytest.mark.parametrize("weighting", ["uniform", "examples", "processed"])
def test_weights_within_a_population_are_those_of_the_method(weighting, x64):
    """With one step clients of a population may differ, and have more examples than others."""
    sizes = np.array([[1, 3], [2, 5]])
    parts = []
    for p in (0, 1):
        rows = [
            hf.Examples(np.tile(CURVATURE[i], (n, 1)), np.tile(CENTRE[i], (n, 1)))
            for i, n in zip((p, p + 2), sizes[p], strict=True)
        ]
        parts.append(hf.Population(hf.Clients.from_datasets(rows), QUADRATIC, weight=p + 1.0))
    algorithm = hf.algorithms.population_transfer(weighting=weighting)
    run = hf.simulate(algorithm, **hf.join(parts), local=hf.Local(0.05, steps=1), rounds=400)
    within = np.ones((2, 2)) if weighting == "uniform" else sizes
    w = np.array([1.0, 2.0])[:, None] * within / within.sum(1, keepdims=True)
    a, b = CURVATURE[[[0, 2], [1, 3]]], CENTRE[[[0, 2], [1, 3]]]
    wanted = (w[..., None] * a * b).sum((0, 1)) / (w[..., None] * a).sum((0, 1))
    np.testing.assert_allclose(run.params, wanted, atol=1e-8)


def test_one_gradient_and_one_number_travel():
    joined, local = hf.join([population(p) for p in range(3)]), hf.Local(0.05, steps=3)
    run = hf.simulate(hf.algorithms.population_transfer(3), **joined, local=local, rounds=1)
    entry = run.ledger.entries[0]
    assert (entry.down, entry.up) == (8 + 8 + 4, 8)


def test_what_cannot_work_is_refused():
    joined, local = hf.join([population(p) for p in range(3)]), hf.Local(0.05, steps=3)

    def refused(match, algorithm, **settings):
        with pytest.raises(hf.HoldfastError, match=match):
            hf.simulate(algorithm, **{**joined, "local": local, "rounds": 1, **settings})

    refused("populations=2, and the clients are of 3", hf.algorithms.population_transfer(2))
    refused("needs data or a loss", hf.algorithms.population_transfer(3, 1.0))
    momentum = hf.Local(0.05, steps=3, momentum=0.9)
    refused("needs plain SGD", hf.algorithms.population_transfer(3), local=momentum)
    with pytest.raises(hf.HoldfastError, match="merge has 2 numbers for 3 moves"):
        hf.algorithms.population_transfer(3, merge=(0.5, 0.5))
    few = hf.join([population(0, cohort=hf.cohorts.fixed(1)), population(1)])
    two_way = hf.algorithms.two_way_transfer()
    refused(r"population_transfer\(2, central", two_way, **few, server=server())
