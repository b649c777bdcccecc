"""Every first layer of a mask tried, and what drift alone suggests beside it."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.diagnose.where import FirstLayer, Row
from holdfast.metrics import Spread
from holdfast.record.chosen_mask import ChosenMask
from tests.problems import same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
CLIENTS = tiny_clients()
LOCAL = hf.Local(0.1, steps=2, batch_size=3)


@pytest.fixture(scope="module")
def found():
    return hf.diagnose.first_layer(
        MODEL, CLIENTS, LOCAL, rounds=3, seeds=[4, 2], target=0.01, jobs=1
    )


def test_rows_are_fedpvr_from_every_layer_on(found):
    assert [row.layer for row in found.rows] == ["hidden_0", "classifier", None]
    assert [row.share for row in found.rows] == [1.0, 15 / 39, 0.0]
    # Four clients: the model up and down, and down what is masked of c.
    assert [row.bytes_per_round for row in found.rows] == [
        4 * 4 * (2 * 39 + masked) for masked in (39, 15, 0)
    ]
    assert (found.metric, found.greater_is_better) == ("validation_accuracy", True)
    train, apart = hf.data.set_apart(CLIENTS, 0.2)
    measured = hf.evaluate.on(
        hf.Examples(apart.examples.x[apart.order], apart.examples.y[apart.order]), name="validation"
    )
    methods = (
        hf.algorithms.scaffold(),
        hf.algorithms.fedpvr(lambda path: path.startswith("classifier")),
        hf.algorithms.fedavg(weighting="uniform"),
    )
    for row, method in zip(found.rows, methods, strict=True):
        for seed, value in zip(found.seeds, row.final.values, strict=True):
            run = hf.simulate(method, MODEL, train, LOCAL, 3, seed=seed, evaluate=measured)
            assert run.history["validation_accuracy"][-1] == value


def test_what_is_suggested_is_what_auto_chooses(found):
    train, _ = hf.data.set_apart(CLIENTS, 0.2)
    for seed, chosen in zip(found.seeds, found.suggested, strict=True):
        run = hf.simulate(hf.algorithms.fedpvr("auto"), MODEL, train, LOCAL, 1, seed=seed)
        assert run.chosen_mask == chosen
    each = [chosen.diversity for chosen in found.suggested]
    assert list(found.diversity.values()) == pytest.approx(np.mean(each, axis=0))


def test_it_is_shown(found):
    assert repr(found).startswith(found.verdict)
    assert "hidden_0 (SCAFFOLD)" in repr(found)
    assert "none (FedAvg)" in found._repr_html_()
    assert found.verdict in found._repr_html_()
    records = found.records()
    assert [r["layer"] for r in records] == ["hidden_0", "classifier", None]
    assert sum(r["suggested"] for r in records) == 2
    assert list(found.to_frame()["share"]) == [row.share for row in found.rows]
    line, marks, bars = found.plot().data
    assert list(line.x) == ["hidden_0", "classifier", "none (FedAvg)"]
    assert list(line.y) == [row.final.mean for row in found.rows]
    assert list(bars.y) == list(found.diversity.values())
    assert set(marks.x) <= set(line.x)


def test_it_goes_on_from_saves_and_takes_an_order(tmp_path):
    options = {"rounds": 1, "seeds": 1, "checkpoint": tmp_path, "jobs": 1}
    options |= {"algorithm": hf.algorithms.fedpvr("auto", server_learning_rate=0.5)}
    order = ["classifier", "hidden_0"]
    first = hf.diagnose.first_layer(MODEL, CLIENTS, LOCAL, layers_in_order=order, **options)
    assert [row.layer for row in first.rows] == [*order, None]
    assert first.suggested[0].layers == tuple(order)
    again = hf.diagnose.first_layer(MODEL, CLIENTS, LOCAL, layers_in_order=order, **options)
    assert repr(again) == repr(first)
    # Masks that are called the same and are others.
    with pytest.raises(hf.HoldfastError, match="another algorithm"):
        hf.diagnose.first_layer(MODEL, CLIENTS, LOCAL, **options)


class TestRefusals:
    def refused(self, match, **settings):
        with pytest.raises(hf.HoldfastError, match=match):
            hf.diagnose.first_layer(MODEL, CLIENTS, LOCAL, rounds=1, **settings)

    def test_a_method_without_a_mask_to_choose(self):
        self.refused("fedavg has no mask to choose", algorithm=hf.algorithms.fedavg())

    @pytest.mark.parametrize("name", ["evaluate", "seed", "first_round", "stop"])
    def test_what_the_question_settles(self, name):
        self.refused(f"`{name}` is given, but", **{name: 1})

    def test_unknown_layers(self):
        self.refused("none called 'dense'", layers_in_order=["dense"])


def made(values, chosen, up=True):
    """Results by row and seed; what is chosen by seed."""
    names = tuple(f"layer_{i}" for i in range(len(values) - 1))
    rows = [
        Row((*names, None)[i], 1 - i / 3, 100.0, Spread(tuple(each)), None)
        for i, each in enumerate(values)
    ]
    masks = [
        ChosenMask(names, (0.5,) * len(names), first, (True,) * len(names), 1.0) for first in chosen
    ]
    return FirstLayer(tuple(rows), tuple(range(len(chosen))), tuple(masks), "accuracy", up)


class TestVerdict:
    def test_the_best(self):
        found = made([(0.5, 0.5), (0.9, 0.8), (0.1, 0.2)], (1, 1))
        assert found.best == 1
        assert found.tied is True
        assert found.verdict == "Drift suggests layer_1, which is the best of the sweep."

    def test_a_tie_is_called_a_tie(self):
        found = made([(0.9, 0.8, 0.9), (0.7, 0.9, 0.8), (0.1, 0.2, 0.1)], (1, 1, 1))
        assert found.behind.estimate == pytest.approx(0.2 / 3)
        assert found.tied
        expected = "Drift suggests layer_1, 0.0667 behind layer_0 (SCAFFOLD) in accuracy, a tie."
        assert found.verdict == expected

    def test_behind(self):
        found = made([(0.9, 0.8, 0.9), (0.1, 0.2, 0.1), (0.6, 0.5, 0.61)], (2, 2, 2))
        # Differences 0.3, 0.3, 0.29; Student's quantile with two degrees of freedom is 4.303.
        deviation = np.std([0.3, 0.3, 0.29], ddof=1) / np.sqrt(3)
        assert found.behind.low == pytest.approx(0.89 / 3 - 4.3027 * deviation, rel=1e-4)
        assert found.tied is False
        assert found.verdict.endswith("0.2967 behind layer_0 (SCAFFOLD) in accuracy.")
        assert "Drift suggests none (FedAvg)" in found.verdict

    def test_smaller_is_better(self):
        found = made([(0.9, 0.8), (0.1, 0.2), (0.4, 0.5)], (0, 2), up=False)
        assert found.best == 1
        assert found.behind.estimate == pytest.approx((0.8 + 0.3) / 2)
        assert "layer_0 (SCAFFOLD) (1 of 2 seeds), none (FedAvg) (1 of 2 seeds)" in found.verdict

    def test_one_seed(self):
        found = made([(0.9,), (0.1,), (0.4,)], (1,))
        assert found.tied
        assert "of one seed, which says nothing of chance" in found.verdict

    def test_failed_runs(self):
        found = made([(0.9, 0.9), (0.1, None), (0.4, 0.4)], (1, 1))
        assert found.behind is None
        assert found.tied is None
        assert "with which not every seed came to an end; best is layer_0" in found.verdict
        none = made([(None,), (None,), (None,)], (1,))
        assert (none.best, none.behind, none.tied) == (None, None, None)
        assert none.verdict == "Drift suggests layer_1; not one run came to an end."


def test_a_mask_by_a_layer_is_the_mask_by_leaves():
    mask = hf.diagnose.first_layer.__globals__["FromLayer"]("classifier", ("classifier/bias",))
    runs = [
        hf.simulate(hf.algorithms.fedpvr(m), MODEL, CLIENTS, LOCAL, 2)
        for m in (mask, (True, False, False, False))
    ]
    assert same_bits(*(run.params for run in runs))
    assert dataclasses.replace(mask).in_short == "classifier"
