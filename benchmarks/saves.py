"""What a save costs over a long run: seconds and bytes, by thousands of rounds.

    python benchmarks/saves.py [--rounds 10000]

A tiny problem, saved every 10 rounds, with client states in memory and on disk. A save must cost what changed
since the one before, so that no column grows with the rounds. Bytes are those of the save's own file, and
those by which the journal of rounds has grown; those of LMDB are the size of its file. A save waits for the
disk; what it takes of a core is apart.
"""

import argparse
import collections
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import holdfast as hf

EVERY = 10
PART = 10  # of so many parts each row is the median


class Measured(hf.Checkpoint):
    """A checkpoint that notes what each of its saves cost."""

    def save(self, state, identity):
        before = sum(p.stat().st_size for p in Path(self.folder).glob("rounds-*.jsonl"))
        began, worked = time.perf_counter(), time.thread_time()
        path = super().save(state, identity)
        seconds, work = time.perf_counter() - began, time.thread_time() - worked
        journal = sum(p.stat().st_size for p in Path(self.folder).glob("rounds-*.jsonl")) - before
        database = sum(p.stat().st_size for p in Path(self.folder).glob("rows-*/*/data.mdb"))
        FOUND.append((state.round, seconds, work, path.stat().st_size, journal, database))
        return path


FOUND: list[tuple[int, float, float, int, int, int]] = []


def measure(rounds: int, memory: int | None) -> list[tuple[float, ...]]:
    """Of every part of the rounds: the last round, milliseconds of a round and of a save, and its bytes."""
    FOUND.clear()
    rng = np.random.default_rng(0)
    parts = [
        hf.Examples(rng.normal(size=(8, 5)).astype(np.float32), rng.integers(0, 3, 8))
        for _ in range(20)
    ]
    ends = []
    with tempfile.TemporaryDirectory() as folder:
        hf.simulate(
            hf.algorithms.scaffold(),
            hf.models.softmax_regression(3),
            hf.Clients.from_datasets(parts),
            hf.Local(0.1, steps=1),
            rounds,
            cohort=hf.cohorts.fixed(4),
            storage=hf.Storage(memory=memory),
            checkpoint=Measured(folder, every=EVERY),
            on_round=lambda state: ends.append(time.perf_counter()),
            progress=False,
        )
    # The time of a round in which nothing was saved.
    apart = np.diff(ends)[np.arange(2, rounds + 1) % EVERY != 0]
    rows = []
    saves = collections.deque(FOUND)
    for part in range(PART):
        last = rounds * (part + 1) // PART
        mine = []
        while saves and saves[0][0] <= last:
            mine.append(saves.popleft())
        each = apart[len(apart) * part // PART : len(apart) * (part + 1) // PART]
        middle = [statistics.median(values) for values in zip(*mine, strict=True)]
        rows.append(
            (last, 1e3 * float(np.median(each)), 1e3 * middle[1], 1e3 * middle[2], *middle[3:])
        )
    return rows


def main() -> None:
    """Both tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=10_000)
    given = asked.parse_args()
    for where, memory in (("memory", None), ("disk", 0)):
        print(f"\nclient states {'in memory' if where == 'memory' else 'on disk'}\n")
        print(
            "| up to round | ms a round | ms a save | of a core | bytes | of its rounds | of LMDB |"
        )
        print("|---|---|---|---|---|---|---|")
        for last, *times, whole, journal, database in measure(given.rounds, memory):
            shown = " | ".join(f"{ms:.2f}" for ms in times)
            print(
                f"| {last} | {shown} | {whole:.0f} | {journal:.0f} | {database:.0f} |", flush=True
            )


if __name__ == "__main__":
    main()
