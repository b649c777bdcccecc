"""What the server does in each method: its training, pre-training, sharing of data, and sweeps of them."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from tests.config.test_sweep_section import holdfast
from tests.config.test_wrong_files import folder, refused
from tests.problems import same_bits

__all__ = ["folder"]  # a fixture

FILE = """\
rounds = 2

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
batch_size = 8

[cohort]
name = "fixed"
size = 2

[server]
examples = 40

[server.local]
learning_rate = 0.05
steps = 3
batch_size = 10
weight_decay = 0.01

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "fedavg"
label = "data sharing"
server = { data_sharing = true, pretrain = { rounds = 2, learning_rate = 0.01, epochs = 3 } }

[[algorithm]]
name = "fedavg_plus"
gamma = 0.5
server = { pretrain = 4 }

[[algorithm]]
name = "feddyn_plus"
alpha = 0.1
gamma = 0.5

[algorithm.server]
gradient_batch_size = 5
local = { learning_rate = 0.2, epochs = 1 }
"""


def studied(text=FILE, *changes):
    with open("experiment.toml", "w") as file:
        file.write(text)
    return study(read("experiment.toml", changes))


def test_each_method_has_its_own_server(folder):
    made = studied()
    local = [m.server.local for m in made.methods]
    assert [own.learning_rate for own in local] == [0.05, 0.05, 0.05, 0.2]
    assert [own.steps for own in local] == [3, 3, 3, None]
    assert local[3].epochs == 1
    assert [own.weight_decay for own in local] == [0.01] * 4
    assert [m.server.gradient_batch_size for m in made.methods] == [None] * 3 + [5]
    # Without [server.local] the server trains as clients do, and the method's own goes over that.
    whole = FILE[FILE.index("[server.local]") : FILE.index("[[algorithm]]")]
    made = studied(FILE.replace(whole, ""), "algorithm.2.server.local.steps=7")
    assert [m.server.local.learning_rate for m in made.methods] == [0.1, 0.1, 0.1, 0.2]
    assert [m.server.local.steps for m in made.methods] == [2, 2, 7, None]


def test_a_method_runs_as_python_would(folder):
    """Each of the four, put together by hand: same bits."""
    made = studied()
    own = made.server.source
    clients, model, local = made.clients, made.model, hf.Local(0.1, steps=2, batch_size=8)
    plain = hf.Local(0.05, steps=3, batch_size=10, weight_decay=0.01)
    before = hf.Server(own, hf.Local(0.01, epochs=3, batch_size=10, weight_decay=0.01))
    ways = [
        (hf.algorithms.fedavg(), clients, plain, None),
        (hf.algorithms.fedavg(), hf.data.share(clients, own), plain, hf.pretrain(model, before, 2)),
        (
            hf.algorithms.fedavg_plus(0.5),
            clients,
            plain,
            hf.pretrain(model, hf.Server(own, plain), 4),
        ),
        (
            hf.algorithms.feddyn_plus(0.1, 0.5),
            clients,
            hf.Local(0.2, epochs=1, batch_size=10, weight_decay=0.01),
            None,
        ),
    ]
    for method, (algorithm, population, trains, start) in zip(made.methods, ways, strict=True):
        single = hf.simulate(
            algorithm,
            model,
            population,
            local,
            2,
            cohort=hf.cohorts.fixed(2),
            params=start,
            server=hf.Server(own, trains),
        )
        assert same_bits(hf.simulate(made.experiment(method, 0), rounds=2).params, single.params)
        # Neither handing out data once nor training at the server is traffic of a round.
        assert single.ledger.total == hf.simulate(made.experiment(method, 0), rounds=2).ledger.total


def test_pre_training_is_part_of_what_a_run_is_and_resumes_exactly(folder):
    made = studied()
    begun = [made.experiment(m, 0).params for m in made.methods]
    assert [p is None for p in begun] == [True, False, False, True]
    other = studied(FILE, "algorithm.2.server.pretrain=5")
    assert not same_bits(begun[2], other.experiment(other.methods[2], 0).params)
    holdfast("run", "experiment.toml", "--out", "all", "--no-report")
    lost = folder / "all/methods/data-sharing/seed-0/params.safetensors"
    content = lost.read_bytes()
    lost.unlink()
    for save in (lost.parent / "checkpoints").glob("*"):
        save.unlink()
    holdfast("resume", "all", "--no-report")
    assert lost.read_bytes() == content


def test_sweeps_over_how_the_server_trains(folder):
    sweep = '[sweep]\n"server.local.learning_rate" = [0.05, 0.5]\n\n[[algorithm]]'
    made = studied(FILE.replace("[[algorithm]]", sweep, 1))
    # FedAvg does not ask the server, and FedDyn+ has a step size of its own.
    assert [m.label for m in made.methods] == [
        "fedavg",
        "data sharing learning_rate=0.05",
        "data sharing learning_rate=0.5",
        "fedavg_plus learning_rate=0.05",
        "fedavg_plus learning_rate=0.5",
        "feddyn_plus",
    ]
    assert [m.server.local.learning_rate for m in made.methods[3:]] == [0.05, 0.5, 0.2]
    # Pre-training has its own step size in one and that of the server in the other.
    start = [made.experiment(m, 0).params for m in made.methods]
    assert same_bits(start[1], start[2])
    assert not same_bits(start[3], start[4])
    alone = studied(FILE, "server.local.learning_rate=0.5", "algorithm.2.gamma=0.5")
    assert same_bits(
        hf.simulate(made.experiment(made.methods[4], 0), rounds=2).params,
        hf.simulate(alone.experiment(alone.methods[2], 0), rounds=2).params,
    )


def test_a_swept_server_that_trains_as_clients_do(folder):
    whole = FILE[FILE.index("[server.local]") : FILE.index("[[algorithm]]")]
    sweep = """\
