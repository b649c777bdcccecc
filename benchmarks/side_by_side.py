"""Runs one after another and side by side: the demo, and a sweep of 27 points, on so many cores.

    python benchmarks/side_by_side.py                    # on 1, 2, ... of the cores this process may use
    python benchmarks/side_by_side.py --cores 2 --only demo

Every line is a command in a process of its own, on cores given to it as `taskset` does. After start-up: from
the moment the file is checked and the folder made to the end of the last run. Efficiency is work per core
and second, against one run at a time on one core. Results must be equal to the bit, else it says so.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "src" / "holdfast" / "config" / "templates" / "digits.toml"
SWEEP = """
rounds = 30

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 50
concentration = 0.3

[model]
name = "mlp"
hidden = [64]

[local]
learning_rate = 0.1
epochs = 5
batch_size = 20

[cohort]
name = "fixed"
size = 10

[[algorithm]]
name = "feddyn"
alpha = 0.1

[sweep]
"algorithm.feddyn.alpha" = [0.01, 0.03, 0.1]
"local.learning_rate" = [0.03, 0.1, 0.3]
"local.weight_decay" = [0.0, 0.0001, 0.001]
"""
SAME = {
    "history.jsonl",
    "ledger.jsonl",
    "clients.json",
    "params.safetensors",
    "predictions.safetensors",
}


def timed(file: Path, folder: Path, cores: int, jobs: int) -> tuple[float, float, float]:
    """Seconds of a command: all, after start-up, and of the processors."""
    mine = sorted(os.sched_getaffinity(0))[:cores]
    command = [sys.executable, "-P", "-m", "holdfast", "run", str(file), "--out", str(folder)]
    before, began = os.times(), time.time()
    subprocess.run(
        [*command, "--jobs", str(jobs)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, mine),
    )
    ended, after = time.time(), os.times()
    first = (folder / "experiment.toml").stat().st_mtime
    last = max(p.stat().st_mtime for p in folder.rglob("complete.sha256"))
    used = after.children_user + after.children_system
    return ended - began, last - first, used - before.children_user - before.children_system


def results(folder: Path) -> dict[str, bytes]:
    """What must not depend on how many runs there are at once."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.name in SAME}


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", choices=("demo", "sweep"))
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args()
    wrong = 0
    print(
        "|  | cores | jobs | seconds | after start-up | of one by one | efficiency | processor s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        sweep = Path(place) / "sweep.toml"
        sweep.write_text(SWEEP)
        files = {"demo": DEMO, "sweep": sweep}
        for name, file in files.items():
            if given.only not in (None, name):
                continue
            counts = [1 << k for k in range(given.cores.bit_length()) if 1 << k <= given.cores]
            settings = [*((n, 1) for n in counts), *((n, n) for n in counts[1:])]
            best: dict[tuple[int, int], tuple[float, float, float]] = {}
            first: dict[str, bytes] = {}
            for repeat in range(given.repeats):
                for cores, jobs in settings:
                    folder = Path(place) / f"{name}-{cores}-{jobs}-{repeat}"
                    found = timed(file, folder, cores, jobs)
                    best[cores, jobs] = min(
                        found, best.get((cores, jobs), found), key=lambda t: t[1]
                    )
                    first = first or results(folder)
                    if results(folder) != first:
                        wrong += 1
                        print(f"{name}, {cores} cores, {jobs} jobs: WRONG, other results")
            for (cores, jobs), (whole, after, used) in best.items():
                ratio = after / best[cores, 1][1]
                efficiency = best[1, 1][1] / (cores * after)
                print(
                    f"| {name} | {cores} | {jobs} | {whole:.1f} | {after:.1f} | {ratio:.2f} "
                    f"| {efficiency:.0%} | {used:.1f} |",
                    flush=True,
                )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
