"""The adviser: facts by hand, the race on a small problem, ties, resume, and bad input."""

import dataclasses
import json
import math

import flax.linen as nn
import numpy as np
import pytest

import holdfast as hf
from holdfast.adviser import gaps, ranking, words
from holdfast.adviser.advise import concluded
from holdfast.adviser.candidates import Contestant, candidates
from holdfast.adviser.course import _waves
from holdfast.adviser.facts import facts
from holdfast.adviser.problem import problem
from holdfast.adviser.race import Race
from holdfast.adviser.shift import feature_shift, label_skew
from holdfast.adviser.work import Entry, Score, reached

MODEL = hf.models.softmax_regression(classes=3)
LOCAL = hf.Local(learning_rate=0.1, epochs=1, batch_size=10)


class Unnamed(nn.Module):
    """A network whose last layer has the name flax gave it."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(4)(x)))


def population(skewed=True, clients=6, moved=0.0, seed=0):
    """Three classes in the plane; each client has mostly one of them, if they are skewed."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(clients):
        mix = np.full(3, 0.05 if skewed else 1 / 3)
        mix[i % 3] += 1 - mix.sum()
        y = rng.choice(3, 40, p=mix)
        centres = 2.0 * np.eye(3)[:, :2]
        x = rng.normal(size=(40, 2)) + centres[y] + moved * rng.normal(size=2)
        parts.append(hf.Examples(x.astype(np.float32), y.astype(np.int32)))
    return hf.Clients.from_datasets(parts)


def posed(goal=None, target=None, clients=None, **more):
    settings = {
        "held_out": None,
        "cohort": None,
        "server": None,
        "rounds": 8,
        "megabytes": None,
        **more,
    }
    given = population() if clients is None else clients
    return problem(MODEL, given, LOCAL, goal=goal, target=target, **settings)


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


class TestFacts:
    def test_label_skew_equals_total_variation_beyond_chance(self):
        table = np.array([[40, 0, 0], [0, 40, 0], [0, 0, 40]])
        # Every client is 2/3 away from the mix of all.
        found = label_skew(table)
        rng = np.random.default_rng(0)
        chance = np.mean(
            [
                np.abs(rng.multinomial([40] * 3, [1 / 3] * 3) / 40 - 1 / 3).sum(1).mean() / 2
                for _ in range(20)
            ]
        )
        assert found == pytest.approx(2 / 3 - chance)

    def test_random_mixes_have_no_skew(self):
        table = np.random.default_rng(1).multinomial([500] * 20, np.ones(5) / 5)
        assert label_skew(table) < 0.01

    def test_shift_is_in_deviations_of_the_class(self):
        rng = np.random.default_rng(0)
        moves = rng.normal(size=(50, 4))
        inputs = [rng.normal(size=(200, 4)) * 3 + 3 * m for m in moves]
        shift, spread = feature_shift(inputs, [np.zeros(200, int)] * 50)
        assert shift == pytest.approx(np.sqrt(((moves - moves.mean(0)) ** 2).mean()), rel=0.05)
        assert spread < 0.05

    def test_labels_alone_shift_nothing(self):
        rng = np.random.default_rng(0)
        labels = [np.repeat(i % 2, 100) for i in range(10)]
        inputs = [rng.normal(size=(100, 3)) + 5 * y[:, None] for y in labels]
        assert feature_shift(inputs, labels)[0] < 0.1

    def test_variances_that_differ_are_seen(self):
        rng = np.random.default_rng(0)
        inputs = [rng.normal(size=(200, 3)) * (4.0 if i % 2 else 1.0) for i in range(10)]
        assert feature_shift(inputs, [np.zeros(200, int)] * 10)[1] > 0.5

    def test_facts_of_a_population(self):
        found = facts(posed(), look=False)
        assert (found.clients, found.classes, found.parameters) == (6, 3, 9)
        assert found.participation == 1.0
        assert found.visits == 8.0
        assert found.label_skew > 0.3
        assert found.shift < 0.4
        assert {name for name, _ in found.lines()} >= {
            "clients",
            "labels",
            "inputs",
            "participation",
        }

    def test_what_the_first_layer_makes_of_inputs_is_compared_too(self):
        moved = population(skewed=False, moved=2.0)
        asked = problem(
            hf.models.mlp([4], classes=3),
            moved,
            LOCAL,
            held_out=None,
            cohort=None,
            server=None,
            rounds=8,
            goal=None,
            target=None,
            megabytes=None,
        )
        found = facts(asked)
        layer, means, _ = found.representation_shift
        assert layer == "hidden_0"
        assert means > 0.5
        assert found.shift > 0.5
        assert found.drift[0] > 0
        lines = dict(found.lines())
        assert "hidden_0" in lines["first layer"]
        # Of a linear model the one layer is the last.
        assert facts(posed()).representation_shift is None

    def test_no_method_with_memory_where_clients_do_not_come_back(self):
        few = posed(clients=population(clients=12), cohort=hf.cohorts.fixed(1))
        found, left_out = candidates(few, facts(few, look=False))
        assert "feddyn" not in [c.name for c in found]
        assert any("come back" in line for line in left_out)

    @pytest.mark.parametrize(
        ("model", "mask"),
        [
            (MODEL, None),
            (hf.models.mlp([4], classes=3), "classifier"),
            (hf.models.from_linen(Unnamed(), classes=3), "auto"),
        ],
        ids=["one layer", "a classifier", "no name"],
    )
    def test_fedpvr_corrects_the_classifier_or_what_the_first_round_says(self, model, mask):
        asked = dataclasses.replace(posed(), model=model)
        found, left_out = candidates(asked, facts(asked, look=False))
        masks = [dict(c.strengths[0]).get("mask") for c in found if c.name == "fedpvr"]
        assert masks == ([] if mask is None else [mask])
        assert any("one layer" in line for line in left_out) == (mask is None)
        if mask == "auto":
            contestant = Contestant("fedpvr", (("mask", "auto"),))
            assert contestant.algorithm() == hf.algorithms.fedpvr("auto")
            assert contestant.entry() == {"name": "fedpvr", "mask": "auto"}


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
        entry = next(e for e in race.scores if e.rounds == 8 and e.contestant.name == "feddyn")
        who = dataclasses.replace(entry.contestant, adapt=False)
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

    def test_no_held_out_row_is_trained_on(self):
        clients = population()
        asked = posed(clients=clients)
        both = np.concatenate([asked.clients.order, asked.held_out.order])
        assert sorted(both) == list(range(240))

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
        own = {c: race.last(c)[1] for c in race.finalists if not c.adapt}
        (_, best), (_, other) = sorted(own.items(), key=lambda p: -len(p[1]))
        at_three = gaps.difference(problem, best[:3], other[:3])
        seeds = [len(scores) for scores in own.values()]
        assert (min(seeds) == 3) == (not at_three.is_tie)
        assert max(seeds) <= 10
        # Nobody stopped while they could not be told apart and there was room.
        last = gaps.difference(problem, best, other)
        assert not last.is_tie or min(seeds) == 10

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


