"""A sweep is its single runs, to the bit, in one compiled program, checked before it begins."""

import re

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.engine.compiled import compiled_programs
from holdfast.sweeps import naming
from holdfast.sweeps.results import SweptRun
from tests.problems import same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
CLIENTS = tiny_clients()
TEST = CLIENTS[1]
LOCAL = hf.Local(learning_rate=0.1, epochs=2, batch_size=4)
SHARED = {"cohort": hf.cohorts.fixed(2), "evaluate": hf.evaluate.on(TEST)}
OVER = {"rule.alpha": [0.01, 0.1], "local.learning_rate": [0.05, 0.2]}


def sweep(algorithm=None, rounds=3, local=LOCAL, **changes):
    algorithm = hf.algorithms.feddyn(alpha=0.5) if algorithm is None else algorithm
    return hf.sweep(algorithm, MODEL, CLIENTS, local, rounds, **(SHARED | {"over": OVER} | changes))


def timeless(history):
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in history]


def assert_same(run, other):
    assert same_bits(run.params, other.params)
    assert timeless(run.history) == timeless(other.history)
    assert run.ledger == other.ledger


@pytest.fixture(scope="module")
def swept():
    before = compiled_programs()
    found = sweep(seeds=2)
    return found, compiled_programs() - before


def test_it_is_its_single_runs_to_the_bit(swept):
    found, _ = swept
    assert found.points == tuple(
        {"rule.alpha": a, "local.learning_rate": e} for a in (0.01, 0.1) for e in (0.05, 0.2)
    )
    for point, runs in zip(found.points, found.runs, strict=True):
        for seed, run in enumerate(runs):
            algorithm = hf.algorithms.feddyn(alpha=point["rule.alpha"])
            local = hf.Local(point["local.learning_rate"], epochs=2, batch_size=4)
            alone = hf.simulate(algorithm, MODEL, CLIENTS, local, 3, seed=seed, **SHARED)
            assert (run.point, run.seed) == (point, seed)
            assert_same(run, alone)
            assert run.algorithm == algorithm
            assert run.local == local
    models = {b"".join(np.asarray(p).tobytes() for p in jax.tree.leaves(r.params)) for r in found}
    assert len(models) == len(found) == 8


def test_one_program_for_all_points_and_seeds_and_for_the_next_sweep(swept):
    _, compiled = swept
    assert compiled == 1
    before = compiled_programs()
    sweep(over={"rule.alpha": [1, np.float32(0.3)]}, seeds=[7], rounds=2)
    assert compiled_programs() == before


def test_structure_is_compiled_once_per_value():
    before = compiled_programs()
    found = sweep(
        over={"local.batch_size": [3, 5], "rule.alpha": [0.1, 0.2]}, rounds=1, local=hf.Local(0.1)
    )
    assert compiled_programs() - before == 2
    alone = hf.simulate(
        hf.algorithms.feddyn(0.2), MODEL, CLIENTS, hf.Local(0.1, batch_size=5), 1, **SHARED
    )
    assert_same(found.runs[3][0], alone)


def test_paired_values():
    found = sweep(how="paired", rounds=0)
    assert [tuple(p.values()) for p in found.points] == [(0.01, 0.05), (0.1, 0.2)]
    with pytest.raises(
        hf.HoldfastError, match=r"2 of `rule.alpha`, 1 of `local.momentum`; give as"
    ):
        sweep(how="paired", over={"rule.alpha": [1, 2], "local.momentum": [0.9]})


