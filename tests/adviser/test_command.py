"""Advice on experiment files, the command, and bad input to either."""

import json

import numpy as np
import pytest

import holdfast as hf
from tests.adviser.problems import LOCAL, MODEL, SHARED, population


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
            ({"held_out": 1}, "give a share such as 0.2"),
            ({"clients": SHARED, "held_out": SHARED}, "are trained on by clients"),
            (
                {"clients": SHARED, "server": hf.Server(SHARED.examples, LOCAL)},
                "are trained on by the server",
            ),
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
        assert json.loads((tmp_path / "advice/mine/race/file-file-file/race.json").read_text())[
            "over"
        ]

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ("[evaluate]\npatience = 3\nvalidation = 0.2", "leave out `patience`"),
            ("[evaluate]\npatience = 1\nvalidation = 0.2", "leave out `patience`"),
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

    def test_several_populations_are_refused_as_such(self, tmp_path):
        from holdfast.adviser.from_file import advise_file
        from holdfast.config.file import read

        own = 'name = "{}"\ndata = "breast_cancer"\npartition = {{ name = "iid", clients = 2 }}\n'
        several = "".join("[[population]]\n" + own.format(name) for name in "ab")
        rest = FILE[FILE.index("[model]") :]
        (tmp_path / "mine.toml").write_text(f"rounds = 2\n{several}{rest}")
        with pytest.raises(hf.HoldfastError, match="several populations have no one measure"):
            advise_file(read(tmp_path / "mine.toml"), hf.Budget(), race=False)

    @pytest.mark.parametrize(
        ("more", "share"), [("", 0.2), ("[evaluate]\nvalidation = 0.3\nevery = 2\n", 0.3)]
    )
    def test_a_share_is_drawn_by_the_race(self, tmp_path, more, share):
        from holdfast.adviser.from_file import _held_out
        from holdfast.config.file import read

        (tmp_path / "mine.toml").write_text(FILE + more)
        found, drawn = _held_out(read(tmp_path / "mine.toml"))
        assert drawn == share
        assert found.values.get("evaluate") == ({"every": 2} if more else None)

    @pytest.mark.parametrize(("key", "draws"), [('group = "visit"', False), ("", True)])
    def test_rows_that_belong_together_are_divided_by_the_loader(self, tmp_path, key, draws):
        from holdfast.adviser.from_file import _held_out
        from holdfast.config.file import read

        rows = [f"{i},{i % 2},{i // 30},{i // 3}" for i in range(90)]
        (tmp_path / "rows.csv").write_text("\n".join(["a,ill,site,visit", *rows]))
        data = f"""
            [data]
            name = "table"
            path = "rows.csv"
            label = "ill"
            client = "site"
            {key or 'ignore = ["visit"]'}
            [partition]
            name = "natural"
            """
        text = FILE.replace('[data]\nname = "breast_cancer"\n', "").replace(
            '[partition]\nname = "iid"\nclients = 4\n', data
        )
        (tmp_path / "mine.toml").write_text(text)
        found, drawn = _held_out(read(tmp_path / "mine.toml"))
        assert drawn == (0.2 if draws else None)
        assert found.values["data"].get("validation_share") == (None if draws else 0.2)

    @pytest.mark.parametrize(
        ("keys", "fits"),
        [
            ('metric = "loss"', False),
            ('metric = "personal_accuracy"', True),
            ('metric = "personal_accuracy"\ntarget = 0.9', False),
            ('metric = "accuracy"\ntarget = 0.9', True),
        ],
    )
    def test_a_metric_that_methods_are_not_ranked_by_is_refused(self, tmp_path, keys, fits):
        from holdfast.adviser.from_file import asked
        from holdfast.config.file import read

        (tmp_path / "mine.toml").write_text(f"{keys}\n{FILE}")
        if fits:
            assert asked(read(tmp_path / "mine.toml")).rounds == 6
        else:
            with pytest.raises(hf.HoldfastError, match="ranked by accuracy"):
                asked(read(tmp_path / "mine.toml"))

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
