"""Who takes part."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.core.keys import Purpose, host_generator
from tests.problems import tiny_clients

ABLE = np.array([0, 2, 3, 5, 6, 8, 9])


def drawn(cohort, rounds=200, able=ABLE):
    return [cohort.draw(t, able, host_generator(Purpose.COHORT, 0, t)) for t in range(rounds)]


def test_everyone_is_everyone_with_data():
    assert all(np.array_equal(ids, ABLE) for ids in drawn(hf.cohorts.everyone()))


def test_fixed_is_without_replacement_and_reaches_all():
    cohorts = drawn(hf.cohorts.fixed(3))
    assert all(len(set(ids)) == 3 and set(ids) <= set(ABLE) for ids in cohorts)
    counts = np.bincount(np.concatenate(cohorts), minlength=10)[ABLE]
    assert counts.min() > 50  # 200 x 3/7 = 86 expected


def test_bernoulli_redraws_only_an_empty_cohort():
    sizes = np.array([len(ids) for ids in drawn(hf.cohorts.bernoulli(0.1), 3000)])
    assert sizes.min() == 1
    share_of_one = 7 * 0.1 * 0.9**6 / (1 - 0.9**7)  # binomial, given that it is not 0
    assert (sizes == 1).mean() == pytest.approx(share_of_one, abs=0.03)


def test_a_schedule_is_followed_repeated_and_freed_of_empty_clients():
    cohorts = drawn(hf.cohorts.schedule([[0, 1], [9, 8]]), rounds=3)
    assert [ids.tolist() for ids in cohorts] == [[0], [8, 9], [0]]


def test_weighted_prefers_the_heavy():
    cohorts = drawn(hf.cohorts.weighted(2, np.arange(10.0)), 500)
    counts = np.bincount(np.concatenate(cohorts), minlength=10)
    assert counts[0] == 0
    assert counts[9] > counts[2] * 2
    assert all(len(set(ids)) == 2 for ids in cohorts)


def test_the_draw_does_not_depend_on_what_was_drawn_before():
    model, clients, local = hf.models.mlp([], 3), tiny_clients(), hf.Local(0.1)
    settings = {"cohort": hf.cohorts.fixed(2), "seed": 4}
    whole = hf.simulate(hf.algorithms.fedavg(), model, clients, local, 5, **settings)
    half = hf.simulate(hf.algorithms.fedavg(), model, clients, local, 3, **settings)
    rest = hf.simulate(
        hf.algorithms.fedavg(), model, clients, local, 5, start=half.state, **settings
    )
    assert whole.ledger == rest.ledger


def test_empty_clients_never_break_a_round():
    old = tiny_clients()
    offsets = np.concatenate([[0, 0], old.offsets[1:], old.offsets[-1:]])
    clients = hf.Clients(old.examples, old.order, offsets)
    assert clients.sizes.tolist() == [0, 7, 12, 5, 9, 0]
    model, local = hf.models.mlp([], 3), hf.Local(0.1, batch_size=4)
    for cohort in (hf.cohorts.everyone(), hf.cohorts.fixed(4), hf.cohorts.bernoulli(0.3)):
        run = hf.simulate(hf.algorithms.scaffold(), model, clients, local, 3, cohort=cohort)
        taking_part = {i for e in run.ledger.entries for i in e.clients}
        assert taking_part <= {1, 2, 3, 4}
        assert all(np.isfinite(p).all() for p in run.params["classifier"].values())
    nobody = hf.cohorts.schedule([[0, 5], [1]])
    run = hf.simulate(hf.algorithms.scaffold(), model, clients, local, 2, cohort=nobody)
    assert run.history["clients"].tolist() == [0, 1]
    assert run.history["bytes_up"][0] == 0


@pytest.mark.parametrize(
    ("cohort", "message"),
    [
        (lambda: hf.cohorts.fixed(5), "5 clients are asked for but 4 of 4 have data"),
        (lambda: hf.cohorts.fixed(0), "size=0; give a whole number of at least 1"),
        (lambda: hf.cohorts.bernoulli(0.0), r"probability=0.0; give a number in \(0, 1\]"),
        (lambda: hf.cohorts.schedule([]), "the schedule is empty"),
        (lambda: hf.cohorts.schedule([[0], [7]]), r"round 1 of the schedule lists \[7\]"),
        (lambda: hf.cohorts.weighted(2, [1.0, 2.0]), "2 weights for 4 clients"),
        (lambda: hf.cohorts.weighted(3, [1.0, 2.0, 0.0, 0.0]), "only 2 have data and a weight"),
        (lambda: hf.cohorts.fixed(sise=3), "unknown argument `sise`; did you mean `size`"),
    ],
)
def test_impossible_cohorts_are_refused(cohort, message):
    with pytest.raises(hf.HoldfastError, match=message):
        hf.simulate(
            hf.algorithms.fedavg(),
            hf.models.mlp([], 3),
            tiny_clients(),
            hf.Local(0.1),
            rounds=1,
            cohort=cohort(),
        )
