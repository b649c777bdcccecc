"""A race on a small problem: plain runs, more seeds for ties, resume, bounds."""

import dataclasses
import time

import numpy as np
import pytest

import holdfast as hf
from holdfast.adviser import gaps, order, work
from holdfast.adviser import race as stages_of_race
from holdfast.adviser.candidates import Contestant
from holdfast.adviser.course import _waves
from holdfast.adviser.plan import Plan
from holdfast.adviser.work import Entry
from tests.adviser.problems import LOCAL, MODEL, SHARED, population, posed


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Races of fewer values and seeds than a user's: what is tested is not how sure they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages_of_race, "_DRAWS", {"scout": 1, "first": 1, "second": 2})
        patch.setattr(stages_of_race, "_SEMIFINAL", ((2, 1), (1, 2)))
        patch.setattr(stages_of_race, "_PASSES", 1)
        patch.setattr(stages_of_race, "_JUDGES", 3)
        patch.setattr(stages_of_race, "_MOST_SEEDS", 6)
        yield


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("race")
    advice = hf.advise(
        MODEL,
        population(),
        LOCAL,
        hf.Budget(rounds=8),
        methods=["feddyn"],
        folder=folder,
        jobs=1,
        progress=False,
    )
    return folder, advice


class TestRace:
    def test_it_ends_with_a_method_and_an_experiment_that_runs(self, raced):
        _, advice = raced
        assert advice.raced
        assert {p.contestant.name for p in advice.places} == {"fedavg", "feddyn"}
        run = hf.simulate(advice.experiment, rounds=2)
        assert run.state.round == 2

    def test_scores_are_those_of_plain_runs_judged_by_hand(self, raced):
        _, advice = raced
        asked, race = advice.problem, advice.race
        ran = [e for e in race.scores if e.rounds == 8 and e.contestant.name == "feddyn"]
        entry = next(e for e in ran if e.seed == 1)
        who = dataclasses.replace(entry.contestant, adapt=False)
        asked = asked.drawn(entry.seed)
        run = hf.simulate(
            who.algorithm(),
            MODEL,
            asked.clients,
            who.local(LOCAL),
            rounds=8,
            seed=entry.seed,
        )
        w, b = (
            (np.asarray(run.params[name]) for name in ("weights", "bias"))
            if isinstance(run.params, dict) and "weights" in run.params
            else _layer(run.params)
        )
        rows = asked.held_out.order
        x, y = (np.asarray(a)[rows] for a in asked.held_out.examples)
        right = np.mean((x @ w + b).argmax(1) == y)
        score = race.scores[Entry(who, entry.seed, 8)]
        assert score.quality == pytest.approx(right, abs=1e-6)
        assert score.curve[-1] == pytest.approx(right, abs=1e-6)

    def test_every_row_judges_once_and_is_not_trained_on_then(self):
        asked = posed(clients=population())
        judged = []
        for seed in range(asked.draws):
            drawn = asked.drawn(seed)
            both = np.concatenate([drawn.clients.order, drawn.held_out.order])
            assert sorted(both) == list(range(240))
            # As many of every client, so that scores of clients can be compared between draws.
            np.testing.assert_array_equal(drawn.held_out.sizes, asked.held_out.sizes)
            judged += drawn.held_out.order.tolist()
        assert asked.draws == 5
        assert sorted(judged) == list(range(240))
        # The seed after the last draw has the first again.
        assert asked.drawn(asked.draws) is asked

    def test_examples_that_are_given_to_judge_by_judge_in_all_runs(self):
        clients, own = hf.data.set_apart(population(), 0.3)
        asked = posed(clients=clients, held_out=own)
        assert asked.draws == 1
        assert asked.drawn(3) is asked

    def test_a_first_draw_is_what_set_apart_gives(self):
        asked = posed(clients=SHARED, held_out=0.3)
        train, own = hf.data.set_apart(SHARED, 0.3)
        np.testing.assert_array_equal(asked.held_out.order, own.order)
        np.testing.assert_array_equal(asked.clients.order, train.order)

    def test_going_on_runs_nothing_again(self, raced, monkeypatch):
        folder, advice = raced
        monkeypatch.setattr("holdfast.adviser.work.simulate", None)
        again = hf.advise(
            MODEL,
            population(),
            LOCAL,
            hf.Budget(rounds=8),
            methods=["feddyn"],
            folder=folder,
            jobs=1,
            progress=False,
        )
        assert again.recommended == advice.recommended
        assert again.race.scores == advice.race.scores
        assert again.summary() == advice.summary()

    def test_a_stopped_race_comes_to_the_same(self, raced, tmp_path, monkeypatch):
        _, advice = raced
        from holdfast.adviser import course as stages

        plain, left = stages.do, iter(range(7))

        def stops(*args):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return plain(*args)

        def ask():
            return hf.advise(
                MODEL,
                population(),
                LOCAL,
                hf.Budget(rounds=8),
                methods=["feddyn"],
                folder=tmp_path,
                jobs=1,
                progress=False,
            )

        monkeypatch.setattr(stages, "do", stops)
        with pytest.raises(KeyboardInterrupt):
            ask()
        monkeypatch.setattr(stages, "do", plain)
        found = ask().race.scores

        def values(scores):
            return {e: dataclasses.replace(s, seconds=()) for e, s in scores.items()}

        assert values(found) == values(advice.race.scores)

    def test_neighbours_change_one_value_a_little(self):
        found = Contestant("feddyn", (("alpha", 0.1), ("weighting", "examples")), 0.5).neighbours()
        changed = {(dict(c.arguments)["alpha"], c.learning_rate) for c in found}
        assert changed == {(0.1, 0.9), (0.1, 0.2778), (0.03, 0.5), (0.3, 0.5)}
        mixed = Contestant("flix", (("alpha", 0.5),)).neighbours()
        assert [dict(c.arguments)["alpha"] for c in mixed] == [0.35, 0.65]

    def test_runs_that_share_a_save_do_not_go_side_by_side(self):
        alone, tuned = Contestant("local_only"), Contestant("fedavg", (), 0.1)
        entries = [
            Entry(alone, 0, 10),
            Entry(alone, 0, 4),
            Entry(alone, 1, 4),
            Entry(dataclasses.replace(tuned, adapt=True), 0, 8),
            Entry(tuned, 0, 8),
        ]
        waves = _waves(entries)
        assert sorted(map(len, waves)) == [2, 3]
        assert Entry(alone, 0, 4) in waves[0]
        assert Entry(alone, 0, 10) in waves[1]
        assert {e for wave in waves for e in wave} == set(entries)

    def test_ties_have_more_seeds_and_clear_differences_none(self, raced):
        _, advice = raced
        race, problem = advice.race, advice.problem
        own = {c: race.last(c)[1] for c in race.finalists}
        at_three = {c: scores[:3] for c, scores in own.items()}
        first = min(own, key=lambda c: order.standing(problem, at_three[c]))
        others = [c for c in own if c != first]
        tied = [c for c in others if gaps.difference(problem, at_three[first], at_three[c]).is_tie]
        # Who adapts after training has more like anybody else, or it is compared by a few of the others'.
        assert any(c.adapt for c in own)
        assert {c for c in others if len(own[c]) > 3} == set(tied)
        assert (len(own[first]) > 3) == bool(tied)
        assert max(map(len, own.values())) <= 6
        # Nobody stopped while they could not be told apart and there was room.
        for c in tied:
            best = min(own, key=lambda k: order.standing(problem, own[k]))
            gap = gaps.difference(problem, own[best], own[c])
            assert c == best or not gap.is_tie or len(own[c]) == 6

    def test_a_save_of_a_longer_run_is_no_score_of_a_shorter_one(self, raced):
        folder, advice = raced
        who = next(c for c in advice.race.finalists if not c.adapt)
        found = work.score(work.Work(advice.problem, folder / "runs", {}), Entry(who, 0, 3))
        assert len(found.curve) == 3
        whole = advice.race.scores[Entry(who, 0, 8)]
        np.testing.assert_array_equal(found.curve, whole.curve[:3])

    def test_megabytes_bound_what_methods_are_judged_by(self, tmp_path):
        advice = hf.advise(
            MODEL,
            population(),
            LOCAL,
            hf.Budget(rounds=8, megabytes=0.002),
            methods=["fedavg"],
            folder=tmp_path,
            jobs=1,
            progress=False,
        )
        (place,) = [p for p in advice.places if not p.contestant.adapt]
        # 6 clients, 9 parameters of 4 bytes, down and up.
        assert place.rounds == advice.rounds == int(0.002e6 / (6 * 9 * 4 * 2))
        assert place.seeds >= 3
        sent = advice.race.last(place.contestant)[1]
        assert all(sum(s.bytes) <= 2000 for s in sent)

    def test_one_round_is_one_round(self, tmp_path):
        advice = hf.advise(
            MODEL,
            population(),
            LOCAL,
            hf.Budget(rounds=1),
            methods=["fedavg"],
            jobs=1,
            progress=False,
        )
        assert {e.rounds for e in advice.race.scores} == {1}

    def test_another_budget_decides_anew_with_the_runs_that_are_there(self, tmp_path):
        file = tmp_path / "race.json"
        short = Plan(file, 1.0, time.perf_counter() - 2.0)
        assert short.decided("first", lambda: short.room(1.0, 0.1, 1)) == 0
        again = Plan(file, 1.0, time.perf_counter())
        assert again.decided("first", lambda: 7) == 0
        longer = Plan(file, 60.0, time.perf_counter())
        assert longer.decided("first", lambda: longer.room(1.0, 0.1, 1)) > 500

    def test_a_folder_of_another_problem_is_refused(self, raced):
        folder, _ = raced
        with pytest.raises(hf.HoldfastError, match="other data, model, local steps or goal"):
            hf.advise(MODEL, population(seed=3), LOCAL, hf.Budget(rounds=8), folder=folder)

    def test_the_page_has_the_answer(self, raced, tmp_path):
        _, advice = raced
        text = advice.save(tmp_path / "page.html").read_text()
        assert advice.recommended.label in text
        assert "<svg" in text
        assert "<script" not in text


def _layer(params):
    leaves = {name: np.asarray(a) for name, a in _flat(params)}
    kernel = next(a for a in leaves.values() if a.ndim == 2)
    bias = next(a for a in leaves.values() if a.ndim == 1)
    return kernel, bias


def _flat(tree, at=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{at}{name}/")
        else:
            yield f"{at}{name}", value
