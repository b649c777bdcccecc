"""Rows in memory, on the device and on disk: the same rows, whatever happens to the process."""

import gc
import itertools
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.client_states import exchange, memory
from holdfast.client_states.device import DeviceStore
from holdfast.client_states.disk import DiskStore
from holdfast.client_states.memory import MemoryStore
from holdfast.client_states.states import ClientStates
from holdfast.core.round_types import ClientState
from holdfast.engine import stacks
from tests.problems import same_bits, tiny_clients

FIRST = ClientState({"a": np.zeros(3, np.float32), "b": np.ones((40, 30), np.float32)}, ())
ROW = 4 * (3 + 40 * 30)
PLACES = {
    "memory": (hf.Storage(), MemoryStore),
    "device": (hf.Storage(device="1 MB"), DeviceStore),
    "disk": (hf.Storage(memory=0), DiskStore),
    "device, then memory": (hf.Storage(device=3 * ROW), MemoryStore),
    "device, memory, disk": (hf.Storage(device=3 * ROW, memory=9 * ROW), DiskStore),
}


def random_rows(rng, n):
    return ClientState(
        {
            "a": rng.normal(size=(n, 3)).astype(np.float32),
            "b": rng.normal(size=(n, 40, 30)).astype(np.float32),
        },
        (),
    )


def row(stacked, k):
    return jax.tree.map(lambda a: np.asarray(a)[k], stacked)


@pytest.mark.parametrize("name", [*PLACES, "memory, large"])
def test_every_version_keeps_its_rows_wherever_they_are(name, monkeypatch):
    if name == "memory, large":  # each in memory of its own, which versions hand on
        monkeypatch.setattr(memory, "_LARGE", 0)
    storage, ends_in = PLACES.get(name, PLACES["memory"])
    rng = np.random.default_rng(1)
    rows, known, versions = ClientStates(FIRST, 50, storage), {}, []
    for _ in range(12):
        places = rng.choice(50, 6, replace=False)
        places[rng.integers(6)] = -1
        found = rows.stack(places)
        for k, client in enumerate(places.tolist()):
            assert same_bits(row(found, k), known.get(client, FIRST))
        new, accepted = random_rows(rng, 6), (places >= 0) & (rng.random(6) < 0.8)
        versions.append((rows, known))
        rows = rows.write(places, new, accepted)
        known = known | {int(places[k]): row(new, k) for k in np.flatnonzero(accepted)}
    assert type(rows.store) is ends_in
    for version, expected in [*versions[::4], (rows, known)]:
        assert sorted(version.touched) == sorted(expected)
        assert all(same_bits(version[i], expected.get(i, FIRST)) for i in range(50))

    version, expected = versions[5]  # and from an old one, another way on
    new = random_rows(rng, 2)
    other = version.write(np.array([1, 49]), new, np.ones(2, bool))
    expected = expected | {1: row(new, 0), 49: row(new, 1)}
    assert sorted(other.touched) == sorted(expected)
    assert all(same_bits(other[i], expected.get(i, FIRST)) for i in range(50))
    assert all(same_bits(rows[i], known.get(i, FIRST)) for i in range(50))


