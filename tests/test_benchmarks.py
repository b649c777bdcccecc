"""The parts of the benchmarks that need no peer: nothing is timed here."""

import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _found(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER / "peers"))
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name, module in list(sys.modules.items()):
        if str(FOLDER) in str(getattr(module, "__file__", "")):
            del sys.modules[name]


def small_task():
    import protocol

    problem = protocol.PROBLEMS["lr"]
    batches = np.array([[[[0, 1, 2], [3, -1, -1]], [[4, 5, -1], [-1, -1, -1]]]], np.int32)
    return protocol.Task(
        problem=problem,
        x=np.ones((6, 30), np.float32),
        y=np.zeros(6, np.int32),
        offsets=np.array([0, 4, 6, 9]),
        params={"classifier/kernel": np.ones((30, 5), np.float32)},
        cohorts=np.array([[0, 1]]),
        batches=batches,
        counts=np.array([[2, 1]]),
    )


def test_a_task_is_read_as_it_was_written(tmp_path):
    import protocol

    task = small_task()
    task.save(tmp_path / "task.npz")
    again = protocol.Task.load(tmp_path / "task.npz")
    assert again.problem == task.problem
    assert again.params.keys() == task.params.keys()
    for name in ("x", "y", "offsets", "cohorts", "batches", "counts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(task, name))


def test_a_task_says_who_sees_what_and_counts_how_much():
    task = small_task()
    assert [rows.tolist() for rows in task.rows(0, 0)] == [[0, 1, 2], [3]]
    assert [rows.tolist() for rows in task.rows(0, 1)] == [[4, 5]]
    np.testing.assert_allclose(task.weights(0, "fedavg"), [4 / 6, 2 / 6])
    np.testing.assert_allclose(task.weights(0, "feddyn"), [0.5, 0.5])
    assert task.share == 2 / 3


def test_the_task_holds_the_orders_holdfast_uses():
    import protocol
    from task import make

    problem = protocol.PROBLEMS["lr"]
    made = make(problem, lognormal=True, rounds=2)
    assert made.cohorts.shape == (2, problem.cohort)
    for slot, client in enumerate(made.cohorts[1]):
        seen = np.concatenate(list(made.rows(1, slot)))
        own = np.arange(*made.offsets[client : client + 2])
        np.testing.assert_array_equal(np.sort(seen), np.repeat(own, problem.epochs))


@pytest.mark.parametrize("name", ["lr", "mlp", "cnn", "lstm"])
def test_weights_have_the_shapes_of_the_library_s_models(name):
    import jax
    from problems import PROBLEMS, data, initial
    from run_holdfast import model_of, nested

    import holdfast as hf

    problem = PROBLEMS[name]
    model = model_of(problem)
    shapes = jax.eval_shape(model.init, jax.random.key(0), hf.Examples(*data(problem, 2)))
    assert jax.tree.map(lambda a: a.shape, shapes) == jax.tree.map(
        lambda a: a.shape, nested(initial(problem))
    )


def test_sizes_are_the_same_or_lognormal_with_the_same_mean():
    from problems import PROBLEMS, sizes

    problem = PROBLEMS["mlp"]
    assert set(sizes(problem, lognormal=False)) == {600}
    ragged = sizes(problem, lognormal=True)
    assert ragged.min() >= 1
    assert abs(ragged.mean() - 600) < 1
    assert ragged.std() > 200


def test_operations_of_a_step_are_those_of_the_papers_models():
    from problems import PROBLEMS, products

    flop = {name: sum(p.flop for p in products(PROBLEMS[name])) for name in ("mlp", "cnn", "lstm")}
    # 6 a weight and example, less the gradient of the data
    assert flop["mlp"] == 50 * (6 * (784 * 200 + 200 * 200 + 200 * 10) - 2 * 784 * 200)
    assert 3.5e9 < flop["cnn"] < 4.5e9
    assert 5e9 < flop["lstm"] < 6.5e9


def test_another_result_is_marked_wrong():
    from report import cells
    from sides import compare

    first = {"w": np.zeros(4, np.float32)}
    ours = {"w": np.array([1.0, 2, 3, 4], np.float32)}
    assert compare(ours, ours, first).same
    assert compare({"w": ours["w"] * (1 + 1e-6)}, ours, first).same
    assert not compare({"w": ours["w"] * (1 + 1e-3)}, ours, first).same
    assert not compare({"w": ours["w"] * np.nan}, ours, first).same
    assert not compare({"v": ours["w"]}, ours, first).same
    # near in numbers, but the way gone is another
    near_start = {"w": ours["w"] + np.float32(1e-4)}
    assert not compare({"w": ours["w"] + np.float32(0.5e-4)}, ours, near_start).same
    row = {"side": "torch", "variant": "2", "seconds": 2.0, "cold": 3.0, "memory": 5e8}
    line = cells(row | {"same": False, "difference": 1e-3}, row | {"seconds": 1.0})
    assert line[0] == "**WRONG** PyTorch loop (threads 2)"
    assert line[1:3] == ["2 s", "2"]


def test_a_side_without_numbers_says_why():
    from report import HEAD, cells, table

    line = cells({"side": "fedjax", "why": "not installable: no wheel | here"}, None)
    assert line[:2] == ["FedJAX", "not installable: no wheel / here"]
    assert len(line) == len(HEAD)
    written = table(HEAD, [line])
    assert written[2].startswith("| FedJAX | not installable")
    assert {row.count("|") for row in written} == {len(HEAD) + 1}


def test_seconds_are_readable():
    from report import megabytes, seconds

    assert [seconds(s) for s in (0.00123, 0.0999, 0.25, 12.34, 123.4)] == [
        "1.23 ms",
        "99.9 ms",
        "0.25 s",
        "12.3 s",
        "123 s",
    ]
    assert megabytes(123_456_789) == "123 MB"
