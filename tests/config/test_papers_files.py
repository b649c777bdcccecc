"""The papers' experiment files name things that exist, with arguments they have."""

import functools
import inspect
import tomllib
from pathlib import Path

import numpy as np
import optax
import pytest

import holdfast as hf
from holdfast.config import catalogue
from holdfast.config.build import sections, study
from holdfast.config.entries import entry
from holdfast.config.file import ExperimentFileError, read
from holdfast.config.making import Begins, named

FILES = sorted((Path(__file__).parents[2] / "papers").glob("*/*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_name_and_argument_exists(path):
    assert sections(read(path)).algorithm


def _examples(n, shape, classes):
    x = np.random.default_rng(0).normal(size=(n, *shape)).astype(np.float32)
    return hf.Examples(x, (np.arange(n) % classes).astype(np.int32))


def _images(shape, classes):
    return hf.data.Dataset(
        _examples(1000, shape, classes), _examples(100, shape, classes), classes=classes
    )


def _owned(train, test, each=5, **about):
    owners = np.arange(len(train.y)) // each
    return hf.data.Dataset(train, test, owners, owners[: len(test.y)], **about)


def _whole(n, length, symbols, y_length=None):
    rng = np.random.default_rng(0)
    y = rng.integers(1, symbols, (n, y_length) if y_length else n)
    x = rng.integers(0, symbols, (n, length))
    return hf.Examples(x.astype(np.int32), y.astype(np.int32))


def _tagged(n, words, tags):
    """Several tags for each post."""

    def posts(count):
        tagged = np.random.default_rng(0).integers(0, 2, (count, tags))
        return _examples(count, (words,), 2)._replace(y=tagged.astype(np.int32))

    return _owned(posts(n), posts(100), classes=tags)


# What their loaders return, smaller and with other numbers in it.
STAND_INS = {
    "mnist": lambda: _images((28, 28, 1), 10),
    "emnist": lambda: _images((28, 28, 1), 47),
    "cifar10": lambda: _images((32, 32, 3), 10),
    "cifar100": lambda: _images((32, 32, 3), 100),
    "celeba": lambda: _owned(
        _examples(1000, (84, 84, 3), 2), _examples(100, (84, 84, 3), 2), classes=2
    ),
    "shakespeare": lambda: _owned(
        _whole(1000, 80, 80), _whole(100, 80, 80), classes=80, vocabulary=80
    ),
    "text": lambda: _owned(_whole(1000, 100, 91, 100), _whole(100, 100, 91, 100), vocabulary=91),
    "stack_overflow": lambda: _tagged(1000, 30, 20),
    "movielens_1m": lambda: _owned(_whole(3900, 10, 3953), _whole(100, 10, 3953), 1),
    "libsvm_set": lambda: hf.data.Dataset(
        _examples(1000, (112,), 2), _examples(100, (112,), 2), classes=2
    ),
}


def stand_in_for_data(monkeypatch):
    """Data of the same make where the real one must be fetched."""
    for name, make in STAND_INS.items():
        real = catalogue.KINDS["data"][name]
        stand_in = functools.wraps(real)(lambda make=make, **settings: make())
        stand_in.__signature__ = inspect.signature(real)
        monkeypatch.setitem(catalogue.KINDS["data"], name, stand_in)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_file_can_be_put_together(path, monkeypatch):
    """As `--dry-run` does it."""
    stand_in_for_data(monkeypatch)
    assert study(read(path, ["seeds=1"]), pretrained=False).methods


@pytest.mark.parametrize("name", ["feddyn/synthetic", "mixed/imbalance"])
def test_those_on_bundled_data_can_be_run(name):
    path = next(p for p in FILES if f"{p.parent.name}/{p.stem}" == name)
    made = study(read(path, ["seeds=1"]))
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
    assert study(read(tmp_path / "e.toml", from_clients)).server.size == 12
    assert study(read(tmp_path / "e.toml", ["server.share=0.1"])).server.size == 28


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_what_show_prints_is_valid(kind, tmp_path):
    for name in catalogue.KINDS[kind]:
        written = tomllib.loads(entry(kind, name))
        table = next(iter(written.values()))
        table = table["also"] if kind == "evaluator" else table
        if kind == "metric":
            (table,) = ({"name": one} for one in table["metrics"])
        table = table[0] if isinstance(table, list) else table
        table = {"name": table.pop("schedule"), **table} if kind == "schedule" else table
        (tmp_path / "e.toml").write_text(entry(kind, name))
        table = {"name": name, **table} if kind == "clip" else table  # it has a key of its own
        named(read(tmp_path / "e.toml"), (kind,), kind, table)


def test_optimisers_by_name(tmp_path):
    path = next(p for p in FILES if p.stem == "imbalance")
    changes = [
        "algorithm.fedavg.local.optimizer=adam",
        'algorithm.one_way_transfer.server_optimizer={ name = "sgd", learning_rate = 0.5, nesterov = true }',
    ]
    made = study(read(path, changes))
    assert made.methods[0].local.optimizer is optax.adam
    with pytest.raises(ExperimentFileError, match="`learning_rate` is missing"):
        study(read(path, ["algorithm.one_way_transfer.server_optimizer=adam"]))


# What the papers print for one method and not for another: each value in its own place.
PER_METHOD = """\
rounds = 3
data = "breast_cancer"
partition = { name = "iid", clients = 4 }
model = { name = "binary_mlp", hidden = [4] }
local = { learning_rate = 0.05, steps = 2, batch_size = 8 }
server = { examples = 40, local = { learning_rate = 1.0, steps = 2, batch_size = 20, clip = 0.2 } }

[[algorithm]]
name = "fedavg"
server_learning_rate = 1.0
local = { momentum = 0.9, batch_size = 16 }

[[algorithm]]
name = "scaffold"
server_learning_rate = 2.236
local = { learning_rate = { schedule = "multi_step", value = 0.05, rounds = [1, 2], factor = 0.1 } }

[[algorithm]]
name = "fedpvr"
mask = "classifier"
local = { momentum = 0.9, momentum_on = "!classifier" }

[[algorithm]]
name = "parallel_training"
federated = 0.75
central = 0.25
adaptive_clip = { initial = 0.1 }

[[algorithm]]
name = "one_way_transfer"
federated = 0.75
central = 0.25
adaptive_clip = { initial = 0.1 }
server = { gradient_batch_size = 30 }

[[algorithm]]
name = "two_way_transfer"
federated = 0.75
central = 0.25
adaptive_clip = { initial = 0.1 }
server = { local = { steps = 1, batch_size = 10 } }
"""


def test_a_method_may_have_what_others_have_not(tmp_path):
    (tmp_path / "e.toml").write_text(PER_METHOD)
    made = {m.label: m for m in study(read(tmp_path / "e.toml")).methods}
    local = {name: m.local for name, m in made.items()}
    assert [m.momentum for m in local.values()] == [0.9, None, 0.9, None, None, None]
    assert local["fedpvr"].momentum_on("hidden_0/kernel")
    assert not local["fedpvr"].momentum_on("classifier/bias")
    assert local["fedavg"].batch_size == 16
    rate = local["scaffold"].learning_rate
    assert [rate(t) for t in range(3)] == pytest.approx([0.05, 0.005, 0.0005])
    assert made["scaffold"].algorithm.rule.rules[-1].settings["learning_rate"] == 2.236
    server = {name: m.server for name, m in made.items()}
    assert [s.local.steps for s in server.values()] == [2] * 5 + [1]
    assert [s.local.batch_size for s in server.values()] == [20] * 5 + [10]
    assert server["one_way_transfer"].gradient_batch_size == 30
    assert {s.local.clip for s in server.values()} == {0.2}
