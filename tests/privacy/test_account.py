"""Epsilon is dp-accounting's own, of the event that the cohort is."""

import itertools
import logging
import math

import pytest

import holdfast as hf
from holdfast.privacy import Account, Scheme, epsilon, noise_multiplier, scheme_of
from holdfast.privacy.account import _rdp_of_round

dp = pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
rdp = pytest.importorskip("dp_accounting.rdp")
pld = pytest.importorskip("dp_accounting.pld")
RELATION = dp.NeighboringRelation


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """dp-accounting logs the orders it leaves out."""
    monkeypatch.setattr(logging.getLogger("absl"), "disabled", True)


def own(accountant, event, rounds, delta):
    accountant.compose(dp.SelfComposedDpEvent(event, rounds))
    return accountant.get_epsilon(delta)


POISSON = [(0.01, 0.8, 1000, 1e-6), (0.1, 1.0, 100, 1e-5), (0.3, 4.0, 50, 1e-5)]
FIXED = [(1000, 10, 2.0, 100, 1e-6), (100, 10, 4.0, 30, 1e-5), (20, 20, 6.0, 10, 1e-3)]
EVERYONE = [(3.0, 20, 1e-5), (10.0, 200, 1e-6)]


@pytest.mark.parametrize(("q", "z", "rounds", "delta"), POISSON)
@pytest.mark.parametrize("kind", ["rdp", "pld"])
def test_poisson_cohorts(q, z, rounds, delta, kind):
    maker = rdp.RdpAccountant if kind == "rdp" else pld.PLDAccountant
    event = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z))
    expected = own(maker(neighboring_relation=RELATION.ADD_OR_REMOVE_ONE), event, rounds, delta)
    found = epsilon(Scheme("poisson", 1000, q), z, rounds, delta, kind)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("population", "size", "z", "rounds", "delta"), FIXED)
def test_fixed_cohorts_move_a_sum_by_two_clips(population, size, z, rounds, delta):
    inside = dp.GaussianDpEvent(z / 2)
    event = dp.SampledWithoutReplacementDpEvent(population, size, inside)
    accountant = rdp.RdpAccountant(neighboring_relation=RELATION.REPLACE_ONE)
    scheme = Scheme("fixed", population, size / population)
    found = epsilon(scheme, z, rounds, delta, "rdp")
    assert found == pytest.approx(own(accountant, event, rounds, delta), abs=1e-6)


@pytest.mark.parametrize(("z", "rounds", "delta"), EVERYONE)
@pytest.mark.parametrize("kind", ["rdp", "pld"])
def test_everyone(z, rounds, delta, kind):
    maker = rdp.RdpAccountant if kind == "rdp" else pld.PLDAccountant
    found = epsilon(Scheme("everyone", 50), z, rounds, delta, kind)
    assert found == pytest.approx(own(maker(), dp.GaussianDpEvent(z), rounds, delta), abs=1e-6)


def test_accountants_mean_different_things_by_a_multiplier_of_replacement():
    """Why the event of fixed cohorts has half of it: dp-accounting's PLD doubles, its RDP does not."""
    event = dp.GaussianDpEvent(4.0)
    doubled = own(pld.PLDAccountant(RELATION.REPLACE_ONE), event, 10, 1e-5)
    half = own(pld.PLDAccountant(), dp.GaussianDpEvent(2.0), 10, 1e-5)
    assert doubled == pytest.approx(half, abs=1e-6)
    replaced = own(rdp.RdpAccountant(None, RELATION.REPLACE_ONE), event, 10, 1e-5)
    added = own(rdp.RdpAccountant(), event, 10, 1e-5)
    assert replaced == pytest.approx(added, abs=1e-9)


def test_a_published_epsilon():
    """Abadi et al. 2016, section 3.2: q = 0.01, sigma = 4, 10,000 steps and delta = 1e-5 come to 1.26 by
    the moments accountant, whose conversion dp-accounting has tightened since."""
    scheme = Scheme("poisson", 60000, 0.01)
    orders, divergence = _rdp_of_round(scheme, 4.0)
    published = (10_000 * divergence + math.log(1e5) / (orders - 1)).min()
    assert round(float(published), 2) == 1.26
    tighter = epsilon(scheme, 4.0, 10_000, 1e-5, "rdp")
    assert 0.9 < tighter < 1.26


