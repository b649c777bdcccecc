"""What the report says is what the histories say, whatever they lack."""

import builtins
import json
import re

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.report import curves, fairness, figures, page, palette, sweeps
from holdfast.report.content import content
from holdfast.report.splits import splits
from holdfast.runs import results
from tests.report import made_up


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    return made_up.usual(tmp_path_factory.mktemp("runs") / "usual")


@pytest.fixture(scope="module")
def values(usual):
    return content(usual)


@pytest.fixture(scope="module")
def text(usual):
    return page.render(usual)


def column(values, name):
    return [row[values["table"]["columns"].index(name)] for row in values["table"]["rows"]]


def curve(run, metric="accuracy", number=0):
    return curves.curve(curves.measured(run.methods[number]), metric)


def test_curves_are_means_and_deviations_over_seeds(usual):
    found = curve(usual)
    by_seed = np.array([h["accuracy"] for h in usual.methods[0].histories])
    assert np.allclose(found.mean, by_seed.mean(axis=0))
    assert np.allclose(found.deviation, by_seed.std(axis=0, ddof=1))
    assert np.allclose(found.megabytes, 1.5 * np.arange(1, 21))
    assert np.allclose(found.seconds, 0.5 * np.arange(1, 21))


def test_a_seed_that_stopped_counts_as_far_as_it_got(usual):
    found = curve(usual, number=2)
    assert found.seeds.tolist() == [3] * 7 + [2] * 13
    assert found.mean[6] == pytest.approx(0.07 + 0.03)
    assert found.mean[7] == pytest.approx(0.08 + 0.03)
    assert (np.diff(found.megabytes) > 0).all()


def test_the_table_holds_rounds_savings_and_megabytes(values):
    assert [c["text"] for c in column(values, "rounds")] == ["12 ± 1", "5 ± 1", "> 15"]
    assert column(values, "rounds")[0]["value"] == pytest.approx((13 + 12 + 12) / 3)
    assert [c["text"] for c in column(values, "saving")] == ["1.00x", "2.31x", "< 0.79x"]
    assert column(values, "saving in MB")[1]["value"] == pytest.approx(37 / 16)
    assert column(values, "MB")[1]["value"] == pytest.approx(1.5 * 16 / 3)
    assert column(values, "seconds")[1]["value"] == pytest.approx(0.5 * 16 / 3)
    assert column(values, "final accuracy")[0]["text"] == "0.830 ± 0.030"
    assert [m["state"] for m in values["methods"]] == ["", "", "unfinished"]


def test_who_never_got_there_needs_more_than_was_run_and_saves_others_more(tmp_path):
    folder = made_up.begin(tmp_path / "late", ["slow", "quick"])
    for seed in range(2):
        made_up.add(folder, 0, seed, made_up.rows(0.024, seed))  # 0.48 and, in round 20, 0.51
        made_up.add(folder, 1, seed, made_up.rows(0.1, seed))
    made = content(results.load([tmp_path / "late"]))
    assert [c["text"] for c in column(made, "rounds")] == ["> 20 (1 of 2)", "6 ± 1"]
    assert [c["text"] for c in column(made, "saving")] == ["-", "> 3.63x"]  # 20 / 5.5
    assert column(made, "saving")[1]["value"] is None
    assert "6 ± 1 rounds, more than 3.6 times fewer than slow (> 20 (1 of 2))" in made["summary"]
    assert made["highlights"][0]["note"] == "more than 3.6 times fewer than slow"
    assert "bound" in " ".join(made["notes"])


