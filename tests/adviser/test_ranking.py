"""Who is ahead by how much: goals, ties, and what is said of them."""

import dataclasses
import math

import numpy as np
import pytest

from holdfast.adviser import gaps, order, ranking, words
from holdfast.adviser.advise import concluded
from holdfast.adviser.candidates import Contestant
from holdfast.adviser.facts import facts
from holdfast.adviser.race import Race
from holdfast.adviser.work import Entry, reached
from tests.adviser.problems import posed, score


class TestRanking:
    def test_reached_counts_what_the_goal_asks_for(self):
        run = score(0.9, curve=(0.2, 0.6, 0.8, 0.9), sent=2_000_000)
        assert reached(posed("rounds", 0.7), run) == 3
        assert reached(posed("megabytes", 0.7), run) == 6.0
        assert reached(posed("seconds", 0.7), run) == pytest.approx(0.3)
        assert reached(posed("quality"), run) == -0.9
        assert reached(posed("rounds", 0.95), run) > 1e8

    def test_worst_tenth_is_the_mean_of_the_worst_clients(self):
        run = score(0.5, clients=np.arange(20) / 20)
        assert run.worst_tenth(True) == pytest.approx(0.025)
        assert run.worst_tenth(False) == pytest.approx(0.925)

    def test_equal_methods_tie_and_the_plainer_is_advised(self):
        asked = posed("quality")
        fedavg, feddyn = Contestant("fedavg"), Contestant("feddyn", (("alpha", 0.1),))
        rng = np.random.default_rng(0)
        scores = {}
        for seed in range(3):
            each = 0.9 + 0.05 * rng.normal(size=20)
            scores[Entry(feddyn, seed, 8)] = score(float(each.mean() + 0.001), each + 0.001)
            other = each + 0.05 * rng.normal(size=20)
            scores[Entry(fedavg, seed, 8)] = score(
                float(each.mean()), other - (other - each).mean()
            )
        places = ranking.ranking(asked, Race(scores, (), (feddyn, fedavg), (0, 1, 2), None, 1.0))
        assert places[0].contestant == feddyn
        assert places[1].is_tied
        assert ranking.recommended(asked, places).contestant == fedavg
        assert words.about_ties(places, places[1]).startswith("A tie")

    @pytest.mark.parametrize(("goal", "target"), [("quality", None), ("rounds", 0.7)])
    def test_who_is_better_alone_is_told_so_and_a_target_is_still_of_one_model(self, goal, target):
        asked = posed(goal, target)
        fedavg, alone = Contestant("fedavg"), Contestant("local_only")
        scores = {}
        for seed in range(3):
            scores[Entry(fedavg, seed, 8)] = score(0.8, np.full(20, 0.8), curve=(0.5, 0.8))
            scores[Entry(alone, seed, 8)] = score(0.95, np.full(20, 0.95), curve=(0.1, 0.1))
        race = Race(scores, (("final", 8, (fedavg,)),), (fedavg,), (0, 1, 2), 0.1, 1.0)
        advice = concluded(asked, facts(asked, look=False), [], [], race)
        assert advice.recommended.name == ("local_only" if goal == "quality" else "fedavg")
        said = "Do not federate" if goal == "quality" else "clients are better alone"
        assert said in advice.verdict

    def test_clear_differences_are_no_tie(self):
        asked = posed("rounds", 0.7)
        slow, fast = Contestant("fedavg"), Contestant("feddyn", (("alpha", 0.1),))
        scores = {}
        for seed in range(3):
            scores[Entry(slow, seed, 60)] = score(0.8, curve=[0.5] * (40 + seed) + [0.8])
            scores[Entry(fast, seed, 60)] = score(0.8, curve=[0.5] * (19 + seed) + [0.8])
        places = ranking.ranking(asked, Race(scores, (), (slow, fast), (0, 1, 2), None, 1.0))
        assert [p.contestant.name for p in places] == ["feddyn", "fedavg"]
        assert not places[1].is_tied
        # Between rounds: two thirds of the way from 0.5 to 0.8.
        arrivals = [(40 + s + 2 / 3, 19 + s + 2 / 3) for s in range(3)]
        expected = np.mean([np.log(late / early) for late, early in arrivals])
        assert places[1].behind.value == pytest.approx(expected, abs=1e-9)

    def test_who_never_gets_there_is_behind(self):
        asked = posed("rounds", 0.7)
        ours, theirs = [score(0.8, curve=(0.5, 0.8))] * 3, [score(0.6, curve=(0.5, 0.6))] * 3
        gap = gaps.difference(asked, ours, theirs)
        assert math.isinf(gap.value)
        assert not gap.is_tie

    def test_quality_gap_by_hand(self):
        asked = posed("quality")
        rng = np.random.default_rng(0)
        a, b = rng.random((3, 20)), rng.random((3, 20))
        ours = [score(float(v.mean()), v) for v in a]
        theirs = [score(float(v.mean()), v) for v in b]
        gap = gaps.quality_gap(asked, ours, theirs)
        each = (a - b).mean(0)
        over_clients = each.var(ddof=1) / 20
        over_seeds = (a - b).mean(1).var(ddof=1) / 3
        assert gap.value == pytest.approx(each.mean())
        from scipy import stats

        expected = stats.t.ppf(0.975, 19) * np.sqrt(over_clients + over_seeds)
        assert gap.margin == pytest.approx(expected)