@pytest.mark.parametrize(("z", "epochs", "printed"), [(1.12, 60, 2.92), (1.2, 10, 1.20)])
def test_epsilons_of_tensorflow_privacys_tutorial(z, epochs, printed):
    """MNIST in batches of 256, delta 1e-5 (tutorials/README.md), by the conversion of its time; a third row
    of it, 9.74 at z = 0.6 and 30 epochs, comes to 9.76."""
    scheme, steps = Scheme("poisson", 60000, 256 / 60000), epochs * 60000 // 256
    orders, divergence = _rdp_of_round(scheme, z)
    found = (steps * divergence + math.log(1e5) / (orders - 1)).min()
    assert round(float(found), 2) == printed
    assert 0.75 * printed < epsilon(scheme, z, steps, 1e-5, "rdp") < printed


def test_noise_that_is_found_spends_the_budget_and_no_more():
    cases = [
        (Scheme("poisson", 100, 0.2), "pld"),
        (Scheme("poisson", 100, 0.2), "rdp"),
        (Scheme("fixed", 100, 0.1), "rdp"),
        (Scheme("everyone", 100), "pld"),
    ]
    for (scheme, kind), budget in itertools.product(cases, (2.0, 8.0)):
        z = noise_multiplier(scheme, budget, 30, 1e-5, kind)
        spent = epsilon(scheme, z, 30, 1e-5, kind)
        assert 0.995 * budget < spent <= budget


def test_the_account_ends_when_the_budget_is_spent():
    account = Account(Scheme("poisson", 100, 0.1), 1.0, 1e-5, "rdp", budget=5.0)
    last = account.rounds
    assert account.epsilon(last) <= 5.0 < account.epsilon(last + 1)
    assert account.spent(last - 1) is None
    assert "budget is spent" in account.spent(last)
    found = Account(Scheme("poisson", 100, 0.1), 1.0, 1e-5, "rdp", budget=1e9, planned=7)
    assert found.rounds == 7
    assert Account(Scheme("everyone", 9), 1.0, 1e-5, "rdp").rounds is None


def test_the_column_is_a_bound_and_exact_at_the_end():
    account = Account(Scheme("everyone", 100), 5.0, 1e-5, "pld", budget=6.0, planned=23)
    told = [account.at_most(t) for t in range(1, 24)]
    for t in (1, 2, 7, 13, 23):
        assert told[t - 1] >= account.epsilon(t) - 1e-12
    assert told == sorted(told)
    assert told[-1] == account.epsilon(23)


def test_schemes():
    assert scheme_of(hf.cohorts.everyone(), 7).expected == 7
    assert scheme_of(hf.cohorts.fixed(3), 7).expected == pytest.approx(3)
    assert scheme_of(hf.cohorts.bernoulli(0.25), 8) == Scheme("poisson", 8, 0.25)
    assert scheme_of(hf.cohorts.bernoulli(1.0), 8).kind == "everyone"
    for cohort in (hf.cohorts.schedule([[0]]), hf.cohorts.weighted(1, [1, 2])):
        with pytest.raises(hf.HoldfastError, match="no account of that is known"):
            scheme_of(cohort, 2)
    with pytest.raises(hf.HoldfastError, match="no PLD of cohorts of a fixed size"):
        epsilon(Scheme("fixed", 10, 0.5), 1.0, 1, 1e-5, "pld")


def test_gaussians_own_formula():
    """A mean over everybody: the exact curve of the Gaussian mechanism (Balle and Wang, 2018)."""
    from scipy.stats import norm

    z, rounds, delta = 4.0, 16, 1e-5
    found = epsilon(Scheme("everyone", 10), z, rounds, delta, "pld")
    mu = math.sqrt(rounds) / z
    at = norm.cdf(-found / mu + mu / 2) - math.exp(found) * norm.cdf(-found / mu - mu / 2)
    assert at == pytest.approx(delta, rel=1e-2)