def score(quality, clients=None, curve=(), sent=1000):
    values = tuple(clients) if clients is not None else (quality,) * 20
    curve = tuple(curve) or (quality,)
    return Score(
        quality, values, (10,) * len(values), curve, (sent,) * len(curve), (0.1,) * len(curve)
    )


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
        assert places[1].behind.value == pytest.approx(
            np.mean(np.log([41 / 20, 42 / 21, 43 / 22])), abs=1e-9
        )

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


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"clients": population(clients=1)}, "1 client has data"),
            ({"goal": "best"}, "goal='best'"),
            ({"goal": "rounds"}, "counts until a target"),
            ({"methods": ["adam"]}, "no method it could advise"),
            ({"budget": "soon"}, "is no time"),
            ({"held_out": 1.5}, "share=1.5"),
            ({"held_out": population(clients=2)}, "held_out has 2 clients"),
        ],
    )
    def test_one_line_says_what_to_do(self, change, said):
        given = {"clients": population(), "budget": "1 minute", **change}
        with pytest.raises(hf.HoldfastError, match=said) as caught:
            hf.advise(MODEL, given.pop("clients"), LOCAL, given.pop("budget"), race=False, **given)
        assert "\n" not in str(caught.value)

    def test_examples_without_labels_are_refused(self):
        clients = hf.Clients.from_rows({"x": np.ones((4, 2), np.float32)}, [[0, 1], [2, 3]])
        with pytest.raises(hf.HoldfastError, match="no labels `y`"):
            hf.advise(MODEL, clients, LOCAL, race=False)

    def test_joined_populations_are_refused(self):
        joined = hf.join(
            [hf.Population(population(), MODEL), hf.Population(population(seed=1), MODEL)]
        )
        with pytest.raises(hf.HoldfastError, match="several populations"):
            hf.advise(joined.model, joined.clients, LOCAL, race=False)

    @pytest.mark.parametrize(
        ("text", "seconds"), [("two minutes", 120), ("90 s", 90), ("1.5 h", 5400), ("45", None)]
    )
    def test_times_as_people_say_them(self, text, seconds):
        if seconds is None:
            with pytest.raises(hf.HoldfastError):
                hf.Budget.of(text)
        else:
            assert hf.Budget.of(text).seconds == seconds