def test_a_window_may_change_the_order_and_that_is_said(tmp_path):
    folder = made_up.begin(tmp_path / "noisy", ["lucky", "steady"], target=0.5)
    lucky, steady = made_up.rows(0.02, 0, rounds=40), made_up.rows(0.03, 0, rounds=40)
    lucky[3]["accuracy"] = 0.6
    made_up.add(folder, 0, 0, lucky)
    made_up.add(folder, 1, 0, steady)
    raw, smooth = (results.load([tmp_path / "noisy"], window=w) for w in (None, 10))
    assert [m.rounds_to(0.5, "accuracy", raw.window).mean for m in raw.methods] == [4, 17]
    # The mean of rounds t-9 to t is the accuracy of round t - 4.5.
    assert [c["text"] for c in column(content(smooth), "rounds")] == ["30", "22"]
    assert [c["text"] for c in column(content(smooth), "final accuracy")] == ["0.710", "0.988"]
    assert "another: steady 22, lucky 30 rounds" in " ".join(content(raw)["notes"])
    assert "first evaluation there" in content(raw)["summary"]
    assert "mean of 10 evaluations" in content(smooth)["summary"]
    assert "another" not in " ".join(content(smooth)["notes"])
    with pytest.raises(HoldfastError, match="window 41: `accuracy` was measured 40 times"):
        results.load([tmp_path / "noisy"], window=41)


def test_a_target_belongs_to_its_metric(tmp_path):
    made_up.single(tmp_path / "run", made_up.rows(0.04, 0))
    assert results.load([tmp_path / "run"], metric="accuracy").target == made_up.TARGET
    assert results.load([tmp_path / "run"], metric="loss").target is None
    assert results.load([tmp_path / "run"], target=1.2, metric="loss").target == 1.2
    with pytest.raises(HoldfastError, match=r"target 95 for accuracy, .* above 1; give 0\.95"):
        results.load([tmp_path / "run"], target=95)


def test_the_table_agrees_with_the_command_compare(usual, values):
    for method, shown in zip(usual.methods, column(values, "rounds"), strict=True):
        assert shown["value"] == method.rounds_to(usual.target, "accuracy").mean


def test_the_summary_says_who_was_first_and_by_how_much(values):
    said = values["summary"]
    assert said.startswith("3 methods ran 20 rounds with 3 seeds each on 12 clients.")
    expected = (
        f"{made_up.STRANGE} reached accuracy 0.505 (first evaluation there) in 5 ± 1 rounds, "
        f"2.3 times fewer than FedAvg"
    )
    assert expected in said
    assert "slow did not reach accuracy 0.505." in said
    assert "slow is not finished" in said
    assert [h["method"] for h in values["highlights"]] == [1, 1, 1, 0]


def test_the_worst_tenth_is_taken_per_seed(usual):
    found = fairness.distribution(usual.methods[0], "accuracy")
    # Two of twelve are a tenth: clients 0 and 1, of accuracy (i + seed) / 15.
    assert found.worst_tenth.values == pytest.approx([(0.5 + s) / 15 for s in range(3)])
    assert found.best_tenth.values == pytest.approx([(10.5 + s) / 15 for s in range(3)])
    assert found.values[0] == pytest.approx(1 / 15)
    assert np.all(np.diff(found.values) > 0)


def test_the_worst_loss_is_the_highest(usual):
    found = fairness.distribution(usual.methods[0], "loss")
    assert found.worst_tenth.values[0] == pytest.approx(1 - 0.5 / 15)
    assert np.all(np.diff(found.values) < 0)


def test_every_metric_is_shown_and_no_bookkeeping(values):
    assert values["metrics"] == ["accuracy", "loss", "train_loss"]
    assert values["lower"] == {"accuracy": False, "loss": True, "train_loss": True}


def test_metrics_of_the_same_rounds_share_their_axes(values):
    assert [len(c["grids"]) for c in values["curves"]] == [1, 1, 1]


def test_long_histories_are_thinned_to_their_ends(tmp_path):
    history = made_up.rows(0.0001, 0, rounds=5000)
    made = content(made_up.single(tmp_path / "long", history))
    grid = made["curves"][0]["grids"][0]["rounds"]
    assert len(grid) == curves.MOST_POINTS
    assert (grid[0], grid[-1]) == (1, 5000)


def test_what_is_measured_now_and_then_has_points_there_alone(tmp_path):
    history = made_up.rows(0.04, 0, every=5)
    history[0]["accuracy"] = float("nan")
    history[1]["accuracy"] = None
    found = curve(made_up.single(tmp_path / "sparse", history))
    assert found.rounds.tolist() == [5, 10, 15, 20]
    assert found.megabytes.tolist() == [7.5, 15, 22.5, 30]


