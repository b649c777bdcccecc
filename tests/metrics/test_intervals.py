"""Intervals against scipy, and by simulation: of many, 95 in 100 hold the true value."""

import numpy as np
import pytest
import scipy.stats

from holdfast.metrics.intervals import (
    Variance,
    interval,
    over_rows,
    over_runs,
    over_splits,
    resampled,
    wilson,
)

TRIALS = 600


def covered(trial, truth=0.0):
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(TRIALS):
        found = trial(rng)
        hits += found.low <= truth <= found.high
    return hits / TRIALS


def test_one_client_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=30), rng.normal(0.2, size=30)
    mean, variance = over_rows(one - other, np.zeros(30), np.arange(30))
    found = interval(mean, [variance])
    known = scipy.stats.ttest_rel(one, other).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], known)


def test_two_given_clients_are_welchs_interval_of_a_mean_of_means():
    rng = np.random.default_rng(1)
    few, many = rng.normal(size=6), rng.normal(0, 3, size=40)
    mean, variance = over_rows(
        np.concatenate([few, -many]), np.repeat([0, 1], [6, 40]), np.arange(46), clients_alike=True
    )
    found = interval(2 * mean, [Variance(4 * variance.value, variance.freedom)])
    known = scipy.stats.ttest_ind(few, many, equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], known)


def test_rows_of_four_given_clients_are_covered():
    """Clients differ, rows are few and of 0 and 1: the mean over rows of these clients."""
    shares, sizes = np.array([0.3, 0.6, 0.8, 0.9]), np.array([9, 40, 60, 60])
    clients = np.repeat(np.arange(4), sizes)
    truth = float(shares @ sizes / sizes.sum())

    def trial(rng):
        values = (rng.random(len(clients)) < shares[clients]).astype(float)
        mean, variance = over_rows(values, clients, np.arange(len(clients)))
        return interval(mean, [variance])

    assert 0.93 <= covered(trial, truth) <= 0.975


def test_many_clients_that_share_rows_are_covered():
    """A client's own effect and a row's own effect: either cluster alone would be too sure."""
    clients = np.repeat(np.arange(30), 12)

    def trial(rng):
        rows = np.concatenate([rng.choice(60, 12, replace=False) for _ in range(30)])
        values = (
            rng.normal(0, 0.5, 30)[clients]
            + rng.normal(0, 1.0, 60)[rows]
            + rng.normal(0, 0.5, len(rows))
        )
        mean, variance = over_rows(values, clients, rows)
        naive = over_rows(values, np.zeros(len(rows)), np.arange(len(rows)))[1]
        assert variance.value > naive.value
        return interval(mean, [variance])

    assert 0.92 <= covered(trial) <= 0.985


def test_rows_and_seeds_together_are_covered():
    def trial(rng):
        rows, seeds = rng.normal(0, 1, 80), rng.normal(0, 0.1, 3)
        values = rows[:, None] + seeds[None, :] + rng.normal(0, 0.3, (80, 3))
        mean, by_rows = over_rows(values.mean(axis=1), np.zeros(80), np.arange(80))
        return interval(mean, [by_rows, over_runs(values.mean(axis=0).tolist())])

    assert 0.93 <= covered(trial) <= 0.985


def test_overlapping_splits_are_covered_by_the_corrected_variance_only():
    """Fifty rows, ten splits of 40 to learn a mean from and 10 to test it on: the error of the mean."""

    def trial(rng, corrected=True):
        population = rng.normal(size=50)
        found = []
        for _ in range(10):
            order = rng.permutation(50)
            found.append(float(population[order[:10]].mean() - 0.0))
        part = over_splits(found, 0.25 if corrected else 0.0)
        return interval(float(np.mean(found)), [part])

    assert covered(trial) >= 0.93
    assert covered(lambda rng: trial(rng, corrected=False)) < 0.8


def test_the_bootstrap_agrees_with_what_is_known_of_a_mean():
    rng = np.random.default_rng(3)
    for clients in (np.repeat(np.arange(4), 50), np.repeat(np.arange(40), 5)):
        values = rng.normal(size=200) + rng.normal(size=clients.max() + 1)[clients]
        known = over_rows(values, clients, np.arange(200))[1]
        found = resampled(lambda places, v=values: float(v[places].mean()), clients, draws=600)
        assert found.value == pytest.approx(known.value, rel=0.25)


def test_a_share_of_few_rows_is_covered():
    assert covered(lambda rng: wilson(rng.binomial(9, 0.8) / 9, 9), 0.8) >= 0.93
    assert wilson(1.0, 9).high == 1.0
    assert wilson(1.0, 9).low < 0.75


def test_what_does_not_vary_has_no_width():
    found = interval(0.25, [Variance(0.0, 3)])
    assert (found.low, found.high) == (0.25, 0.25)
    assert not found.includes_zero
    assert over_runs([0.5]).value == 0