@pytest.mark.parametrize("kind", [MemoryStore, DeviceStore, DiskStore])
def test_rows_that_went_to_another_process_are_forgotten_but_in_saves(kind, tmp_path):
    rng = np.random.default_rng(2)
    on_disk = kind is DiskStore
    store = DiskStore(FIRST, 20, tmp_path) if on_disk else kind(FIRST, 20)
    known, saves = {}, []
    for k in range(12):
        ids, new = rng.choice(20, 5, replace=False), random_rows(rng, 5)
        store.write(ids, new, np.arange(5))
        known |= {int(i): row(new, j) for j, i in enumerate(ids)}
        leaving = rng.choice(sorted(known), len(known) // 2, replace=False)
        store.drop(leaving)
        known = {i: state for i, state in known.items() if i not in leaving}
        assert (len(store), store.ids().tolist()) == (len(known), sorted(known))
        found = store.read(np.arange(20))
        assert all(same_bits(row(found, i), known.get(i, FIRST)) for i in range(20))
        if on_disk and k % 3 == 0:
            store.commit()
            saves = [*saves[-1:], (store.version, store.contents, dict(known))]
            store.pinned = tuple(save[0] for save in saves)
    if not on_disk:
        assert store._index.taken <= 14  # places are used again
    for version, contents, then in reversed(saves):
        del store
        store = DiskStore.open_at(FIRST, 20, tmp_path, version, contents)
        found = store.read(np.arange(20))
        assert store.ids().tolist() == sorted(then)
        assert all(same_bits(row(found, i), then.get(i, FIRST)) for i in range(20))


def test_large_states_are_not_copied_to_be_kept(monkeypatch):
    """Memory of a version that nobody holds is written to again, and no other is asked for."""
    monkeypatch.setattr(memory, "_LARGE", 0)
    rng, everyone = np.random.default_rng(0), np.arange(3)
    rows, seen = ClientStates(FIRST, 3), set()
    for _ in range(6):
        new = random_rows(rng, 3)
        rows = rows.write(everyone, new, np.ones(3, bool))
        assert all(same_bits(rows.look(i), row(new, i)) for i in range(3))
        seen |= {rows.look(i).rule["b"].ctypes.data for i in range(3)}
    assert len(seen) == 6


def test_states_renewed_in_place_have_the_same_bits(monkeypatch):
    """Also of versions that are kept, of cohorts with empty slots, and gone on from."""
    cohort = hf.cohorts.bernoulli(0.6)
    plain = list(itertools.islice(hf.rounds(**SETTINGS | {"cohort": cohort}), 5))
    monkeypatch.setattr(stacks, "_LARGE", 0)
    monkeypatch.setattr(memory, "_LARGE", 0)
    found = list(itertools.islice(hf.rounds(**SETTINGS | {"cohort": cohort}), 5))
    for a, b in zip(plain, found, strict=True):
        assert same_bits((a.params, dict(a.rows.touched)), (b.params, dict(b.rows.touched)))
    again = next(hf.rounds(**SETTINGS | {"cohort": cohort}, start=found[2]))
    assert same_bits(dict(again.rows.touched), dict(plain[3].rows.touched))


@pytest.mark.parametrize("large", [False, True])
def test_a_write_that_stops_halfway_leaves_the_version_before(large, monkeypatch):
    monkeypatch.setattr(memory, "_LARGE", 0 if large else 1 << 20)
    rng, everyone = np.random.default_rng(0), np.arange(4)
    old = random_rows(rng, 4)
    rows = ClientStates(FIRST, 6).write(everyone, old, np.ones(4, bool))
    whole = memory.MemoryStore.write

    def half(store, ids, states, positions):
        whole(store, ids[:2], states, positions[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(memory.MemoryStore, "write", half)
    with pytest.raises(KeyboardInterrupt):
        rows.write(everyone + 1, random_rows(rng, 4), np.ones(4, bool))
    monkeypatch.setattr(memory.MemoryStore, "write", whole)
    assert list(rows.touched) == [0, 1, 2, 3]
    assert all(same_bits(rows[i], row(old, i)) for i in range(4))
    assert same_bits(rows[4], FIRST)
    new = random_rows(rng, 4)
    after = rows.write(everyone + 1, new, np.ones(4, bool))
    assert same_bits(after[0], row(old, 0))
    assert all(same_bits(after[i + 1], row(new, i)) for i in range(4))


def test_only_processes_of_the_run_are_connected_to(monkeypatch):
    monkeypatch.setattr(exchange, "_GREETING", 0.05)
    secret = b"s" * exchange._SECRET
    said = {
        b"": None,
        b"GET / HTTP": None,
        b"x" * exchange._SECRET + b"\1\0\0\0": None,
        secret + b"\1\0\0\0": 1,
    }
    for words, expected in said.items():
        for goes in (False, True):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                theirs.sendall(words)
                if goes:
                    theirs.close()
                assert exchange._greeted(ours, secret) == expected


def test_who_never_took_part_costs_nothing():
    rows = ClientStates(FIRST, 1_000_000)
    rows = rows.write(
        np.array([999_999]), random_rows(np.random.default_rng(0), 1), np.array([True])
    )
    assert list(rows.touched) == [999_999]
    assert sum(leaf.nbytes for block in rows.store._blocks for leaf in block) < 20e6


SETTINGS = {
    "algorithm": hf.algorithms.feddyn(alpha=0.1),
    "model": hf.models.softmax_regression(classes=3),
    "clients": tiny_clients(),
    "local": hf.Local(0.1, epochs=1, batch_size=4),
    "cohort": hf.cohorts.fixed(3),
    "seed": 4,
}


def run(rounds, **changes):
    return hf.simulate(rounds=rounds, **(SETTINGS | changes))


def assert_same(a, b):
    assert same_bits((a.params, a.state.server), (b.params, b.state.server))
    assert same_bits(dict(a.client_states.touched), dict(b.client_states.touched))
    assert a.ledger == b.ledger


@pytest.mark.parametrize("memory", ["0 B", "250 B"])
def test_a_run_with_rows_on_disk_resumes_to_the_same_bits(tmp_path, memory):
    whole, storage = run(9), hf.Storage(memory=memory)
    for rounds in (2, 5, 9):
        resumed = run(rounds, storage=storage, checkpoint=hf.Checkpoint(tmp_path, every=2))
        assert isinstance(resumed.client_states.store, DiskStore)
    assert_same(resumed, whole)
    assert len(list(tmp_path.glob("rows-*"))) == 1
    # Rows on disk go on in memory if there is room for them, and the other way round.
    assert_same(run(11, checkpoint=tmp_path), run(11))
    assert_same(run(13, storage=storage, checkpoint=tmp_path), run(13))


def test_a_damaged_save_goes_back_to_the_rows_of_the_one_before(tmp_path):
    storage, often = hf.Storage(memory=0), hf.Checkpoint(tmp_path, every=2)
    run(6, storage=storage, checkpoint=often)
    newest = often.files()[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(hf.HoldfastWarning, match="damaged"):
        assert_same(run(8, storage=storage, checkpoint=often), run(8))


def _zero_a_page(path):
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : (page + 1) * 4096] = bytes(4096)
    path.write_bytes(content)


DAMAGES = {
    "removed": (lambda path, later: path.unlink(), "is missing"),
    "its folder removed": (lambda path, later: shutil.rmtree(path.parent), "is missing"),
    "emptied": (lambda path, later: path.write_bytes(b""), "is cut short"),
    "truncated": (lambda path, later: os.truncate(path, path.stat().st_size // 2), "is cut short"),
    "zeroed pages": (lambda path, later: _zero_a_page(path), "is damaged"),
    "no header": (
        lambda path, later: path.write_bytes(bytes(path.stat().st_size)),
        "has no header",
    ),
    "a later one": (lambda path, later: shutil.copy(later, path), "not those of the save"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_lost_or_damaged_states_are_refused(tmp_path, damage):
    """In the process that still has the database open, and in a folder that was moved."""
    storage = hf.Storage(memory=0)
    kept = run(4, storage=storage, checkpoint=hf.Checkpoint(tmp_path / "a", every=2))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    run(14, storage=storage, checkpoint=hf.Checkpoint(tmp_path / "a", every=2))
    (later,) = (tmp_path / "a").glob("rows-*/0/data.mdb")
    (path,) = (tmp_path / "b").glob("rows-*/0/data.mdb")
    harm, words = DAMAGES[damage]
    harm(path, later)
    with pytest.raises(hf.HoldfastError, match=f"not one save can be used .*{words}.*restore"):
        run(6, storage=storage, checkpoint=tmp_path / "b")
    assert kept.state.round == 4


def test_a_restored_folder_is_read_anew(tmp_path):
    storage, place = hf.Storage(memory=0), tmp_path / "run"
    kept = run(4, storage=storage, checkpoint=hf.Checkpoint(place, every=2))
    shutil.copytree(place, tmp_path / "backup")
    later = run(7, storage=storage, checkpoint=hf.Checkpoint(place, every=2))
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "backup", place)
    assert_same(run(6, storage=storage, checkpoint=place), run(6))
    assert (kept.state.round, later.state.round) == (4, 7)


def test_a_damaged_state_is_named(tmp_path):
    one = run(3, storage=hf.Storage(memory=0, folder=tmp_path))
    store = one.client_states.store
    client = int(store.ids()[0])
    key = module_key(client, store)
    content = bytearray(store._database.transaction.get(key))
    content[5] ^= 1
    store._database.transaction.put(key, bytes(content))
    with pytest.raises(hf.HoldfastError, match=rf"state of client {client} .* is damaged"):
        one.client_states[client]


def module_key(client, store):
    from holdfast.client_states import disk

    return disk._KEY.pack(client, int(store._version_of[client]))


CHILD = """
import sys
sys.path[:0] = {path!r}
import holdfast as hf
from tests.client_states.test_stores import run
run(100000, storage=hf.Storage(memory=0), checkpoint=hf.Checkpoint({folder!r}, every=3))
"""


def test_killed_at_any_moment_rows_and_save_agree(tmp_path):
    folder = str(tmp_path / "run")
    code = CHILD.format(path=[os.getcwd(), *sys.path], folder=folder)
    reached = 0
    for pause in (0.05, 0.11):
        child = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 120
        while _last_round(folder) <= reached and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(pause)  # somewhere in the middle of a round, a commit or a save
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        reached = _last_round(folder)
    assert reached >= 6
    rounds = reached + 2
    resumed = run(rounds, storage=hf.Storage(memory=0), checkpoint=hf.Checkpoint(folder, every=3))
    assert_same(resumed, run(rounds))


def _last_round(folder):
    return max(
        (int(p.stem.split("-")[1]) for p in Path(folder).glob("round-*.holdfast")), default=0
    )


def test_sizes_in_words():
    assert hf.Storage(memory="1.5 GiB").memory_bytes == 3 << 29
    assert hf.Storage(memory=17).memory_bytes == 17
    assert hf.Storage().memory_bytes > 1e8
    with pytest.raises(
        hf.HoldfastError, match=r"memory='much' is not a size; give bytes, or such as"
    ):
        hf.Storage(memory="much")


def test_states_that_moved_to_disk_leave_no_memory_behind(monkeypatch, tmp_path):
    """Nobody holds the blocks, and they are the operating system's own: unmapped when nobody does."""
    blocks = []
    made = memory._mapped

    def noted(*args):
        block = made(*args)
        assert isinstance(block.base.base.obj, mmap.mmap)
        blocks.append(weakref.ref(block.base.base.obj))
        return block

    monkeypatch.setattr(memory, "_mapped", noted)
    left = []

    def on_round(state):
        if isinstance(state.client_states.store, DiskStore):
            gc.collect()
            left.append(sum(block() is not None for block in blocks))

    hf.simulate(
        hf.algorithms.scaffold(),
        hf.models.softmax_regression(3),
        tiny_clients(),
        hf.Local(0.1, steps=1, batch_size=4),
        rounds=4,
        cohort=hf.cohorts.fixed(2),
        storage=hf.Storage(memory=200, folder=tmp_path),
        on_round=on_round,
    )
    assert len(blocks) >= 2
    assert len(left) >= 2
    assert not any(left)
