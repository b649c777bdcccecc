"""Liars who know the honest replies of their round: what they send is NumPy's, whoever takes part."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

import holdfast as hf
from holdfast.attacks.conspiring import within_reach
from tests.attacks.test_attacks import FEDAVG, LOCAL, after_one_round, single_updates
from tests.engine import test_select, test_unlike_populations
from tests.problems import QUADRATIC, largest_difference, random_quadratics, same_bits

LIARS = [2, 5, 9]
ATTACKS = {
    "a little": hf.attacks.ALittleIsEnough(clients=LIARS, z=1.5),
    "a little by n and f": hf.attacks.ALittleIsEnough(clients=LIARS),
    "inner product": hf.attacks.InnerProductManipulation(clients=LIARS, epsilon=0.5),
}


def lie(attack, honest, liars):
    """As the papers have it."""
    if isinstance(attack, hf.attacks.InnerProductManipulation):
        return -attack.epsilon * honest.mean(0)
    n = len(honest) + liars
    z = attack.z
    if z is None:
        # One honest reply has no deviation.
        z = (
            0.0
            if len(honest) == 1
            else max(0.0, norm.ppf((n - liars - (n // 2 + 1 - liars)) / (n - liars)))
        )
    return honest.mean(0) - z * honest.std(0)


@pytest.mark.parametrize("there", [range(10), [1, 2, 5, 7, 8], [2, 5, 6]], ids=len)
@pytest.mark.parametrize("name", ATTACKS)
def test_liars_send_what_the_papers_say(name, there, x64):
    each, there = single_updates(), np.array(there)
    lies = np.isin(there, LIARS)
    sent = each[there]
    if lies.any():
        sent[lies] = lie(ATTACKS[name], each[there[~lies]], lies.sum())
    cohort = hf.cohorts.schedule([there.tolist()])
    for mean, expected in ((None, sent.mean(0)), ("median", np.median(sent, 0))):
        aggregate = mean and hf.aggregates.CoordinateMedian()
        method = dataclasses.replace(FEDAVG, aggregate=aggregate)
        run = after_one_round(ATTACKS[name], method, cohort=cohort)
        np.testing.assert_allclose(run.params, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "f", "z"),
    [(50, 10, norm.ppf(24 / 40)), (50, 24, norm.ppf(24 / 26)), (10, 2, 0.0), (10, 1, 0.0)],
)
def test_how_far_is_within_reach(n, f, z):
    np.testing.assert_allclose(within_reach(np.array(n), np.array(f)), z, atol=1e-6)


@pytest.mark.parametrize(("n", "f"), [(10, 9), (10, 6), (3, 3), (1, 0), (0, 0)])
def test_a_majority_of_liars_is_still_a_number(n, f):
    assert np.isfinite(within_reach(np.array(n), np.array(f)))


def test_where_nobody_is_honest_zeros_are_sent():
    run = after_one_round(ATTACKS["a little"], cohort=hf.cohorts.schedule([[2, 5]]))
    assert not np.asarray(run.params).any()


def test_what_is_not_finite_is_not_overheard(x64):
    clients, _ = random_quadratics(5)
    diverges = hf.algorithms.fedprox(hf.PerClient(np.where(np.arange(10) == 4, 1e200, 0.0)))
    attack, each = ATTACKS["inner product"], single_updates()
    sent = np.delete(each, 4, 0)
    honest = np.delete(each, [4, *LIARS], 0)
    sent[[2, 4, 8]] = lie(attack, honest, 3)
    run = hf.simulate(diverges, QUADRATIC, clients, LOCAL, 1, attack=attack)
    assert run.ledger.entries[0].left_out == (4,)
    np.testing.assert_allclose(run.params, sent.mean(0), atol=1e-12)


@pytest.mark.parametrize("wire", ["compressed", "error feedback", "clipped"])
def test_clients_together_send_the_same_by_every_wire(wire):
    wires = {
        "compressed": hf.wires.Compressed(hf.wires.Natural()),
        "error feedback": hf.wires.ErrorFeedback(hf.wires.TopK(k=2)),
        "clipped": hf.wires.Clipped(hf.Wire(), bound=0.5),
    }
    rule = hf.rules.ControlVariate(damping=0.5)
    method = hf.Algorithm(rule, wires[wire], aggregate=hf.aggregates.Krum(share=0.3))
    runs = [
        hf.simulate(
            method,
            QUADRATIC,
            random_quadratics(5)[0],
            LOCAL,
            2,
            attack=ATTACKS["a little"],
            cohort=hf.cohorts.fixed(7),
            engine=engine,
        )
        for engine in (hf.CompiledEngine(), hf.CompiledEngine(width=4))
    ]
    np.testing.assert_allclose(runs[1].params, runs[0].params, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["a little", "sign flip", "noise"])
def test_select_equals_the_full_table(name):
    attacks = {
        "a little": hf.attacks.ALittleIsEnough(clients=[1], z=1.5),
        "sign flip": hf.attacks.SignFlip(clients=[1], times=3.0),
        "noise": hf.attacks.GaussianNoise(clients=[1]),
    }
    small, full, honest = (
        test_select.run(hf.algorithms.feddyn(0.3), select, attack=attack)
        for select, attack in ((True, attacks[name]), (False, attacks[name]), (False, None))
    )
    assert largest_difference(full.params, honest.params) > 1e-2
    assert largest_difference(small.params, full.params) < 1e-6
    for i in range(4):
        assert largest_difference(small.client_states[i], full.client_states[i]) < 1e-6


def test_resumed_it_is_the_same_run(tmp_path):
    clients, _ = random_quadratics(5)
    method = hf.Algorithm(hf.rules.Dynamic(1.0), aggregate=hf.aggregates.NormBounded())
    settings = dict(attack=ATTACKS["a little"], cohort=hf.cohorts.fixed(6))
    whole = hf.simulate(method, QUADRATIC, clients, LOCAL, 4, **settings)
    for rounds in (2, 4):
        resumed = hf.simulate(
            method, QUADRATIC, clients, LOCAL, rounds, checkpoint=tmp_path, **settings
        )
    assert same_bits(whole.params, resumed.params)
    assert same_bits(whole.state.server, resumed.state.server)


def test_joined_populations_are_refused():
    both = test_unlike_populations.joined()
    attack = hf.attacks.ALittleIsEnough(clients=[0])
    with pytest.raises(hf.HoldfastError, match="of their own kinds"):
        hf.simulate(hf.algorithms.fedavg(), **both, rounds=1, attack=attack)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hf.attacks.ALittleIsEnough(share=0.1, z=float("inf")),
        lambda: hf.attacks.InnerProductManipulation(share=0.1, epsilon=-1.0),
    ],
)
def test_numbers_out_of_range_are_refused(make):
    with pytest.raises(hf.HoldfastError, match="give a number"):
        make()