def test_paths_lead_into_chains_wires_settings_and_the_server():
    found = sweep(hf.algorithms.feddc(alpha=0.5), over={"rule.rules.1.alpha": [1, 2]}, rounds=0)
    assert [run.algorithm.rule.rules[1].alpha for run in found] == [1, 2]
    adam = sweep(hf.algorithms.fedadam(), over={"rule.settings.learning_rate": [0.5]}, rounds=0)
    assert adam.runs[0][0].algorithm.rule.settings["learning_rate"] == 0.5
    top = hf.wires.Compressed(hf.wires.RandK(k=3))
    coded = hf.Algorithm(wire=top)
    found = sweep(coded, over={"wire.compressor.k": [1, 2]}, rounds=0)
    assert [run.algorithm.wire.compressor.k for run in found] == [1, 2]
    found = sweep(coded, over={"wire": [hf.Wire(), top]}, rounds=0)
    assert [run.algorithm.wire for run in found] == [hf.Wire(), top]
    assert len({run.__repr__() for run in found}) == 2
    schedules = [hf.schedules.exponential(0.1, d) for d in (0.9, 0.99)]
    found = sweep(over={"local.learning_rate": schedules}, rounds=0)
    assert re.match(r"SweptRun\(learning_rate=exponential#\w+, seed 0", repr(found.runs[0][0]))
    server = hf.Server(TEST, hf.Local(0.1, steps=1))
    before = compiled_programs()
    found = hf.sweep(
        hf.algorithms.fedavg_plus(gamma=0.5),
        MODEL,
        CLIENTS,
        LOCAL,
        1,
        over={"server.local.learning_rate": [1e-3, 1.0]},
        server=server,
    )
    assert compiled_programs() - before == 1
    assert not same_bits(found.runs[0][0].params, found.runs[1][0].params)


WRONG = {
    "a misspelt path": (
        {"rule.alhpa": [1]},
        "nothing is at `rule.alhpa`; did you mean `rule.alpha`?",
    ),
    "a path into nothing": (
        {"local.lr": [1]},
        "nothing is at `local.lr`; can be swept: local.learn",
    ),
    "no path at all": ({"zzz": [1]}, "can be swept: rule.alpha, wire, local.learning_rate,"),
    "no server": ({"server.local.clip": [1]}, "nothing is at `server.local.clip`"),
    "a word for a number": ({"rule.alpha": ["big"]}, "`rule.alpha` is 'big'; give a number"),
    "a number for a part": ({"wire": [3]}, "`wire` is 3; give a whole part"),
    "one value": ({"rule.alpha": 3}, "`rule.alpha` is 3; give a list of values"),
    "a value twice": ({"rule.alpha": [1, 1.0]}, "the point alpha=1 is there twice"),
    "nothing": ({}, "over names nothing"),
    "what a constructor refuses": (
        {"rule.alpha": [1], "local.learning_rate": [0.1, -1]},
        "sweep, alpha=1, learning_rate=-1: Local: learning_rate=-1; give numbers above 0.",
    ),
    "a fraction of an epoch": (
        {"local.epochs": [1, 1.5]},
        "Local: epochs=1.5; give a whole number",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_one_line(name):
    over, words = WRONG[name]
    with pytest.raises(hf.HoldfastError, match=re.escape(words)) as caught:
        sweep(over=over)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": 0}, "seeds=0; give how many, at least 1"),
        ({"seeds": [1, 1]}, "give each once"),
        ({"seeds": [-1]}, "seed -1; give whole numbers"),
        ({"how": "pared"}, "did you mean `paired`?"),
        ({"rounds": -1}, "rounds=-1"),
        ({"sedes": 3}, "unknown argument `sedes`; did you mean `seeds`?"),
    ],
)
def test_other_arguments_too(change, words):
    with pytest.raises(hf.HoldfastError, match=re.escape(words)):
        sweep(**change)


def test_everything_is_checked_before_the_first_round():
    begun = []
    # SCAFFOLD refuses momentum, which only the last point has, and only once all is put together.
    with pytest.raises(hf.HoldfastError, match=r"sweep, momentum=0.9: scaffold: needs"):
        sweep(
            hf.algorithms.scaffold(),
            over={"local.momentum": [None, 0.9]},
            on_round=lambda *_: begun.append(1),
        )
    assert not begun