FILE = """
rounds = 6
[data]
name = "breast_cancer"
[partition]
name = "iid"
clients = 4
[model]
name = "logistic_regression"
[local]
learning_rate = 0.1
steps = 2
"""


class TestCommand:
    def test_a_file_without_a_method_comes_back_with_one(self, tmp_path, monkeypatch):
        from typer.testing import CliRunner

        from holdfast.cli import app
        from holdfast.config import build
        from holdfast.config.file import read

        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.toml").write_text(FILE)
        done = CliRunner().invoke(app, ["advise", "mine.toml", "--methods", "fedavg", "-j", "1"])
        assert done.exit_code == 0, done.output
        ready = tmp_path / "advice/mine/experiment.toml"
        study = build.study(read(ready), pretrained=False)
        assert [m.label for m in study.methods][-2:] == ["local_only", "centralised"]
        assert (tmp_path / "advice/mine/advice.html").exists()
        assert json.loads((tmp_path / "advice/mine/race/race.json").read_text())["over"]

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ("[evaluate]\npatience = 3\nvalidation = 0.2", "leave out `patience`"),
            ("[evaluate]\nadapt = true", "leave out `adapt`"),
            ("[server]\nexamples = 20\ndata_sharing = true", "leave out `data_sharing`"),
        ],
    )
    def test_what_a_race_would_judge_otherwise_is_refused(self, tmp_path, more, said):
        from holdfast.adviser.from_file import advise_file
        from holdfast.config.file import read

        (tmp_path / "mine.toml").write_text(f"{FILE}{more}\n")
        with pytest.raises(hf.HoldfastError, match=said):
            advise_file(read(tmp_path / "mine.toml"), hf.Budget(), race=False)

    def test_a_loader_that_can_sets_examples_apart_itself(self, tmp_path):
        from holdfast.adviser.from_file import _with_validation
        from holdfast.config.file import read

        own = FILE.replace('name = "breast_cancer"', 'name = "hospitals"')
        own = own.replace('name = "iid"\nclients = 4', 'name = "natural"')
        for text, section in ((own, "data"), (FILE, "evaluate")):
            (tmp_path / "mine.toml").write_text(text)
            found = _with_validation(read(tmp_path / "mine.toml")).values
            key = "validation_share" if section == "data" else "validation"
            assert found[section][key] == 0.2
            assert "validation_share" in found["data"] or "validation" in found["evaluate"]

    def test_training_at_the_server_before_is_where_all_begin(self, tmp_path):
        from holdfast.adviser.from_file import asked
        from holdfast.config.file import read

        server = (
            "[server]\nexamples = 40\npretrain = 3\nlocal = { learning_rate = 0.1, steps = 5 }\n"
        )
        (tmp_path / "mine.toml").write_text(FILE + server)
        found = asked(read(tmp_path / "mine.toml"))
        expected = hf.pretrain(found.trained.model, found.server, 3, 0)
        np.testing.assert_array_equal(found.params["weights"], expected["weights"])
        assert float(np.abs(expected["weights"]).max()) > 0

    def test_facts_alone_are_labelled(self, tmp_path):
        from typer.testing import CliRunner

        from holdfast.cli import app

        (tmp_path / "mine.toml").write_text(FILE)
        out = str(tmp_path / "out")
        done = CliRunner().invoke(
            app, ["advise", str(tmp_path / "mine.toml"), "--no-race", "--out", out]
        )
        assert done.exit_code == 0, done.output
        assert "By facts alone" in done.output

    def test_sets_are_calibrated_where_the_ends_have_a_model(self, tmp_path):
        from typer.testing import CliRunner

        from holdfast.cli import app
        from holdfast.config import build
        from holdfast.config.file import read

        (tmp_path / "mine.toml").write_text(FILE + "[conformal]\nshare = 0.3\n")
        words = ["advise", tmp_path / "mine.toml", "--no-race", "--out", tmp_path / "out"]
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        study = build.study(read(tmp_path / "out/experiment.toml"), pretrained=False)
        assert [getattr(e, "by", None) for e in study.evaluators][-1] == "each client"
