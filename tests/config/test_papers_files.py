"""The papers' experiment files name things that exist, with arguments they have."""

from pathlib import Path

import pytest

from holdfast.config.build import Begins, outline, plan
from holdfast.config.file import read

FILES = sorted((Path(__file__).parents[2] / "papers").glob("*/*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_name_and_argument_exists(path):
    assert outline(read(path)).algorithm


@pytest.mark.parametrize("name", ["feddyn/synthetic", "mixed/imbalance"])
def test_those_on_bundled_data_can_be_run(name):
    path = next(p for p in FILES if f"{p.parent.name}/{p.stem}" == name)
    made = plan(read(path, ["seeds=1"]))
    assert len(made.methods) == 4


def test_there_is_one_for_each_paper():
    assert {p.parent.name for p in FILES} == {"feddyn", "fedpvr", "fsl", "mixed", "flix"}


def test_masks_by_how_names_begin():
    last, others = Begins(("classifier",)), Begins(("!classifier", "!dense"))
    paths = ["dense_0/kernel", "classifier/bias", "convolution_0/kernel"]
    assert [last(p) for p in paths] == [False, True, False]
    assert [others(p) for p in paths] == [False, False, True]


def test_the_server_may_have_some_of_everything(tmp_path):
    path = next(p for p in FILES if p.stem == "imbalance")
    from_clients = ["server.clients=3", "server.each=4", "seeds=1"]
    text = path.read_text().replace('data = { name = "breast_cancer", train_labels = [0] }\n', "")
    (tmp_path / "e.toml").write_text(text)
    assert plan(read(tmp_path / "e.toml", from_clients)).server.size == 12
    assert plan(read(tmp_path / "e.toml", ["server.share=0.1"])).server.size == 28
