"""Runs of a sweep in other processes: the bits of one after another, whoever carries them out and dies."""

import dataclasses
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import holdfast as hf
from holdfast.jobs.local import LocalExecutor
from holdfast.sweeps import side_by_side
from tests.problems import same_bits, tiny_clients

CLIENTS = tiny_clients()


def own_code():
    """What another process can import from nowhere: a rule, a model, a schedule and an evaluator."""

    class Pull(hf.Rule):
        mu: hf.Hyper
        kind: str = hf.static(default="a")

        def tilt(self, at):
            return hf.Tilt(pull=self.mu) if self.kind in {"a", "b"} else hf.Tilt()

    @jax.jit
    def loss(w, batch):
        return jnp.sum((batch.x - w[None]) ** 2, axis=1)

    class Norm:
        every = 1
        keeps_last_models = False

        def check(self, model, params, clients):
            pass

        def __call__(self, view):
            return {"norm": float(jnp.sum(view.state.params**2))}

    return hf.Experiment(
        hf.Algorithm(Pull(0.1)),
        hf.Model(init=lambda key, examples: jnp.zeros(examples.x.shape[1]), loss=loss),
        CLIENTS,
        hf.Local(learning_rate=lambda t: 0.1 / (1 + t), steps=2, batch_size=4),
        evaluate=Norm(),
    )


def sweep(experiment, rounds=4, over=None, **settings):
    # A pull of 1e38 diverges; without the pull nothing does.
    over = {"rule.mu": [0.1, 1e38], "rule.kind": ["a", "c"]} if over is None else over
    return hf.sweep(experiment, rounds=rounds, over=over, **settings)


def assert_same(found, other):
    for run, its in zip(found, other, strict=True):
        assert (run.point, run.seed, run.failed) == (its.point, its.seed, its.failed)
        assert same_bits(run.params, its.params)
        assert run.ledger == its.ledger
        assert timeless(run.history) == timeless(its.history)


def timeless(history):
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in history]


class DiesOnce:
    """An evaluator that kills its process in round 3 of its first run."""

    every = 1
    keeps_last_models = False

    def __init__(self, note: Path, home: int):
        self.note, self.home = note, home

    def check(self, model, params, clients):
        pass

    def __call__(self, view):
        if view.state.round == 3 and os.getpid() != self.home and not self.note.exists():
            self.note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"half": view.state.round / 2}


class Elsewhere:
    """An executor that has nothing done where it is."""

    def __init__(self, executor):
        self.submit = executor.submit


@pytest.fixture(scope="module")
def elsewhere():
    executor = LocalExecutor(2)
    yield Elsewhere(executor)
    executor.stop()


@pytest.fixture(scope="module")
def experiment():
    return own_code()


@pytest.fixture(scope="module")
def alone(experiment):
    return sweep(experiment, seeds=2, jobs=1)


def test_own_code_elsewhere_has_its_bits_and_its_name(elsewhere, experiment, alone, tmp_path):
    """Saved there and gone on with here: it is the same run in both processes."""
    seen = []
    settings = {"seeds": 2, "checkpoint": tmp_path}
    sweep(experiment, rounds=2, executor=elsewhere, **settings)
    found = sweep(
        experiment, jobs=1, on_round=lambda state, *_: seen.append(state.round), **settings
    )
    assert_same(found, alone)
    assert [run.failed is not None for run in found] == [False] * 4 + [True] * 2 + [False] * 2
    # Runs that fail in their second round have no save, and begin again.
    assert sorted(seen) == [1] * 2 + [3] * 6 + [4] * 6
    assert [run.algorithm for run in found] == [run.algorithm for run in alone]


def test_a_worker_that_is_killed(elsewhere, alone, experiment, tmp_path):
    """Without a save the run begins again."""
    dies = DiesOnce(tmp_path / "note", os.getpid())
    mortal = dataclasses.replace(experiment, evaluate=[experiment.evaluate, dies])
    last = []

    def on_round(state, point, seed):
        last.append((state.round, len(state.client_states.touched), state.algorithm.name))

    found = sweep(mortal, seeds=2, executor=elsewhere, on_round=on_round)
    assert (tmp_path / "note").exists()
    for run, its in zip(found, alone, strict=True):
        assert same_bits(run.params, its.params)
        assert run.failed == its.failed
        assert list(run.history["norm"]) == list(its.history["norm"])
    # Elsewhere it is called with the last state of every run; those that fail do so in round 2.
    assert sorted(last) == [(1, 4, "algorithm")] * 2 + [(4, 4, "algorithm")] * 6