def test_a_loss_is_better_lower_without_any_accuracy(tmp_path):
    history = made_up.rows(0.04, 0, regression=True)
    clients = made_up.client_results(0, regression=True)
    about = {"metric": "loss", "target": 1.5, "regression": True}
    run = made_up.single(tmp_path / "regression", history, clients, **about)
    made = content(run)
    assert column(made, "rounds")[0]["text"] == "13"
    assert list(made["clients"]) == ["loss"]
    assert made["splits"][0]["counts"] is None
    assert sum(made["splits"][0]["histogram"]["numbers"]) == made_up.CLIENTS
    assert made["highlights"] == []


def test_without_a_target_only_ends_are_compared(tmp_path):
    run = made_up.single(tmp_path / "aimless", made_up.rows(0.04, 0), target=None)
    made = content(run)
    assert made["table"]["columns"] == [
        "final accuracy",
        "rise time",
        "MB in all",
        "seconds in all",
    ]
    assert [c["text"] for c in made["table"]["rows"][0]] == ["0.800", "18", "30.0", "10.0"]
    assert made["clients"] == {}
    assert made["summary"].startswith("only ran 20 rounds with 1 seed on 12 clients.")


def test_a_seed_stopped_before_it_measured_anything_is_no_obstacle(tmp_path):
    folder = made_up.begin(tmp_path / "early", ["a", "b"])
    made_up.add(folder, 0, 0, made_up.rows(0.1, 0))
    made_up.add(folder, 0, 1, made_up.rows(0.1, 0, rounds=3, every=5))
    made_up.add(folder, 1, 0, made_up.rows(0.1, 0, rounds=3, every=5), failed=True)
    made = content(results.load([tmp_path / "early"]))
    assert [c["text"] for c in column(made, "rounds")] == ["> 4 (1 of 2)", "> 3"]
    assert [m["state"] for m in made["methods"]] == ["unfinished", "diverged"]
    assert "b diverged" in made["summary"]
    assert made["curves"][1]["metrics"] == {}


def test_who_has_not_ended_is_not_said_to_have_ended_best(tmp_path):
    folder = made_up.begin(tmp_path / "early", ["done", "going"])
    made_up.add(folder, 0, 0, made_up.rows(0.03, 0), made_up.client_results(0))
    made_up.add(folder, 1, 0, made_up.rows(0.1, 0, rounds=8))
    said = content(results.load([tmp_path / "early"]))["summary"]
    assert "done ended with the highest accuracy, 0.600." in said
    assert "going is not finished" in said


def test_several_folders_make_one_page_and_share_a_split(tmp_path):
    for name in ("one", "two"):
        made_up.single(tmp_path / name, made_up.rows(0.04, 0), made_up.client_results(0))
    made = content(results.load([tmp_path / "one", tmp_path / "two"]))
    assert made["title"] == "one, two"
    assert [m["label"] for m in made["methods"]] == ["only (one)", "only (two)"]
    assert [s["folders"] for s in made["splits"]] == [["one", "two"]]
    assert len(made["configurations"]) == len(made["environments"]) == 2


def test_the_split_calls_clients_and_classes_by_their_names(tmp_path):
    split = {"sizes": [3, 9], "counts": [[0, 3], [8, 1]], "names": ["va", "bern"]}
    run = made_up.single(tmp_path / "named", made_up.rows(0.04, 0))
    (run.folders[0].path / "split.json").write_text(
        json.dumps(split | {"label_names": ["well", "ill"]})
    )
    run.folders[0].sums_file.unlink()  # which are of another split
    (shown,) = content(results.load([tmp_path / "named"]))["splits"]
    assert (shown["names"], shown["named"]) == (["bern", "va"], True)
    assert shown["classes"] == ["well", "ill"]
    assert shown["counts"] == [[8, 0], [1, 3]]


def test_many_clients_and_classes_still_fit(tmp_path):
    split = {"sizes": [300] * 700, "counts": np.ones((500, 300), int).tolist()}
    run = made_up.single(tmp_path / "large", made_up.rows(0.04, 0))
    (run.folders[0].path / "split.json").write_text(json.dumps(split))
    run.folders[0].sums_file.unlink()  # which are of another split
    found = splits(run)[0]
    assert found.counts.shape == (100, 500)
    assert found.counts.sum() == 500 * 300
    assert found.classes[0] == "0 to 2"


