"""Stopped at any moment and gone on with, a run ends in the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import holdfast as hf
from holdfast.record import checkpoint as module
from tests.problems import same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
SETTINGS = {
    "algorithm": hf.algorithms.feddc(alpha=0.1),
    "model": MODEL,
    "clients": tiny_clients(),
    "local": hf.Local(hf.schedules.exponential(0.1, 0.9), epochs=2, batch_size=4),
    "cohort": hf.cohorts.bernoulli(0.5),
    "evaluate": hf.evaluate.on(tiny_clients()[1]),
    "seed": 2,
}


def run(rounds, **changes):
    return hf.simulate(rounds=rounds, **(SETTINGS | changes))


def assert_same(a, b):
    assert same_bits((a.params, a.state.server), (b.params, b.state.server))
    assert same_bits(dict(a.client_states.touched), dict(b.client_states.touched))
    assert a.ledger == b.ledger
    timeless = [
        [{k: v for k, v in row.items() if "seconds" not in k} for row in r.history] for r in (a, b)
    ]
    assert timeless[0] == timeless[1]


def test_resumed_equals_uninterrupted(tmp_path):
    whole = run(7)
    for rounds in (2, 3, 7):
        resumed = run(rounds, checkpoint=hf.Checkpoint(tmp_path, every=2))
    assert_same(resumed, whole)
    assert [p.name for p in hf.Checkpoint(tmp_path).files()] == [
        "round-00000006.holdfast",
        "round-00000007.holdfast",
    ]


def test_one_checkpoint_may_be_used_for_run_after_run(tmp_path):
    often = hf.Checkpoint(tmp_path, every=1)
    for rounds in (2, 4, 6):
        resumed = run(rounds, checkpoint=often)
    assert_same(resumed, run(6))
    assert_same(run(7, checkpoint=tmp_path), run(7))


def test_a_folder_as_text_is_enough(tmp_path):
    run(3, checkpoint=str(tmp_path / "new" / "run"))
    assert run(3, checkpoint=tmp_path / "new" / "run").state.round == 3


def test_a_damaged_checkpoint_is_detected_and_the_one_before_used(tmp_path):
    run(4, checkpoint=hf.Checkpoint(tmp_path, every=1, keep=3))
    newest = hf.Checkpoint(tmp_path).files()[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.warns(
        hf.HoldfastWarning, match=r"round-00000004.* is damaged .*going on from round-00000003"
    ):
        resumed = run(6, checkpoint=hf.Checkpoint(tmp_path, every=1))
    assert_same(resumed, run(6))


def test_a_truncated_or_empty_file_is_damage_too(tmp_path):
    run(2, checkpoint=hf.Checkpoint(tmp_path, every=1))
    newest = hf.Checkpoint(tmp_path).files()[-1]
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.warns(hf.HoldfastWarning, match=r"round-00000002"):
        assert_same(run(3, checkpoint=tmp_path), run(3))
    for path in hf.Checkpoint(tmp_path).files():
        path.write_bytes(b"")
    with pytest.raises(
        hf.HoldfastError, match=r"not one save can be used .* delete the folder to start again"
    ):
        run(3, checkpoint=tmp_path)


def test_a_kill_while_writing_leaves_the_previous_save(tmp_path, monkeypatch):
    run(2, checkpoint=hf.Checkpoint(tmp_path, every=1))

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        run(3, checkpoint=hf.Checkpoint(tmp_path, every=1))
    monkeypatch.undo()
    assert hf.Checkpoint(tmp_path).files()[-1].name == "round-00000002.holdfast"
    assert_same(run(4, checkpoint=tmp_path), run(4))


@pytest.mark.parametrize("storage", [hf.Storage(), hf.Storage(memory=0)])
def test_ctrl_c_within_a_round_saves_the_round_before(tmp_path, storage):
    """Client states of the round that is not over are in their store already."""

    class Interrupted:
        every = 1
        keeps_last_models = False

        def check(self, model, params, clients):
            pass

        def __call__(self, view):
            if view.state.round == 4 and not (tmp_path / "note").exists():
                (tmp_path / "note").touch()
                raise KeyboardInterrupt
            return {}

    settings = {"storage": storage, "evaluate": Interrupted()}
    store = hf.Checkpoint(tmp_path / "saves", every=3)
    with pytest.raises(KeyboardInterrupt):
        run(6, checkpoint=store, **settings)
    assert [path.name for path in store.files()] == ["round-00000003.holdfast"]
    (tmp_path / "note").unlink()
    late = hf.Checkpoint(tmp_path / "late", every=100)
    with pytest.raises(KeyboardInterrupt):
        run(6, checkpoint=late, **settings)
    assert [path.name for path in late.files()] == ["round-00000003.holdfast"]
    for saved in (store, late):
        assert_same(run(6, checkpoint=saved, **settings), run(6, evaluate=Interrupted()))


def test_ctrl_c_saves_the_last_finished_round(tmp_path):
    def interrupt(state):
        if state.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(9, checkpoint=hf.Checkpoint(tmp_path, every=100), on_round=interrupt)
    assert hf.Checkpoint(tmp_path).files()[-1].name == "round-00000003.holdfast"
    assert_same(run(5, checkpoint=tmp_path), run(5))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"algorithm": hf.algorithms.feddc(alpha=0.2)}, r"another algorithm: .*0\.1.*0\.2"),
        ({"algorithm": hf.algorithms.fedavg()}, "another algorithm"),
        ({"model": hf.models.mlp([5], classes=3)}, "another model"),
        ({"clients": tiny_clients(seed=1)}, "another data"),
        ({"seed": 3}, "another seed: it was 2, now it is 3"),
        ({"local": hf.Local(0.1, epochs=2, batch_size=4)}, "another local training"),
        ({"cohort": hf.cohorts.bernoulli(0.6)}, r"another cohort: .*0\.5.*0\.6"),
        ({"evaluate": None}, "another evaluation"),
    ],
)
def test_another_run_is_refused_by_name(tmp_path, change, named):
    run(1, checkpoint=tmp_path)
    with pytest.raises(hf.HoldfastError, match=f"belongs to a run with {named}"):
        run(2, checkpoint=tmp_path, **change)


def test_a_mask_by_another_function_is_another_algorithm(tmp_path):
    run(1, checkpoint=tmp_path, algorithm=hf.algorithms.fedpvr(lambda p: p.startswith("hidden")))
    run(2, checkpoint=tmp_path, algorithm=hf.algorithms.fedpvr(lambda p: p.startswith("hidden")))
    with pytest.raises(hf.HoldfastError, match=r"another algorithm"):
        run(3, checkpoint=tmp_path, algorithm=hf.algorithms.fedpvr(lambda p: p.endswith("bias")))


SCRIPT = """
import sys, holdfast as hf
sys.path.insert(0, {root!r})
from tests.record.test_checkpoint import run
print("ready", flush=True)
run(40, checkpoint=hf.Checkpoint({folder!r}, every=1))
print("done", flush=True)
"""


def test_sigkill_at_random_moments(tmp_path):
    root = str(Path(__file__).parents[2])
    code = SCRIPT.format(root=root, folder=str(tmp_path))
    rng, reached = np.random.default_rng(), []
    for attempt in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root
        )
        assert child.stdout.readline() == "ready\n"
        if attempt == 1:
            assert child.communicate(timeout=120)[0] == "done\n"
            continue
        deadline = time.monotonic() + 60
        before = len(reached) and reached[-1]
        while _latest(tmp_path) <= before:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0, 0.05)))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        reached.append(_latest(tmp_path))
    assert_same(run(40, checkpoint=tmp_path), run(40))


def _latest(folder):
    names = [p.stem for p in hf.Checkpoint(folder).files()]
    return int(names[-1].split("-")[1]) if names else 0


def test_states_are_values_to_go_back_to():
    stream = hf.rounds(**SETTINGS)
    first, second, third = (next(stream) for _ in range(3))
    again = hf.rounds(**SETTINGS, start=first)
    assert same_bits(next(again).params, second.params)
    sent = stream.send(first)
    assert sent.round == 2
    assert same_bits(sent.params, second.params)
    assert third.round == 3


def test_a_save_of_another_version_says_so(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(module, "_FORMAT", "1")
        run(1, checkpoint=tmp_path)
    with pytest.raises(hf.HoldfastError, match="another version of holdfast wrote it, in format 1"):
        run(2, checkpoint=tmp_path)


def test_a_save_costs_the_rounds_since_the_one_before(tmp_path):
    """Neither the save nor what it adds to the journal grows with the rounds there were."""
    settings = (hf.models.softmax_regression(3), tiny_clients(), hf.Local(0.1, steps=1))
    saves, journals = [], []

    def look(state):
        if state.round % 20 == 0:
            saves.append(hf.Checkpoint(tmp_path).files()[-1].stat().st_size)
            journals.append((tmp_path / "rounds-1.jsonl").stat().st_size)

    hf.simulate(
        hf.algorithms.fedavg(),
        *settings,
        200,
        checkpoint=hf.Checkpoint(tmp_path, 20),
        on_round=look,
    )
    assert max(saves) - min(saves) <= 16
    added = np.diff(journals)
    assert max(added) < 1.2 * min(added)


@pytest.mark.parametrize("damage", ["removed", "emptied", "changed", "cut"])
def test_a_damaged_journal_is_no_other_history(tmp_path, damage):
    often = hf.Checkpoint(tmp_path, every=2)
    run(4, checkpoint=often)
    (path,) = tmp_path.glob("rounds-*.jsonl")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes({"emptied": b"", "changed": content, "cut": content[:-9]}[damage])
    if damage in ("removed", "emptied"):
        with pytest.raises(hf.HoldfastError, match=r"not one save can be used .*rounds-1\.jsonl"):
            run(6, checkpoint=hf.Checkpoint(tmp_path, every=2))
        return
    with pytest.warns(hf.HoldfastWarning, match=r"rounds-1.* is damaged .*round-00000002"):
        assert_same(run(6, checkpoint=hf.Checkpoint(tmp_path, every=2)), run(6))


def test_another_way_on_from_an_older_state_has_a_journal_of_its_own(tmp_path):
    store = hf.Checkpoint(tmp_path, every=1, keep=9)
    stream = hf.rounds(**SETTINGS)
    first, second = next(stream), next(stream)
    identity = run(0).simulation.setup.identity()
    for state in (first, second, stream.send(first)):
        store.save(state, identity)
    assert len(list(tmp_path.glob("rounds-*.jsonl"))) == 2
    assert_same(run(3, checkpoint=tmp_path), run(3))


def test_a_save_damaged_anywhere_in_its_header_is_only_damaged(tmp_path):
    run(2, checkpoint=tmp_path)
    path = hf.Checkpoint(tmp_path).files()[-1]
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    assert module.header(path)["round"] == "2"
    for at in range(8 + size):
        for bit in (1, 16):
            damaged = bytearray(whole)
            damaged[at] ^= bit
            path.write_bytes(damaged)
            about = module.header(path)
            assert about == {} or isinstance(json.loads(about.get("identity", "{}")), dict)
    path.write_bytes(whole)
    assert len(module.saved_rounds(tmp_path)) == 2