class TestOrder:
    def test_a_run_that_arrives_in_the_same_round_further_on_is_ahead(self):
        asked = posed("rounds", 0.7)
        first, second = score(0.9, curve=(0.2, 0.6, 0.9)), score(0.9, curve=(0.2, 0.6, 0.7))
        assert first.rounds_to(0.7, True) == second.rounds_to(0.7, True) == 3
        assert first.crossed(0.7, True) == pytest.approx(2 + 1 / 3)
        assert order.standing(asked, [first]) < order.standing(asked, [second])

    def test_one_run_that_did_not_arrive_does_not_decide(self):
        asked = posed("rounds", 0.7)
        there, not_there = [0.5] * 9 + [0.7] + [0.7] * 30, [0.5] * 39 + [0.69]
        slow = [score(0.7, curve=[0.5] * 29 + [0.7] + [0.7] * 10)] * 5
        fast = [score(0.7, curve=c) for c in (there, there, there, there, not_there)]
        assert order.standing(asked, fast) < order.standing(asked, slow)
        by_hand = (4 * np.log(10) + np.log(40 * 1.5) + 0.01 / 0.7) / 5
        assert order.standing(asked, fast) == pytest.approx(by_hand)
        # Who came nearer is ahead among those who did not arrive, and behind all who did.
        nearer, further = score(0.6, curve=(0.6,) * 40), score(0.5, curve=(0.5,) * 40)
        late = score(0.7, curve=[0.0] * 39 + [0.7])
        at = [order.standing(asked, [s]) for s in (late, nearer, further)]
        assert at == sorted(at)

    def test_the_worst_tenth_is_that_of_clients_means(self):
        asked = posed("worst_tenth")
        # In each draw another client is unlucky; on average all are alike.
        unlucky = [score(0.9, [0.5 if i == k else 1.0 for i in range(10)]) for k in range(10)]
        assert order.standing(asked, unlucky) == pytest.approx(-0.95)
        assert np.mean([s.worst_tenth(True) for s in unlucky]) == pytest.approx(0.5)

    @pytest.mark.parametrize(("ahead", "chosen"), [(0.0, "sure"), (0.5, "sure"), (3.0, "unsure")])
    def test_values_an_example_apart_are_told_by_their_loss(self, ahead, chosen):
        asked = posed("quality")
        examples = 10 * 20 * asked.draws  # of `score`, three draws of which are looked at
        unsure, sure = Contestant("fedavg", (), 1.0), Contestant("fedavg", (), 0.1)
        other = Contestant("feddyn", (("alpha", 0.1),), 0.1)
        step = ahead / (examples * 3 / asked.draws)
        found = {
            unsure: [losing(score(0.9 + step), 0.9)] * 3,
            sure: [losing(score(0.9), 0.3)] * 3,
            other: [losing(score(0.9 - step - 1e-6), 0.1)] * 3,
        }
        best, *rest = order.ordered(asked, found)
        assert best == (sure if chosen == "sure" else unsure)
        # A loss is compared within a method alone.
        assert rest[-1] == other or ahead == 0.0

    def test_a_loss_is_no_tie_break_where_methods_are_counted_to_a_target(self):
        asked = posed("rounds", 0.7)
        fast, slow = Contestant("fedavg", (), 1.0), Contestant("fedavg", (), 0.1)
        found = {
            slow: [losing(score(0.8, curve=(0.5, 0.6, 0.8)), 0.1)],
            fast: [losing(score(0.8, curve=(0.5, 0.8, 0.8)), 0.9)],
        }
        assert order.ordered(asked, found) == [fast, slow]


def losing(found, loss):
    return dataclasses.replace(found, losses=(loss,) * len(found.clients))