def test_clients_are_ordered_by_their_commonest_class(usual):
    found = splits(usual)[0]
    assert (np.diff(found.counts.argmax(axis=0)) >= 0).all()
    assert found.counts.sum(axis=0).tolist() == found.sizes[found.clients].tolist()


def test_labels_and_files_cannot_break_out_of_the_page(text):
    assert "<b>quick" not in text
    assert "<script>alert" not in text
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(inside[1])["methods"][1]["label"] == made_up.STRANGE
    assert text.count("</script>") == 4


def test_nothing_is_asked_of_the_network(text):
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert not re.search(r"@import|url\(", text)
    assert "<link" not in text.replace('<link rel="icon" href="data:,">', "")


def test_the_page_is_small_enough_to_send(usual, tmp_path):
    path = page.write(usual, tmp_path / "new" / "report.html")
    assert path.stat().st_size < 3_000_000
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert path.read_bytes() == page.render(usual).encode()


def test_methods_look_different():
    looks = [palette.look(i) for i in range(32)]
    assert len({(p.light, p.dash) for p in looks}) == len({(p.symbol, p.dash) for p in looks}) == 32


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#111417")])
def test_colours_stand_out_from_the_ground(theme, ground):
    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for number in range(8):
        pair = sorted(luminance(c) for c in (getattr(palette.look(number), theme), ground))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 3


def test_figures_are_pdf_and_png_of_a_column(usual, tmp_path):
    written = figures.write(usual, tmp_path / "figures")
    assert sorted({p.stem for p in written}) == [
        "accuracy-megabytes",
        "accuracy-rounds",
        "clients-accuracy",
        "split",
    ]
    for path in written:
        raw = path.read_bytes()
        if path.suffix == ".pdf":
            assert raw.startswith(b"%PDF-")
            assert b"/Type3" not in raw
            assert b"/TrueType" in raw or b"/CIDFontType2" in raw
        else:
            assert raw.startswith(b"\x89PNG\r\n")
            assert int.from_bytes(raw[16:20], "big") == 999  # 3.33 inches of 300 dots


