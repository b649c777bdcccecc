"""What is measured of data before any race, by hand, and which methods it speaks for."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.adviser.candidates import Contestant, candidates
from holdfast.adviser.facts import facts
from holdfast.adviser.problem import problem
from holdfast.adviser.shift import feature_shift, label_skew
from tests.adviser.problems import LOCAL, MODEL, Unnamed, population, posed


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

    @pytest.mark.parametrize("skewed", [True, False])
    def test_a_reason_is_none_against_the_method(self, skewed):
        asked = posed(clients=population(skewed=skewed))
        known = facts(asked, look=False)
        reasons = [c.reason for c in candidates(asked, known)[0] if c.name == "scaffold"]
        assert known.are_alike != skewed
        assert ("labels differ" in reasons[0]) == skewed
        assert "little to correct" not in reasons[0]

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