def test_interrupted_and_gone_on_with(swept, tmp_path):
    def interrupt(state, point, seed):
        if (point["rule.alpha"], seed, state.round) == (0.1, 1, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(seeds=2, checkpoint=tmp_path, on_round=interrupt)
    saved = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.holdfast"))
    assert saved[0] == "alpha=0.01-learning_rate=0.05/seed-0/round-00000003.holdfast"
    assert saved[-1] == "alpha=0.1-learning_rate=0.05/seed-1/round-00000002.holdfast"
    rounds = []
    again = sweep(
        seeds=2, checkpoint=tmp_path, on_round=lambda state, *_: rounds.append(state.round)
    )
    assert rounds == [3, 1, 2, 3, 1, 2, 3]  # what was done is not done again
    for run, other in zip(again, swept[0], strict=True):
        assert_same(run, other)
    rounds.clear()
    with pytest.raises(hf.HoldfastError, match="belongs to a run with another local training"):
        sweep(
            over={"rule.alpha": [0.7, 0.01], "local.learning_rate": [0.05]},
            local=hf.Local(0.1, epochs=1, batch_size=4),
            checkpoint=hf.Checkpoint(tmp_path),
            on_round=lambda *_: rounds.append(1),
        )
    assert not rounds


def test_rows_on_disk_are_gone_on_with_too(swept, tmp_path):
    settings = {"seeds": 2, "storage": hf.Storage(memory=0), "checkpoint": tmp_path}
    sweep(rounds=2, **settings)
    for run, other in zip(sweep(**settings), swept[0], strict=True):
        assert_same(run, other)


@pytest.mark.filterwarnings("ignore:sweep. chosen by")
def test_the_table(swept):
    found, _ = swept
    losses = np.array([[run.history["loss"] for run in runs] for runs in found.runs])
    table = found.table("loss")
    for row, values in zip(table, losses, strict=True):
        assert row.final.values == tuple(values[:, -1])
        assert row.best.mean == pytest.approx(values.min(axis=1).mean())
        assert row.rounds.mean == 3
        assert row.megabytes.mean * 1e6 == found.runs[0][0].ledger.total
    assert found.best("loss") == found.points[int(losses[:, :, -1].mean(axis=1).argmin())]
    target = float(np.median(losses[:, :, 1].max(axis=1)))
    reached = found.table("loss", target)
    assert reached[0].rounds.values == tuple(
        run.history.rounds_to(target, "loss") for run in found.runs[0]
    )
    quickest = min(r.rounds.mean for r in reached if r.rounds.mean is not None)
    assert quickest == next(r.rounds.mean for r in reached if r.point == found.best("loss", target))
    assert set(found.table().records()[0]) >= {"rule.alpha", "final", "final_deviation", "rounds"}
    lines = repr(found).splitlines()
    assert lines[0] == "Sweep of feddyn: 4 points, 2 seeds each"
    assert lines[1].split()[:3] == ["alpha", "learning_rate", "final"]
    assert len(lines) == 6
    assert "rounds to 9" in repr(found.table("loss", 9.0))
    assert "rounds to 9 (mean of 2)" in repr(found.table("loss", 9.0, window=2))
    late = found.table("loss", 1e-9)
    assert late[0].rounds.more_than == late.records()[0]["rounds_more_than"] == 3
    assert "> 3" in repr(late)
    with pytest.raises(hf.HoldfastError, match="did you mean `accuracy`"):
        found.best("acuracy")
    with pytest.raises(hf.HoldfastError, match=r"no point reached loss -1 with every seed"):
        found.best("loss", target=-1.0)
    with pytest.raises(hf.HoldfastError, match=r"target 95 for accuracy, .* give 0\.95"):
        found.best("accuracy", target=95)


def made_up(name, directions=()):
    """Two points whose metric ends at 0.3 and 0.1."""
    runs = tuple(
        (SweptRun({"rule.mu": mu}, 0, None, None, None, hf.History(records, directions), None),)
        for mu, values in ((1, (0.2, 0.3)), (2, (0.9, 0.1)))
        for records in [
            tuple(
                {"round": t + 1, name: v, "bytes_down": 1, "bytes_up": 1}
                for t, v in enumerate(values)
            )
        ]
    )
    return hf.Sweep("fedprox", ({"rule.mu": 1}, {"rule.mu": 2}), (0,), runs)


@pytest.mark.filterwarnings("ignore:sweep. chosen by")
@pytest.mark.parametrize(("name", "directions"), [("error", ()), ("oddity", {"oddity": False})])
def test_the_best_point_by_what_is_better_low(name, directions):
    found = made_up(name, directions)
    assert found.best(name) == {"rule.mu": 2}
    assert [row.best.mean for row in found.table(name)] == [0.2, 0.1]
    assert found.best(name, target=0.25) == {"rule.mu": 1}
    assert made_up("accuracy").best() == {"rule.mu": 1}


def test_a_table_needs_no_direction_but_the_best_point_does():
    found = made_up("oddity")
    assert [line.split() for line in repr(found).splitlines()[1:]] == [
        ["mu", "final", "oddity", "best", "MB"],
        ["1", "0.3000", "-", "4.00e-06"],
        ["2", "0.1000", "-", "4.00e-06"],
    ]
    with pytest.raises(hf.HoldfastError, match="metric `oddity`: nobody said"):
        found.best("oddity")


@pytest.mark.filterwarnings("ignore:sweep. chosen by")
def test_a_point_that_diverges_does_not_stop_the_others():
    found = sweep(over={"local.learning_rate": [1e38, 0.1]}, rounds=2)
    failed, fine = found
    assert "not one of 2 clients returned finite numbers" in failed.failed
    assert (fine.failed, len(fine.history)) == (None, 2)
    assert found.best() == {"local.learning_rate": 0.1}
    assert "diverged" in repr(found)


def test_without_evaluation_there_is_still_a_table():
    found = sweep(evaluate=None, rounds=0)
    assert "MB" in repr(found)
    with pytest.raises(hf.HoldfastError, match="nothing was measured"):
        found.best()


def test_progress_is_shown_if_asked_for(capsys):
    sweep(rounds=1, progress=True)
    assert "feddyn" in capsys.readouterr().err


def test_folders_have_names_that_file_systems_take():
    long = naming.label({f"rule.number_{i}": 0.123456 + i for i in range(30)})
    assert len(naming.folder_name(long)) < 200
    assert naming.folder_name(long) != naming.folder_name(long + "1")
    assert naming.folder_name("a/b: c=1") == "a-b-c=1"


def test_points_are_chosen_by_what_is_set_apart():
    clients, apart = hf.data.set_apart(tiny_clients(), share=0.3)
    test = tiny_clients(seed=9, sizes=(40,), clients=1)[0]
    both = [hf.evaluate.on(test), hf.evaluate.on(apart.pooled()[0], name="validation")]
    found = hf.sweep(
        hf.algorithms.fedavg(),
        hf.models.softmax_regression(3),
        clients,
        hf.Local(0.1, steps=5),
        rounds=6,
        over={"local.learning_rate": [0.01, 3.0]},
        evaluate=both,
        stop=hf.EarlyStopping("validation_loss", patience=2),
    )
    assert found.table().metric == "validation_accuracy"
    finals = [found.table("validation_loss")[i].final.mean for i in range(2)]
    assert found.best("validation_loss") == found.points[int(np.argmin(finals))]
    with pytest.warns(hf.HoldfastWarning, match="chosen by `loss`; if that is of test examples"):
        found.best("loss")
    for runs in found.runs:
        (run,) = runs
        settings = {"evaluate": both, "stop": hf.EarlyStopping("validation_loss", patience=2)}
        alone = hf.simulate(
            run.algorithm, hf.models.softmax_regression(3), clients, run.local, 6, **settings
        )
        assert run.best_round == alone.best_round
        assert same_bits(run.params, alone.params)
        kept = alone.history["validation_loss"][alone.best_round - 1]
        assert run._measured("validation_loss")[-1] == kept