[sweep]
"server.local.steps" = [1, 4]
"local.learning_rate" = [0.3, 0.6]

"""
    made = studied(FILE.replace(whole, sweep))
    plus = [m for m in made.methods if m.of == "fedavg_plus"]
    assert [(m.server.local.steps, m.server.local.learning_rate) for m in plus] == [
        (1, 0.3),
        (1, 0.6),
        (4, 0.3),
        (4, 0.6),
    ]
    assert {m.server.local.batch_size for m in plus} == {8}
    assert [m.local.steps for m in plus] == [2] * 4
    own = 'algorithm.feddyn_plus.server.local.learning_rate = [0.1, 0.4]\n"server.pretrain" = [0, 1]\n'
    made = studied(FILE.replace(whole, "[sweep]\n" + own))
    dyn = [m for m in made.methods if m.of == "feddyn_plus"]
    assert [m.server.local.learning_rate for m in dyn] == [0.1, 0.1, 0.4, 0.4]
    assert [m.at_server.pretraining is None for m in dyn] == [True, False] * 2


def test_sweeps_from_python_reach_all_of_how_the_server_trains(folder):
    made = studied()
    given = dataclasses.replace(
        made.experiment(made.methods[2], 0), algorithm=hf.algorithms.one_way_transfer()
    )
    found = hf.sweep(
        given,
        over={"server.local.learning_rate": [0.05, 0.5], "server.gradient_batch_size": [3, 4]},
        rounds=2,
    )
    for point in found:
        server = hf.Server(
            given.server.source,
            hf.Local(
                point.point["server.local.learning_rate"],
                steps=3,
                batch_size=10,
                weight_decay=0.01,
            ),
            gradient_batch_size=point.point["server.gradient_batch_size"],
        )
        single = hf.simulate(
            given.algorithm,
            given.model,
            given.clients,
            given.local,
            2,
            cohort=given.cohort,
            params=given.params,
            server=server,
        )
        assert same_bits(point.params, single.params)


PLAIN, PLUS = 'name = "fedavg"\n\n', "server = { pretrain = 4 }"
LOSS = ("examples = 40", 'loss = { name = "spreadout", strength = 0.1 }')
WRONG = {
    "a key the server has not": (
        [(PLUS, "server = { learning_rate = 4 }")],
        42,
        "unknown key `learning_rate` in [algorithm.server]; known are",
    ),
    "a key its training has not": (
        [(PLUS, "server = { local = { learningrate = 4 } }")],
        42,
        "unknown key `learningrate` in [algorithm.server.local]; did you mean `learning_rate`?",
    ),
    "a value out of range": (
        [(PLUS, "server = { local = { learning_rate = -1.0 } }")],
        42,
        "Local: learning_rate=-1.0; give",
    ),
    "training where there is none": (
        [(PLAIN, 'name = "fedavg"\nserver.local.steps = 3\n\n')],
        33,
        "the server does not train in `fedavg`; remove it",
    ),
    "nothing at the server": (
        [(FILE[FILE.index("[server]") : FILE.index("[[algorithm]]")], "")],
        28,
        "there is no [server]; add one",
    ),
    "no rounds of pre-training": (
        [(PLUS, "server = { pretrain = { rounds = 0 } }")],
        42,
        "`rounds` is 0 in [server.pretrain]; expected at least 1.",
    ),
    "a number of rounds in words": (
        [(PLUS, 'server = { pretrain = "long" }')],
        42,
        '`pretrain` is "long" in [algorithm.server]; expected a whole number',
    ),
    "pre-training on a loss": (
        [LOSS, ("data_sharing = true, ", "")],
        37,
        "the server has a loss and no examples to train on",
    ),
    "sharing of a loss": (
        [LOSS, (", pretrain = { rounds = 2, learning_rate = 0.01, epochs = 3 }", "")],
        37,
        "the server has a loss and no examples that clients could have too",
    ),
    "a sweep of who has what": (
        [("[[algorithm]]", '[sweep]\n"server.examples" = [1, 2]\n\n[[algorithm]]')],
        32,
        "`server.examples` cannot be swept, only how the server trains",
    ),
    "a sweep that changes nothing": (
        [
            (FILE[FILE.index('[[algorithm]]\nname = "fedavg"\nlabel') :], ""),
            ("[[algorithm]]", '[sweep]\n"server.local.steps" = [1, 2]\n\n[[algorithm]]'),
        ],
        32,
        "`server.local.steps` changes no method: the server trains in none",
    ),
    "a wrong value in a sweep": (
        [("[[algorithm]]", '[sweep]\n"server.local.clip" = [1, -2]\n\n[[algorithm]]')],
        32,
        "clip=-2",
    ),
    "a sweep without a server": (
        [
            (
                FILE[FILE.index("[server]") : FILE.index('[[algorithm]]\nname = "fedavg"\n\n')],
                '[sweep]\n"server.local.steps" = [1, 2]\n\n',
            )
        ],
        23,
        "there is no [server] to sweep",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_with_its_line(folder, name):
    changes, line, words = WRONG[name]
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    said = refused(text)
    assert words in said
    assert f"experiment.toml, line {line}:" in said


def test_momentum_that_a_method_cannot_have_at_its_server(folder):
    text = FILE.replace('name = "feddyn_plus"\nalpha = 0.1', 'name = "scaffold_plus"')
    said = refused(text.replace("local = { learning_rate = 0.2", "local = { momentum = 0.9"))
    assert "the server's Local has momentum or an optimiser; remove it" in said
    assert "experiment.toml, line 50:" in said


def test_who_has_shared_data(folder):
    made = studied()
    shared = made.experiment(made.methods[1], 0).clients
    assert np.array_equal(shared.sizes, made.clients.sizes + 40)
    # The split that is shown and the personal test sets stay those of the clients' own data.
    assert made.experiment(made.methods[0], 0).clients is made.clients


OWNERS = """\
rounds = 1
data = { name = "sine", clients = 8, only_owners = 6 }
partition = "natural"
model = { name = "mlp_regression", hidden = [4] }
local = { learning_rate = 0.05, steps = 1 }
server = { owners = 2 }
algorithm = [{ name = "fedavg" }, { name = "one_way_transfer" }]
"""


def test_users_are_dealt_to_clients_and_server(folder):
    made = studied(OWNERS)
    train = hf.data.sine(clients=8).train
    each = len(train.y) // 8
    assert len(made.clients) == 4
    assert made.server.size == 2 * each
    # Nobody is both: the inputs are random numbers.
    own = set(np.asarray(made.server.source.x).ravel().tolist())
    assert not own & set(np.asarray(made.clients.examples.x)[made.clients.order].ravel().tolist())
    assert "`only_owners` is 8 of 8 owners" in refused(OWNERS.replace("= 6 }", "= 8 }"))
    assert "`owners` is 6 of 6 owners" in refused(OWNERS.replace("owners = 2", "owners = 6"))
    nobody = OWNERS.replace('name = "sine", clients = 8', 'name = "breast_cancer"')
    assert "but nobody owns these examples" in refused(nobody)


def test_a_look_at_a_file_does_not_train(folder, monkeypatch):
    def no_training(*_, **__):
        raise AssertionError("trained")

    monkeypatch.setattr("holdfast.config.server.pretrain", no_training)
    (folder / "experiment.toml").write_text(FILE)
    assert "fedavg_plus" in holdfast("run", "experiment.toml", "--dry-run")
    with pytest.raises(AssertionError, match="trained"):
        studied()


def test_a_table_without_a_name_has_none(folder):
    said = refused(FILE.replace("batch_size = 8", 'batch_size = 8\nname = "x"'))
    assert "unknown key `name` in [local]; remove it." in said
    assert "line 17:" in said


def test_clients_of_several_populations_share_no_data(folder):
    both = '[[population]]\nname = "a"\n\n[[population]]\nname = "b"\npartition = "iid"\n'
    text = FILE.replace("examples = 40", 'data = "breast_cancer"\npopulation = "a"')
    text = text.replace("[[algorithm]]", f"{both}\n[[algorithm]]", 1)
    text = text.replace('partition = "iid"', 'partition = { name = "iid", clients = 3 }')
    said = refused(text)
    assert "populations have losses of their own; leave it out." in said
    assert "> 45 | server = { data_sharing" in said