def test_figures_say_what_to_install(usual, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(HoldfastError, match=r'pip install "holdfast\[figures\]"'):
        figures.write(usual, tmp_path)


def test_a_loss_that_overflowed_is_shown_as_it_is(tmp_path):
    folder = made_up.begin(tmp_path / "overflow", ["a"], metric="loss", target=1.5)
    for seed in range(2):
        history = made_up.rows(0.04, seed)
        history[-1]["loss"] = float("inf")
        made_up.add(folder, 0, seed, history, {"client": [0, 1], "loss": [float("nan"), 1.0]})
    made = content(results.load([tmp_path / "overflow"]))
    assert column(made, "final loss")[0] == {"text": "inf", "value": None}
    assert made["curves"][0]["grids"][0]["rounds"][-1] == 19
    assert made["clients"]["loss"]["clients"] == 1


def test_a_sweep_is_lines_by_key(tmp_path):
    found = content(made_up.swept(tmp_path / "swept"))["sweep"]
    rate, alpha = found["keys"]
    assert (rate["name"], rate["scale"], rate["ticks"]) == ("rate", "log", [0.01, 0.1])
    assert [(line["label"], line["x"], line["methods"]) for line in rate["lines"]] == [
        ("FedAvg", [0.01, 0.1], [1, 0]),
        ("FedDyn, alpha 1", [0.01, 0.1], [3, 2]),
        ("FedDyn, alpha 2", [0.01, 0.1], [5, 4]),
    ]
    assert (alpha["scale"], alpha["words"]) == ("linear", ["1", "2"])
    assert [line["label"] for line in alpha["lines"]] == ["FedDyn, rate 0.1", "FedDyn, rate 0.01"]
    final, rounds, _ = found["figures"]
    assert final["name"] == "final accuracy"
    assert final["values"][0] == pytest.approx([20 / 30 + 0.015, 0.03 / np.sqrt(2)])
    assert final["values"][5] is None  # diverged
    assert rounds["name"] == "rounds to accuracy 0.505 (first evaluation there)"
    assert rounds["values"][1] is None  # not reached


def test_without_a_sweep_there_is_no_picture_of_one(values):
    assert values["sweep"] is None


def test_the_axis_of_a_sweep(tmp_path):
    assert sweeps.scale_of([0.03, 0.1, 0.3]) == "log"
    assert sweeps.scale_of([0, 100]) == "linear"
    assert sweeps.scale_of([0.1, {"schedule": "cosine"}]) == "category"
    one = made_up.swept(tmp_path / "one", seeds=1)
    assert [key.name for key in sweeps.sweeps(one)] == ["rate", "alpha"]
    assert content(one)["sweep"]["figures"][0]["values"][0][1] is None  # one seed has no deviation
    together = results.load([tmp_path / "one", tmp_path / "one"])
    assert sweeps.sweeps(together)[0].lines[0].label == "fedavg (one)"


def test_figures_of_a_sweep(tmp_path):
    pytest.importorskip("matplotlib")
    found = figures.write(made_up.swept(tmp_path / "swept"), tmp_path / "figures")
    assert {"sweep-rate.pdf", "sweep-alpha.png"} <= {path.name for path in found}


def renamed(path, name, **about):
    """Two methods of which the second is better by a loss of another name."""
    folder = made_up.begin(path, ["high", "low"], metric=name, **about)
    for number, slope in enumerate((0.01, 0.04)):
        history = [{name: r.pop("loss"), **r} for r in made_up.rows(slope, 0, regression=True)]
        clients = made_up.client_results(number, regression=True)
        clients[name] = clients.pop("loss")
        made_up.add(folder, number, 0, history, clients)
    return results.load([path])


@pytest.mark.parametrize(("name", "declared"), [("error", None), ("oddity", {"oddity": False})])
def test_the_best_by_another_name_than_loss_is_the_lowest(tmp_path, name, declared):
    run = renamed(tmp_path / "runs", name, target=1.5, greater_is_better=declared)
    made = content(run)
    assert [c["text"] for c in column(made, "rounds")] == ["> 20", "13"]
    assert f"low ended with the lowest {name}, 1.200." in made["summary"]
    assert "The worst-served tenth of clients does best with low" in made["summary"]
    assert {h["title"]: h["method"] for h in made["highlights"]} == {
        "Fewest rounds to the target": 1,
        "Least traffic to the target": 1,
        f"Lowest final {name}": 1,
        f"Best {name} of the worst tenth": 1,
    }
    assert made["lower"] == {name: True}
    assert fairness.distribution(run.methods[0], name).worst_tenth.mean == pytest.approx(
        1 - 0.5 / 15
    )


def test_what_nobody_knows_the_direction_of_is_drawn_all_the_same(tmp_path):
    run = renamed(tmp_path / "runs", "oddity", target=None)
    assert "greater_is_better" not in run.folders[0].description()  # as in an older folder
    made = content(run)
    assert made["metrics"] == ["oddity"]
    assert made["lower"] == {"oddity": None}
    assert len(made["curves"][0]["metrics"]["oddity"]["mean"]) == 20
    assert "ended with" not in made["summary"]
    assert (made["highlights"], made["clients"]) == ([], {})
    page.render(run)
    pytest.importorskip("matplotlib")
    assert len(figures.write(run, tmp_path / "figures")) == 6
    with pytest.raises(HoldfastError, match="metric `oddity`: nobody said") as caught:
        content(results.load([tmp_path / "runs"], target=1.5))
    assert "methods.json" in str(caught.value)


def test_a_direction_declared_by_one_folder_holds_for_the_others(tmp_path):
    renamed(tmp_path / "old", "oddity", target=1.5)
    renamed(tmp_path / "new", "oddity", target=1.5, greater_is_better={"oddity": False})
    renamed(tmp_path / "odd", "oddity", target=1.5, greater_is_better={"oddity": True})
    run = results.load([tmp_path / "old", tmp_path / "new"])
    assert [m.rounds_to(1.5, "oddity").mean for m in run.methods] == [None, 13, None, 13]
    with pytest.raises(HoldfastError, match=r"odd: `oddity` is better high, and in another .* low"):
        results.load([tmp_path / "new", tmp_path / "odd"])
