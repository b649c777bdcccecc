"""Runs in Python: `hf.compare`, `hf.report`, `hf.figures` and `run.plot` come to what the command does."""

import dataclasses
import gc

import numpy as np
import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.record.progress import Progress
from holdfast.runs.compare import records
from holdfast.runs.execute import create, execute
from holdfast.runs.export import to_latex
from holdfast.runs.results import load
from tests.test_markup import EVIL, shown

FILE = """
rounds = 3
seeds = [0, 1]
target = 0.5
data = "breast_cancer"
model = "logistic_regression"
partition = { name = "iid", clients = 4 }
local = { learning_rate = 0.1, steps = 1, batch_size = 8 }
algorithm = [{ name = "fedavg" }, { name = "scaffold" }]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    (place / "study.toml").write_text(FILE)
    made = study(read(place / "study.toml"))
    folder = create(made, place / "run")
    assert execute(made, folder, Progress(made.rounds)) == 0
    return folder.path


@pytest.fixture(scope="module")
def runs():
    train, test = hf.data.breast_cancer()
    clients = hf.data.partition.iid(train, clients=4)
    model = hf.models.logistic_regression()
    local = hf.Local(0.1, steps=1, batch_size=8)
    return [
        hf.simulate(a, model, clients, local, 3, seed=seed, evaluate=hf.evaluate.on(test))
        for a in (hf.algorithms.fedavg(), hf.algorithms.scaffold())
        for seed in (0, 1)
    ]


def without_seconds(found):
    return [{k: v for k, v in record.items() if not k.startswith("seconds")} for record in found]


def test_the_numbers_are_those_of_the_command(folder, runs):
    theirs = load([folder])
    mine = hf.compare(runs, target=0.5)
    assert without_seconds(records(mine.results)) == without_seconds(records(theirs))
    for one, other in zip(mine.results.methods, theirs.methods, strict=True):
        assert one.clients == other.clients
        assert one.averages_over == other.averages_over
    assert without_seconds(records(hf.compare(folder).results)) == without_seconds(records(theirs))


def test_frames_have_a_row_for_each_method_or_each_round(runs):
    found = hf.compare(runs, target=0.5)
    frame = found.to_frame()
    assert frame["method"].tolist() == ["fedavg", "scaffold"]
    ended = np.mean([runs[0].history.final("accuracy"), runs[1].history.final("accuracy")])
    assert frame["final"][0] == pytest.approx(ended, abs=0)
    each = found.to_frame(each_round=True)
    assert len(each) == 2 * 2 * 3
    assert each.query("method == 'scaffold' and run == 1")["loss"].tolist() == (
        runs[3].history["loss"].tolist()
    )


def test_the_table_prints_and_is_html(runs):
    found = hf.compare({"plain": runs[:2], EVIL: runs[2:]}, target=0.5, baseline=EVIL)
    text = repr(found)
    assert text.startswith("2 methods to accuracy 0.5")
    assert "plain" in text
    page = shown(found)
    assert EVIL in page
    assert f"less than {EVIL}" in page
    assert text.startswith(repr(found.table()))
    assert hf.compare(runs[0]).results.target is None


def test_the_table_in_latex_is_that_of_the_command(runs):
    found = hf.compare({"a_b & c": runs[:2], "100 %": runs[2]}, target=0.5, baseline="100 %")
    assert found.to_latex() == to_latex(found.results, "100 %")
    assert r"a\_b \& c & " in found.to_latex()


def test_metrics_of_whole_sets_and_validation_examples(runs):
    train, test = hf.data.breast_cancer()
    few = hf.Examples(train.x[:20], train.y[:20])
    evaluate = [hf.evaluate.on(few, name="validation"), hf.evaluate.on(test, metrics=["auc"])]
    run = hf.simulate(dataclasses.replace(runs[0].experiment, evaluate=evaluate), rounds=2)
    found = hf.compare(run, metric="auc")
    assert found.to_frame()["final"].tolist() == [run.history.final("auc")]
    (clients,) = found.results.methods[0].clients
    assert "auc" in clients
    # Of test examples, not of the twenty to choose by.
    assert len(found.results.folders[0].seeds("fedavg")[0].predictions()) > 100


def on_another_split(run, algorithm, seed):
    """The same experiment with the data drawn anew."""
    train = hf.data.breast_cancer().train
    changed = dataclasses.replace(
        run.experiment,
        algorithm=algorithm,
        clients=hf.data.partition.iid(train, clients=4, seed=seed),
    )
    return hf.simulate(changed, rounds=3)


def test_splits_of_the_data_are_told_apart(runs):
    methods = (hf.algorithms.fedavg(), hf.algorithms.local_only())
    several = [on_another_split(runs[0], a, seed) for a in methods for seed in (1, 2, 3)]
    found = hf.compare(several)
    assert [m.splits for m in found.results.methods] == [(0, 1, 2)] * 2
    # Paired by split: the same rows, of models that were trained on the same data.
    keys = [list(m.predictions) for m in found.results.methods]
    assert keys[0] == keys[1] == [(0, 0), (1, 0), (2, 0)]
    assert "of one split" not in found.verdict.text
    # The test set is one and the same.
    about = found.results.folders[0].description()["splits"]
    assert about == {"numbers": [0, 1, 2], "tested_per_trained": None}
    one = hf.compare({"here": several[0], "there": several[1]})
    assert [m.splits for m in one.results.methods] == [(0,), (1,)]
    assert "here" in repr(one)


def test_the_verdict_is_said(runs):
    experiment = runs[0].experiment
    alone = [
        hf.simulate(
            dataclasses.replace(experiment, algorithm=hf.algorithms.local_only(), seed=seed),
            rounds=3,
        )
        for seed in (0, 1)
    ]
    found = hf.compare([*runs, *alone])
    assert "alone" in found.verdict.sentence
    assert found.verdict.sentence in repr(found).replace("\n", " ")
    assert found.verdict.sentence in shown(found)


def test_plots_draw_the_curves_of_the_report(runs):
    figure = hf.compare(runs, target=0.5).plot()
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [line.name for line in lines] == ["FedAvg", "SCAFFOLD"]
    mean = (runs[0].history["accuracy"] + runs[1].history["accuracy"]) / 2
    # Round 0 is the model before the first round.
    assert list(lines[0].x) == [0, 1, 2, 3]
    np.testing.assert_allclose(lines[0].y[1:], mean, rtol=0, atol=1e-15)
    assert len(figure.data) == 4  # with a band each
    assert [shape.y0 for shape in figure.layout.shapes] == [0.5]
    one = runs[0].plot("loss", x="megabytes")
    assert one.data[0].y[1:] == pytest.approx(runs[0].history["loss"], abs=0)
    assert one.data[0].x[-1] == pytest.approx(runs[0].ledger.total / 1e6)
    assert one.layout.yaxis.title.text == "loss"
    with pytest.raises(hf.HoldfastError, match="did you mean `loss`"):
        runs[0].plot("los")
    with pytest.raises(hf.HoldfastError, match="did you mean `rounds`"):
        runs[0].plot(x="round")


def test_labels_of_a_plot_are_no_markup(runs):
    figure = hf.compare({EVIL: runs[0]}).plot()
    assert "<script" not in figure.to_json().replace("\\u003c", "<").replace("&lt;", "")


def test_the_page_and_figures_are_written(runs, folder, tmp_path):
    page = hf.report(runs, tmp_path / "page.html", target=0.5, name="two methods")
    text = page.read_text("utf-8")
    assert "two methods" in text
    assert "Made from results of hf.simulate" in text
    made = hf.figures([*runs, folder], tmp_path / "figures")
    assert {path.suffix for path in made} == {".pdf", ".png"}
    assert all(path.stat().st_size > 1000 for path in made)


def test_names_sizes_and_ranges_may_be_given(runs, tmp_path):
    found = hf.compare(runs)
    page = found.report(tmp_path / "page.html", names={"scaffold": "Ours"}, range=(0.5, 1.0))
    assert '"Ours"' in page.read_text("utf-8")
    made = found.figures(tmp_path / "wide", names={"scaffold": "Ours"}, width=6)
    narrow = found.figures(tmp_path / "narrow")
    sizes = [
        int.from_bytes(next(p for p in paths if p.suffix == ".png").read_bytes()[16:20], "big")
        for paths in (made, narrow)
    ]
    assert sizes == [1800, 999]
    with pytest.raises(hf.HoldfastError, match="is called `scafold`; did you mean `scaffold`"):
        found.figures(tmp_path, names={"scafold": "Ours"})


def test_runs_and_folders_stand_beside_each_other(runs, folder):
    found = hf.compare([runs[0], folder])
    labels = [method.label for method in found.results.methods]
    assert labels == ["fedavg (runs)", "fedavg (run)", "scaffold"]


def test_what_was_only_in_memory_leaves_nothing_behind(runs):
    found = hf.compare(runs)
    place = found.results.folders[0].path
    assert place.exists()
    del found
    gc.collect()
    assert not place.exists()


def test_the_text_is_no_wider_than_a_page(runs):
    assert max(map(len, repr(hf.compare(runs, target=0.5)).splitlines())) <= 120


def other_rate(run):
    local = dataclasses.replace(run.experiment.local, learning_rate=0.2)
    return hf.simulate(dataclasses.replace(run.experiment, local=local, seed=7), rounds=1)


def test_what_cannot_be_compared_is_refused(runs):
    for given, said in (
        ([], "no runs are given"),
        ({"a": []}, "no runs are given"),
        ([3], "3 is a int; give results of hf.simulate"),
        (3, "3 is a int; give results of hf.simulate"),
        ({"a": "runs/digits"}, "give results of hf.simulate"),
        ([runs[0], runs[0]], "two runs of `fedavg` have seed 0 and the same data"),
        ([runs[0], other_rate(runs[0])], "differ in their local training; give them labels"),
        (runs[0].history, "give results of hf.simulate"),
    ):
        with pytest.raises(hf.HoldfastError, match=said):
            hf.compare(given)
    with pytest.raises(hf.HoldfastError, match="no method `fedavgg`; did you mean `fedavg`"):
        hf.compare(runs, baseline="fedavgg")
    with pytest.raises(hf.HoldfastError, match="did you mean `target`"):
        hf.compare(runs, targt=0.5)
    unmeasured = hf.simulate(dataclasses.replace(runs[0].experiment, evaluate=None), rounds=1)
    with pytest.raises(hf.HoldfastError, match=r"measured nothing; give simulate\(evaluate="):
        hf.compare(unmeasured)