class Together:
    """An evaluator that waits in its first round until two processes are at work."""

    every = 1
    keeps_last_models = False

    def __init__(self, place: Path):
        self.place = place

    def check(self, model, params, clients):
        pass

    def __call__(self, view):
        (self.place / str(os.getpid())).touch()
        for _ in range(1200):
            if len(list(self.place.iterdir())) >= 2:
                break
            time.sleep(0.05)
        return {}


def test_rounds_of_all_processes_are_told_here(experiment, alone, tmp_path, capsys):
    both = dataclasses.replace(experiment, evaluate=[experiment.evaluate, Together(tmp_path)])
    told = []

    def on_round(state, point, seed):
        assert threading.current_thread() is threading.main_thread()
        told.append((point["rule.mu"], point["rule.kind"], seed, state.round))
        assert len(state.history) == state.round
        assert len(state.client_states.touched) == len(CLIENTS)

    found = sweep(both, seeds=2, jobs=2, on_round=on_round, progress=True)
    assert_same(found, alone)
    assert len(list(tmp_path.iterdir())) == 2
    expected = [
        (mu, kind, seed, t)
        for mu in (0.1, 1e38)
        for kind in "ac"
        for seed in (0, 1)
        for t in range(1, 2 if (mu, kind) == (1e38, "a") else 5)
    ]
    assert sorted(told) == sorted(expected)
    for run in {t[:3] for t in told}:
        rounds = [t[3] for t in told if t[:3] == run]
        assert rounds == sorted(rounds)
    assert "/32" in capsys.readouterr().err


def test_processes_are_started_when_there_is_enough_to_do(experiment, alone, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(LocalExecutor, "grow", lambda self, jobs, first: started.append(jobs))
    assert_same(sweep(experiment, seeds=2), alone)
    assert not started
    monkeypatch.setattr(side_by_side, "_LOOK", 0.0)
    monkeypatch.setattr(side_by_side, "_WORTH_STARTING", 0.0)
    assert_same(sweep(experiment, seeds=2), alone)
    assert len(started) == 1
    # What cannot be sent stays here.
    locked = dataclasses.replace(experiment, evaluate=[experiment.evaluate, Locked()])
    with pytest.warns(hf.HoldfastWarning, match=r"cannot be sent to other .* One after another"):
        sweep(locked)
    with pytest.raises(hf.HoldfastError, match="cannot be sent to other processes: cannot pickle"):
        sweep(locked, jobs=2)


class Locked(Together):
    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, view):
        return {}


def test_a_sweep_within_a_sweep(experiment, alone):
    within = []

    def on_round(state, point, seed):
        if not within:
            within.append(sweep(experiment, rounds=1, over={"rule.mu": [0.1]}))

    assert_same(sweep(experiment, seeds=2, jobs=1, on_round=on_round), alone)
    assert len(within[0]) == 1


def test_threads_take_turns(experiment, alone):
    with ThreadPoolExecutor(2) as executor:
        told = []
        found = sweep(
            experiment, seeds=2, executor=executor, on_round=lambda *a: told.append(a[0].round)
        )
    assert_same(found, alone)
    assert sorted(told) == sorted(6 * [1, 2, 3, 4] + 2 * [1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"jobs": 0}, "sweep: jobs=0; give a whole number of at least 1."),
        ({"executor": 3}, "sweep: executor=3 is a int; give one with `submit`"),
        ({"executor": ThreadPoolExecutor(1), "jobs": 2}, "jobs=2 and an executor; give one of"),
    ],
)
def test_refusals(experiment, settings, words):
    with pytest.raises(hf.HoldfastError, match=re.escape(words)):
        sweep(experiment, **settings)


def test_what_runs_in_this_process_is_not_sent(experiment):
    debugged = dataclasses.replace(experiment, engine=hf.DebugEngine())
    with pytest.raises(hf.HoldfastError, match="jobs=2, but a DebugEngine runs in this process"):
        sweep(debugged, jobs=2)


@pytest.mark.filterwarnings("default")
def test_dask_and_one_of_its_workers_killed(experiment, alone, tmp_path):
    distributed = pytest.importorskip("distributed")
    dies = DiesOnce(tmp_path / "note", os.getpid())
    mortal = dataclasses.replace(experiment, evaluate=[experiment.evaluate, dies])
    settings = {"dashboard_address": None, "local_directory": str(tmp_path)}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **settings) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        found = sweep(
            mortal,
            seeds=2,
            executor=executor,
            checkpoint=hf.Checkpoint(tmp_path / "saves", every=1),
        )
    assert (tmp_path / "note").exists()
    for run, its in zip(found, alone, strict=True):
        assert same_bits(run.params, its.params)
        assert run.ledger == its.ledger
